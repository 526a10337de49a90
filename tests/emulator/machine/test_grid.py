"""The grid: races between CTAs of different clusters, launch control, registers, named barriers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fmha.emulator import Device, LaunchError, PtxError, load_ptx
from tests.emulator.bulk_rig import tiled
from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, source, wait

ONE = {"out": np.zeros(256, np.uint32)}
SLOT = "mul.wide.u32 %d1, %cta, 4; add.u64 %d1, %out, %d1;\n"


# Races


def test_agents_of_different_ctas_are_different() -> None:
    """Both CTAs have a warp 0: writing the same word is a race, writing different words of one sector is none."""
    assert run("@%leader st.global.u32 [%out], %cta;", ONE, grid=2).rules == {"race"}
    done = run(SLOT + "@%leader st.global.u32 [%d1], %cta;", ONE, grid=64).clean()
    np.testing.assert_array_equal(done.arrays["out"][:64], np.arange(64))


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_race_between_clusters_is_reported_once(cluster: int) -> None:
    done = run("@%leader st.global.u32 [%out], %cta;", ONE, grid=8, cluster=cluster)
    assert [f.rule for f in done.report.findings] == ["race"]
    assert done.report.findings[0].count == 7


def test_reads_race_with_writes_of_other_clusters() -> None:
    body = """setp.eq.u32 %p1, %cta, 1; @%p1 ld.global.u32 %r1, [%out];
    setp.eq.u32 %p2, %cta, 0; @%p2 st.global.u32 [%out+{}], 1;"""
    assert run(body.format(0), ONE, block=1, grid=2).rules == {"race"}
    assert run(body.format(4), ONE, block=1, grid=2).rules == set()
    assert run("ld.global.u32 %r1, [%out];", ONE, grid=5).rules == set()


def test_the_cluster_barrier_orders_only_its_own_cluster() -> None:
    def body(reader: str) -> str:
        return f"""{SLOT} @%leader st.global.u32 [%d1], 5; {CLUSTER_SYNC} {reader}"""

    peer = "xor.b32 %r1, %cta, 1; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %out, %d2; ld.global.u32 %r2, [%d2];"
    assert run(body(peer), ONE, grid=4, cluster=2).rules == set()
    assert run(body(peer.replace("%cta, 1", "%cta, 2")), ONE, grid=4, cluster=2).rules == {"race"}


def test_results_do_not_depend_on_the_order_of_clusters() -> None:
    body = f"{init_barriers(32)} mbarrier.arrive.shared::cta.b64 _, [bar]; {wait()} {SLOT}"
    body += "@%leader st.global.u32 [%d1], %cta;"
    for seed in range(3):
        done = run(body, ONE, grid=200, schedule="random", seed=seed).clean()
        np.testing.assert_array_equal(done.arrays["out"][:200], np.arange(200))


# The end of a grid

PLANE = 1 << 26
PLANES = f"""mov.u32 %r1, %ctaid.z; mul.wide.u32 %d1, %r1, {PLANE}; add.u64 %d1, %out, %d1;
@%leader st.global.u32 [%d1], %r1;"""  # a word each


def planes(device: Device, first: int, backed: int) -> tuple[int, Any]:
    """A grid of 300 planes over 20 GB, of which a page is there where plane `backed` writes."""
    out = device.reserve(300 * PLANE)
    device.back(out + backed * PLANE, 4096, "out")
    device.write(out + backed * PLANE, np.zeros(1024, np.uint32))
    return out, device.launch(load_ptx(source(PLANES, ONE, {})), "kernel", (1, 1, 300), 32, [out], first_plane=first)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_last_planes_of_a_grid_alone(threads: int) -> None:
    device = Device(threads=threads)
    out, report = planes(device, 299, 299)
    assert report.findings == ()
    assert device.read(out + 299 * PLANE, 4).view(np.uint32)[0] == 299
    assert [f.rule for f in planes(Device(threads=threads), 298, 299)[1].findings] == ["global-out-of-bounds"]


def test_memory_where_it_is_asked_for_and_nowhere_else() -> None:
    device = Device()
    room = device.reserve(1 << 36)
    device.back(room + (1 << 35), 256, "middle")
    after = device.alloc(256)
    assert after.address > room + (1 << 36)
    for address, nbytes in ((room + (1 << 35), 1), (room + (1 << 35) - 256, 257), (1 << 44, 256), (after.address, 1)):
        with pytest.raises(ValueError, match="are not free"):
            device.back(address, nbytes)
    with pytest.raises(ValueError, match="begins at a multiple of 256"):
        device.back(room + 8, 8)
    with pytest.raises(ValueError, match="there are no 1099511627776 more addresses"):
        device.reserve(1 << 40)
    with pytest.raises(IndexError):
        device.read(room, 1)


def test_planes_that_a_grid_has_not() -> None:
    with pytest.raises(LaunchError, match="first_plane is 300; the grid has 300 planes"):
        planes(Device(), 300, 299)


# A chain of CTAs that wait for flags in out: {role: body}, a CTA each.
def by_cta(*bodies: str) -> str:
    branches = "".join(f"setp.eq.u32 %p1, %cta, {k}; @%p1 bra CTA{k};\n" for k in range(len(bodies)))
    return branches + "".join(f"CTA{k}:\n{body}\nbra END;\n" for k, body in enumerate(bodies)) + "END:"


def poll(flag: int, order: str = "acquire") -> str:
    return f"""{{ POLL: ld.{order}.gpu.global.u32 %r1, [%out+{4 * flag}]; setp.eq.u32 %p1, %r1, 0; @%p1 bra POLL; }}
    """


@pytest.mark.parametrize("schedule", ["realistic", "random"])
def test_a_release_hands_on_what_was_known_then_and_nothing_later(schedule: str) -> None:
    """CTA 1 releases (flag 4) after it has learned of CTA 0 and before it learns of CTA 2; CTA 3 acquires that."""

    def chain(reads: int) -> str:
        return by_cta(
            "st.global.u32 [%out], 7; st.release.gpu.global.u32 [%out+12], 1;",
            poll(3) + "st.release.gpu.global.u32 [%out+16], 1;" + poll(5) + "st.relaxed.gpu.global.u32 [%out+24], 1;",
            "st.global.u32 [%out+8], 9; st.release.gpu.global.u32 [%out+20], 1;",
            poll(6, "relaxed") + poll(4) + f"ld.global.u32 %r2, [%out+{reads}];",
        )

    for seed in range(4 if schedule == "random" else 1):
        options = {"grid": 4, "block": 1, "schedule": schedule, "seed": seed}
        assert run(chain(0), ONE, **options).rules == set()
        assert run(chain(8), ONE, **options).rules == {"race"}


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
@pytest.mark.parametrize("pause", [0, 100])
def test_clusters_that_only_poll_are_a_livelock(schedule: str, pause: int) -> None:
    """Each CTA waits for the next one's flag; polling may take turns of two flags and a long body."""
    work = "add.u32 %r9, %r9, 1;\n" * pause
    body = f"""mov.u32 %r9, 0; add.u32 %r8, %cta, 1; rem.u32 %r8, %r8, 5;
    mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %d1, %out;
    LOOP: ld.acquire.gpu.global.u32 %r1, [%d1]; ld.acquire.gpu.global.u32 %r2, [%d1+64]; or.b32 %r1, %r1, %r2;
    {work} setp.eq.u32 %p1, %r1, 0; @%p1 bra LOOP;
    {SLOT} st.release.gpu.global.u32 [%d1], 1;"""
    options = {"grid": 5, "block": 32, "schedule": schedule, "max_instructions": 400_000}
    done = run(body, ONE, **options)
    assert done.rules == {"livelock"}
    lines = str(done.report.findings[0])
    assert "; 5 polling or waiting" in lines
    rest = re.search(r"and (\d+) more wait", lines)
    assert sum(f"CTA {k} warp 0 waits" in lines for k in range(5)) + int(rest[1] if rest else 0) == 5
    started = {"out": np.array([1, 0] * 128, np.uint32)}
    assert run(body.replace("[%d1+64]", "[%d1]"), started, **options).rules == set()


# Launch control

QUERY = """
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q0;
@%p1 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r20, %r21, %r22, _}, %q0;
"""


def persistent(request: str = ".b128 [%r30], [%r31];", loop: str = "") -> str:
    """Counts the visits of each tile: its own, then whatever it can take over from CTAs that have not started."""
    return f"""
    {init_barriers(1)} mov.u32 %r30, word; mov.u32 %r31, bar; mov.u32 %r32, 0; mov.u32 %r20, %cta;
    NEXT:
    add.u32 %r33, %r20, %rank; mul.wide.u32 %d1, %r33, 4; add.u64 %d1, %out, %d1;
    ld.global.u32 %r1, [%d1]; add.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    {loop}
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{request}
    {wait("bar", "%r32")}
    xor.b32 %r32, %r32, 1;
    ld.shared.b128 %q0, [word];
    {QUERY}
    @%p1 bra NEXT;
    """


def test_a_persistent_kernel_takes_over_what_has_not_started() -> None:
    for schedule in ("realistic", "early", "late", "random"):
        done = run(persistent(), ONE, grid=100, block=1, schedule=schedule).clean()
        np.testing.assert_array_equal(done.arrays["out"], [1] * 100 + [0] * 156)


def test_a_cancelled_cluster_answers_all_its_ctas() -> None:
    request = ".multicast::cluster::all.b128 [%r30], [%r31];"
    body = persistent(request, f"{CLUSTER_SYNC} setp.eq.u32 %p2, %rank, 0;")
    body = body.replace("clusterlaunch", "@%p2 clusterlaunch", 1)
    body = body.replace("mov.u32 %r20, %cta;", "sub.u32 %r20, %cta, %rank;") + CLUSTER_SYNC
    done = run(body, ONE, grid=60, block=1, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"], [1] * 60 + [0] * 196)


def test_ids_of_refused_requests() -> None:
    body = persistent().replace("@%p1 clusterlaunch", "clusterlaunch").replace("@%p1 bra NEXT;", "")
    assert run(body, ONE, grid=1, block=1).rules == {"cancel-refused"}
    # FlashAttention-4 asks first and decides later.
    assert run(body, ONE, grid=1, block=1, profile="lenient").rules == set()
    again = persistent().replace("@%p1 bra NEXT;", "setp.eq.u32 %p3, %r32, 1; @%p3 bra NEXT;").replace(
        "mul.wide.u32 %d1, %r33", "mul.wide.u32 %d1, 0")  # fmt: skip
    assert run(again, ONE, grid=1, block=1).rules == {"cancel-after-refusal"}


def test_dependent_launches_are_no_operations() -> None:
    body = f"griddepcontrol.wait; {SLOT} @%leader st.global.u32 [%d1], 3; griddepcontrol.launch_dependents;"
    assert run(body, ONE, grid=2).clean().arrays["out"][1] == 3


# Registers


def registers(first: int, others: int) -> str:
    return f"""
    setp.lt.u32 %p1, %tid, 128; @%p1 bra FIRST;
    setmaxnreg.inc.sync.aligned.u32 {others}; bra END;
    FIRST: setmaxnreg.dec.sync.aligned.u32 {first};
    END:"""


def test_register_pool() -> None:
    # Three warpgroups of 168: 24 + 2 x 240 is all there is.
    assert run(registers(24, 240), ONE, block=384).rules == set()
    short = run(registers(32, 240), ONE, block=384)
    assert short.rules == {"deadlock"}
    assert "registers" in str(short.report.findings[0])
    assert run(registers(24, 240), ONE, block=384, directives=".maxnreg 160").rules == {"deadlock"}
    assert run(registers(24, 224), ONE, block=384, directives=".maxnreg 160").rules == set()
    assert run(registers(200, 240), ONE, block=384).rules == {"setmaxnreg"}


def test_register_counts() -> None:
    for count in ("20", "28", "264", "%r1"):
        module = load_ptx(source(f"setmaxnreg.inc.sync.aligned.u32 {count};", {}, {}))
        with pytest.raises(PtxError, match="multiple of 8"):
            Device().launch(module, "kernel", (1, 1, 1), (128, 1, 1), [])
    body = """setp.lt.u32 %p1, %tid, 32; @%p1 bra ONE;
    setmaxnreg.dec.sync.aligned.u32 40; bra END; ONE: setmaxnreg.dec.sync.aligned.u32 40; END:"""
    assert run(body, ONE, block=128).rules == {"setmaxnreg-divergent"}


@pytest.mark.parametrize(("warps", "rules"), [(3, {"setmaxnreg-divergent"}), (4, set())])
def test_three_warps_of_a_warpgroup_change_their_registers(warps: int, rules: set[str]) -> None:
    body = f"""setp.ge.u32 %p1, %tid, {32 * warps}; @%p1 bra END;
    setmaxnreg.dec.sync.aligned.u32 40; END:"""
    assert run(body, ONE, block=128).rules == rules


# Named barriers


@pytest.mark.parametrize("form", ["barrier.sync", "barrier.cta.sync"])
def test_lanes_may_meet_at_different_barrier_instructions(form: str) -> None:
    body = f"""
    mov.u32 %r3, tile; shl.b32 %r4, %tid, 2; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %tid;
    and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN;
    {form} 3, 64; bra JOIN; EVEN: {form} 3, 64;
    JOIN: xor.b32 %r5, %tid, 63; shl.b32 %r5, %r5, 2;
    mov.u32 %r6, tile; add.u32 %r6, %r6, %r5; ld.shared.u32 %r7, [%r6];
    mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %out, %d1; st.global.u32 [%d1], %r7;
    """
    done = run(body, ONE, block=64).clean()
    np.testing.assert_array_equal(done.arrays["out"][:64], np.arange(64) ^ 63)


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ("barrier.red.popc.aligned.u32 %r2, 1, %p1;", 24),
        ("bar.red.popc.u32 %r2, 1, 96, !%p1;", 72),
        ("bar.red.and.pred %p2, 1, %p1; selp.u32 %r2, 1, 0, %p2;", 0),
        ("bar.red.or.pred %p2, 1, %p1; selp.u32 %r2, 1, 0, %p2;", 1),
        ("bar.red.and.pred %p2, 1, !%p3; selp.u32 %r2, 1, 0, %p2;", 1),
        ("barrier.red.or.pred %p2, 1, %p3; selp.u32 %r2, 1, 0, %p2;", 0),
    ],
)
def test_reductions(operation: str, result: int) -> None:
    body = f"""
    and.b32 %r1, %tid, 3; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p3, %r1, 7;
    {operation}
    mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %out, %d1; st.global.u32 [%d1], %r2;
    """
    done = run(body, ONE, block=96).clean()
    np.testing.assert_array_equal(done.arrays["out"][:96], result)


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        ("bar.arrive 1, 64; bar.sync 1, 64;", {"barrier-over-arrival"}),
        ("setp.lt.u32 %p1, %tid, 32; @%p1 bra A; bar.sync 1, 96; bra B; A: bar.sync 1, 64; B:",
         {"barrier-count-mismatch", "deadlock"}),
        ("setp.lt.u32 %p1, %tid, 32; @%p1 bra A; bar.sync 1; bra B; A: bar.red.or.pred %p2, 1, %p1; B:",
         {"barrier-mixed-reduction"}),
        ("bar.sync 1, 96;", {"deadlock"}),
        ("bar.sync 1, 48;", {"barrier-count"}),
        ("bar.sync 16;", {"barrier-index"}),
        ("and.b32 %r1, %tid, 1; barrier.sync %r1;", {"barrier-operands"}),
        ("setp.lt.u32 %p1, %tid, 40; @%p1 bra END; barrier.sync 0; END:", {"barrier-exited-threads"}),
        ("setp.lt.u32 %p1, %tid, 40; @!%p1 barrier.sync 1, 32; @%p1 barrier.sync 2, 64;", {"deadlock"}),
    ],
)  # fmt: skip
def test_barrier_misuse(body: str, rules: set[str]) -> None:
    assert run(body, ONE, block=64).rules == rules


@pytest.mark.parametrize("schedule", ["realistic", "random"])
@pytest.mark.parametrize("passed", [32, 40, 63])
def test_threads_that_return_early(passed: int, schedule: Any) -> None:
    """Hardware takes them for arrived at the barriers of the others, which PTX does not promise."""
    body = f"setp.lt.u32 %p1, %tid, {passed}; @%p1 ret; bar.sync 0; st.global.u32 [%out], %tid; bar.sync 0;"
    assert run(body.replace("bar", "barrier"), ONE, block=96, schedule=schedule).rules >= {"barrier-exited-threads"}
    body = body.replace("st.global.u32 [%out], %tid;", "")
    run(body, ONE, block=96, schedule=schedule, profile="lenient").clean()
    assert run(body, ONE, block=96, schedule=schedule).rules == {"barrier-exited-threads"}
    run("bar.sync 0; @%leader ret; barrier.sync 1, 64;", ONE, block=64, schedule=schedule, profile="lenient").clean()


@pytest.mark.parametrize("schedule", ["realistic", "random"])
def test_a_barrier_of_the_odd_threads(schedule: Any) -> None:
    """`if (threadIdx.x % 2) __syncthreads();`, with something to do afterwards: in both profiles."""
    body = """
    and.b32 %r1, %tid, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra AROUND; bar.sync 0;
    AROUND: mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %tid;
    """
    for profile in ("strict", "lenient"):
        assert run(body, ONE, block=64, schedule=schedule, profile=profile).rules == {"nonconvergent-aligned"}
    uniform = body.replace("and.b32 %r1, %tid, 1", "and.b32 %r1, %tid, 64")
    assert run(uniform, ONE, block=128, schedule=schedule).rules == {"barrier-exited-threads"}
    run(uniform.replace("bar.sync 0", "bar.sync 0, 64"), ONE, block=128, schedule=schedule).clean()


def test_a_warp_that_arrives_for_another_and_waits() -> None:
    """FlashAttention-4 counts one warp of two as three; the lenient profile lets it."""
    body = "setp.lt.u32 %p1, %tid, 32; @%p1 bar.arrive 1, 96; bar.sync 1, 96;"
    assert run(body, ONE, block=64).rules == {"barrier-over-arrival"}
    assert run(body, ONE, block=64, profile="lenient").rules == set()
    ahead = "setp.lt.u32 %p1, %tid, 32; @%p1 bar.arrive 1, 96; @%p1 bar.arrive 1, 96; @!%p1 bar.sync 1, 96;"
    assert run(ahead, ONE, block=64, profile="lenient").rules == {"barrier-over-arrival"}


def test_arrivals_without_a_count_are_refused() -> None:
    with pytest.raises(PtxError, match="thread count"):
        Device().launch(load_ptx(source("bar.arrive 1;", {}, {})), "kernel", (1, 1, 1), (32, 1, 1), [])


# Tensor maps that a kernel changes

REPLACED = """
mov.u32 %r30, tile;
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map]; st.shared.v4.u32 [%r30], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+16]; st.shared.v4.u32 [%r30+16], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+32]; st.shared.v4.u32 [%r30+32], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+48]; st.shared.v4.u32 [%r30+48], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+64]; st.shared.v4.u32 [%r30+64], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+80]; st.shared.v4.u32 [%r30+80], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+96]; st.shared.v4.u32 [%r30+96], {{%r1, %r2, %r3, %r4}};
ld.param.v4.u32 {{%r1, %r2, %r3, %r4}}, [map+112]; st.shared.v4.u32 [%r30+112], {{%r1, %r2, %r3, %r4}};
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r30], %out;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r30], 0, 12;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%space], [%r30], 128;
{fence}
st.shared.v4.u32 [%r30+1024], {{9, 9, 9, 9}}; st.shared.v4.u32 [%r30+1040], {{9, 9, 9, 9}};
fence.proxy.async.shared::cta;
add.u32 %r31, %r30, 1024;
cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%space, {{8}}], [%r31];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
"""


def test_replaced_maps_need_the_tensormap_fence() -> None:
    arrays = {**ONE, "other": np.zeros(256, np.uint32), "space": np.zeros(128, np.uint8)}
    maps = {"map": tiled("other", (256,), (8,))}
    fence = "fence.proxy.tensormap::generic.acquire.gpu [%space], 128;"
    done = run(REPLACED.format(fence=fence), arrays, maps, block=1).clean()
    # The replaced extent clips the store; the replaced address is where it goes.
    np.testing.assert_array_equal(np.flatnonzero(done.arrays["out"]), [8, 9, 10, 11])
    assert not done.arrays["other"].any()
    assert run(REPLACED.format(fence=""), arrays, maps, block=1).rules == {"tensor-map-stale"}
