"""The timing model: what kernels whose time is arithmetic take, and that it changes nothing else."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator import _core
from fmha.emulator.timing.architecture import NAMES, architecture
from fmha.emulator.timing.clock import clock
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.emulator.timing.shape import sampled
from fmha.emulator.timing.timeline import RUNNING, Timeline
from tests.emulator.bulk_rig import tiled
from tests.emulator.clusterlab import CLUSTER_SYNC, init_barriers, run, wait
from tests.emulator.thirdparty.running import execute
from tests.emulator.timing_rig import (
    BULK,
    BULK_LOADS,
    H200,
    ONE_AN_SM,
    apart,
    chain,
    kernel,
    loaded,
    timed,
    without_code,
)


def slope(text, block: int = 32) -> float:
    """Cycles an instruction, of 64 more of them."""
    found = [timed(kernel(text(n)), block=block)[0].timing.modelled(without_code()).cycles for n in (64, 128)]
    return (found[1] - found[0]) / 64


def test_a_chain_takes_the_latency_of_each_link():
    assert slope(lambda n: chain("add.f32", n)) == H200["fma_latency"]
    assert slope(lambda n: chain("ex2.approx.ftz.f32", n)) == H200["mufu_latency"]


def test_what_does_not_depend_takes_the_interval_of_its_pipe():
    assert slope(lambda n: apart("ex2.approx.ftz.f32", n)) == H200["mufu_interval"]
    assert slope(lambda n: apart("ex2.approx.ftz.f32", n), block=128) == H200["mufu_interval"], "a pipe a scheduler"
    assert slope(lambda n: apart("ex2.approx.ftz.f32", n), block=256) == 2 * H200["mufu_interval"]


def test_the_busiest_server_bounds():
    report, _ = timed(kernel(apart("ex2.approx.ftz.f32", 2000)), block=256)
    assert report.timing.modelled(without_code()).bound == "mufu"
    report, _ = timed(kernel(chain("ex2.approx.ftz.f32", 2000)))
    assert report.timing.modelled(without_code()).bound == "latency"


def test_code_is_fetched_once_an_sm():
    body = apart("ex2.approx.ftz.f32", 640)
    report, _ = timed(kernel(body))
    cold, warm = (report.timing.modelled(times).cycles for times in (None, without_code()))
    assert cold - warm > 8 * H200["code_miss"]


def test_a_line_of_code_that_a_jump_leads_to_is_not_fetched_ahead():
    body = "mov.f32 %f0, 0f3F800000;\nbra FAR;\n" + "add.f32 %f0, %f0, %f0;\n" * 640 + "FAR:\nadd.f32 %f0, %f0, %f0;"
    report, _ = timed(kernel(body))
    warm, cold, jumped = (
        report.timing.modelled(without_code() | times).cycles
        for times in ({}, {"code_miss": 70.0}, {"code_jump": 90.0})
    )
    assert cold - warm == 70, "the first line, and no other straight on"
    assert jumped - warm == 90


REMOTE = """.reg .b32 %r<8>; .shared .align 16 .b8 part[512];
mov.u32 %r1, part;
mapa.shared::cluster.u32 %r2, %r1, RANK;
LOADS
add.u32 %r3, %r4, %r5;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;"""


def test_an_sm_holds_as_many_ctas_as_registers_that_are_live_at_once_leave_room_for():
    """40 values that wait for one another's end: 64 registers a thread with what ptxas reserves, so two CTAs of 512."""
    values = "".join(f"ld.global.f32 %f{k}, [%rd1];\n" for k in range(40))
    body = "ld.param.u64 %rd1, [out];\n" + values + "".join(f"add.f32 %f0, %f0, %f{k};\n" for k in range(1, 40))
    held = []
    for text in ("", body):
        report, _ = timed(kernel(text, ".reg .f32 %f<40>; .reg .u64 %rd<2>;"), grid=1, block=512)
        held.append(report.timing.shape.resident)
    assert held == [4, 2]
    report, _ = timed(kernel(body, ".reg .f32 %f<40>; .reg .u64 %rd<2>;", directives=ONE_AN_SM), grid=1, block=512)
    assert report.timing.shape.resident == 1


def from_rank(rank: int, n: int, clusters: int = 1, size: int = 2, block: int = 32) -> float:
    """Cycles of CTAs that load n times 16 bytes a thread from the shared memory of one of their cluster."""
    loads = "ld.shared::cluster.v4.b32 {%r4, %r5, %r6, %r7}, [%r2];\n" * n
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    module = kernel(
        REMOTE.replace("RANK", str(rank)).replace("LOADS", loads),
        params="",
        directives=ONE_AN_SM if block == 512 else "",
    )
    report = device.launch(module, "k", (clusters * size, 1, 1), block, [], 0, (size, 1, 1))
    assert report.timing is not None
    return report.timing.modelled(without_code()).cycles


def test_what_another_cta_of_the_cluster_holds_comes_over_the_network_of_sms():
    """Both load from the first: it is near for that one, and the second decides."""
    far = from_rank(0, 128) - from_rank(0, 64)
    assert far == 64 * 32 * 16 / H200["cluster_bytes"]
    near = [from_rank(0, n, size=1) for n in (64, 128)]
    assert near[1] - near[0] < far / 4


def test_a_multicast_reads_once_what_two_ctas_get():
    """So that as many multicasts of one box take no longer than plain copies, where L2 is what bounds them."""
    plain, multicast = (copied(mask) for mask in (1, 3))
    assert multicast == pytest.approx(plain, rel=0.05)


def copied(mask: int, n: int = 32) -> float:
    """Cycles of a cluster of two whose first CTA copies a box of 16 KiB to those of `mask`, n times."""
    data = np.zeros((128, 32), np.uint32)
    ranks = bin(mask).count("1")
    body = f"""
    {init_barriers(1)} mov.u32 %r8, tile; mov.u32 %r9, bar; mov.u16 %h1, {mask};
    setp.eq.u32 %p1, %rank, 0;
    """
    load = """
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [%r8], [%map, {0, 0}], [%r9], %h1;"""
    expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], BYTES;".replace("BYTES", str(16384 * n))
    skip = f"setp.ge.u32 %p2, %rank, {ranks};"
    found = run(
        f"{body} {skip} @%p2 bra done; {expect} {load * n} {wait()} done: {CLUSTER_SYNC}",
        {"data": data}, {"map": tiled("data", data.shape, (128, 32))},
        block=1, grid=264, cluster=2, timing="h200", checks=False, sampled=True,
    )  # fmt: skip
    return found.clean().report.timing.modelled(without_code()).cycles


@pytest.mark.parametrize("columns", [4, 16])
def test_the_copy_engine_asks_for_each_row_of_a_box(columns):
    """Rows of 16 bytes and of 64 take a cycle each, whatever they hold: so a box of short ones is slow."""
    data = np.zeros((128, columns), np.uint32)
    load = "@%leader cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    n = 32
    body = f"""{init_barriers(1)} mov.u32 %r8, tile; mov.u32 %r9, bar;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {n * data.nbytes};
    {f"{load} [%r8], [%map, {{0, 0}}], [%r9];" * n} {wait()}"""
    found = run(
        body, {"data": data}, {"map": tiled("data", data.shape, (128, columns))},
        timing="b200", checks=False, sampled=True,
    )  # fmt: skip
    taken = found.clean().report.timing.replay(0).busy["tma"]
    assert taken == n * 128 * architecture("b200").values["tma_row"]


def claiming(n: int, grid: int) -> emulator.Report:
    """A CTA of one warp works, and asks for another's work until none is left."""
    body = f"""{init_barriers(1)} mov.u32 %r30, word; mov.u32 %r31, bar; mov.u32 %r32, 0;
    NEXT:
    {"ex2.approx.ftz.f32 %f0, %f0;" * n}
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    @%leader clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r30], [%r31];
    {wait("bar", "%r32")}
    xor.b32 %r32, %r32, 1;
    ld.shared.b128 %q0, [word];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q0;
    @%p1 bra NEXT;"""
    arrays = {"out": np.zeros(1, np.uint32)}
    return run(body, arrays, grid=grid, timing="b200", checks=False, directives=ONE_AN_SM).clean().report


def test_work_that_is_claimed_from_clusters_that_have_not_started_is_modelled():
    """Each is recorded with its own work, and an SM starts once: two pieces are less than two CTAs."""
    gpu = architecture("b200")
    timing = claiming(100, 3).timing
    assert timing.modelled().forced == 0
    one, two = (claiming(100, n).timing.modelled() for n in (gpu.multiprocessors, 2 * gpu.multiprocessors))
    work = 100 * gpu.values["mufu_latency"]
    assert work < two.cycles - one.cycles < one.cycles - gpu.values["cta_start"] + work / 10


DRAWS = """
    mov.u32 %r0, %ctaid.x;
    shl.b32 %r1, %r0, 5;
    cvt.u64.u32 %rd3, %r1;
    ld.param.u64 %rd0, [out];
    add.u64 %rd1, %rd0, 4096;
    add.u64 %rd0, %rd0, %rd3;
again:
    atom.global.inc.u32 %r2, [%rd1], 11;
    st.global.u32 [%rd0], %r2;
    add.u64 %rd0, %rd0, 4;
    setp.lt.u32 %p0, %r2, 12;
    add.u32 %r3, %r3, 1;
    setp.lt.and.u32 %p0, %r3, 8, %p0;
    @%p0 bra again;
"""


@pytest.mark.parametrize("counted", [True, False])
def test_where_few_run_ctas_draw_what_they_would_if_all_drew_in_turns(counted: bool) -> None:
    registers = ".reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .pred %p0;"
    device = emulator.Device(timing="h200", sampled=counted)
    out = device.alloc(8192, "out", zeroed=True)
    device.counter = out.address + 4096
    device.launch(kernel(DRAWS, registers), "k", 4, 1, [out.address])
    drawn = device.read(out.address, 128).view(np.uint32).reshape(4, 8)
    left = int(device.read(out.address + 4096, 4).view(np.uint32)[0])
    if counted:  # a number of each turn, no two the same, and not of one place in all turns
        assert [sorted(drawn[:, turn]) for turn in range(3)] == [[4 * turn + c for c in range(4)] for turn in range(3)]
        assert len({int(n) % 4 for n in drawn[0, :3]}) > 1
        assert left == 0
    else:
        assert sorted(int(n) for n in drawn[0]) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_product_of_a_pair_keeps_both_tensor_pipes_busy():
    """Of a DSL's GEMM by pairs: each SM's is busy for as long as the products of the pair take."""
    device = emulator.Device(profile="lenient", timing="b200")
    report, _ = execute("dsl_gemm_pair_n256_store", device)
    replayed = report.timing.replay(0, traced=True)
    shapes = [operation.place for operation in replayed.operations if operation.cause == "tensor"]
    assert set(shapes) == {256 << 16 | 256}
    assert replayed.busy["tensor"] == len(shapes) * 128  # N / 2 cycles; busy is of an SM


def test_clusters_of_eight_go_where_a_gpc_has_room():
    """15 of them at once, where 132 SMs would hold 16."""
    one, most, more = (from_rank(0, 64, clusters=n, size=8, block=512) for n in (1, 15, 16))
    assert one == most
    assert more == 2 * one
    assert from_rank(0, 64, clusters=31, size=4, block=512) < from_rank(0, 64, clusters=32, size=4, block=512)


def test_clusters_share_sms_that_hold_two_ctas():
    few, twice = (from_rank(0, 64, clusters=n, size=2, block=128) for n in (66, 132))
    assert few < twice < 2 * few


STORE = """.reg .u64 %rd<4>; .reg .b32 %r<4>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r1, %r1, %r2, %r3;
mul.wide.u32 %rd2, %r1, 4;
add.s64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r1;"""


def test_nothing_else_changes():
    module = kernel(STORE)
    report, out = timed(module, grid=64)
    plain = emulator.Device()
    buffer = plain.alloc(4 * 64 * 32, "out")
    other = plain.launch(module, "k", 64, 32, [buffer.address])
    assert other.timing is None
    assert report.findings == other.findings
    assert report.stats["warp_instructions"] == other.stats["warp_instructions"]
    assert (out == plain.read(buffer.address, buffer.nbytes)).all()


def test_sampled_runs_only_what_is_looked_at():
    module = kernel(STORE)
    whole, _ = timed(module, grid=64)
    report, out = timed(module, grid=64, sampled=True)
    written = np.flatnonzero(out.view(np.uint32)[::32])
    assert {0, *written.tolist()} == {*sampled(64), 1}  # and the second, for what neighbours read together
    assert report.timing.modelled() == whole.timing.modelled()
    with pytest.raises(ValueError, match="for a device with timing"):
        emulator.Device(sampled=True)


def test_what_plain_stores_write_is_known():
    """Their address is wider than their value."""
    store = """
        ld.param.u64 %rd1, [out];
        mov.u32 %r0, %tid.x;
        mul.wide.u32 %rd2, %r0, 4;
        add.s64 %rd1, %rd1, %rd2;
        st.global.u32 [%rd1], %r0;"""
    report, _ = timed(kernel(store, registers=".reg .b64 %rd<3>; .reg .b32 %r<1>;"))
    (cluster,) = report.timing.clusters
    assert (list(cluster["written"].values()), cluster["read"]) == ([128], {})
    assert list(report.timing.written.values()) == [128]


def test_a_line_that_was_read_before_is_not_waited_for_as_memory_is():
    def twice(apart: int) -> float:
        body = f"""
            ld.param.u64 %rd1, [out];
            ld.global.u64 %rd2, [%rd1];
            add.s64 %rd3, %rd1, %rd2;
            ld.global.u64 %rd4, [%rd3+{apart}];
            add.s64 %rd5, %rd4, %rd4;"""
        module = kernel(body, registers=".reg .b64 %rd<6>;")
        return timed(module, grid=4)[0].timing.modelled(without_code()).cycles

    # Memory has the other line; a byte is asked for by all CTAs, so that each of them waits for all of its latency.
    assert twice(128) - twice(8) == pytest.approx(H200["hbm_latency"], abs=10)
    assert twice(16) == twice(8)


def test_what_l2_answers_does_not_wait_for_what_memory_has_been_asked_for():
    """A line that was read before waits for L2, which has its part of the copies, and not until memory has brought
    each CTA's own 32 KB."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 16384, [%r4];"
    body = f"""{BULK.replace("%rd<4>", "%rd<9>")}
        ld.param.u64 %rd3, [table];
        mul.wide.u32 %rd2, %r1, 32768;
        add.s64 %rd2, %rd2, %rd1;
        ld.global.u64 %rd5, [%rd3];
        add.s64 %rd6, %rd3, %rd5;
        mbarrier.init.shared::cta.b64 [%r4], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 32768;
        {load * 2}
        ld.global.u64 %rd7, [%rd6];
        add.s64 %rd8, %rd7, %rd7;"""
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    data = device.alloc(132 * 32768, "data", zeroed=True)
    table = device.alloc(128, "table", zeroed=True)
    module = kernel(body, params=".param .u64 out, .param .u64 table")
    timing = device.launch(module, "k", 132, 1, [data.address, table.address]).timing
    assert timing is not None
    waits = timing.replay(0, without_code(), traced=True).waits
    (again,) = [wait.end - wait.start for wait in waits if wait.cause == "memory"][1:]
    assert again == pytest.approx(132 * 32768 / H200["l2_bytes"] + H200["l2_latency"], rel=0.1)
    assert again < 0.7 * 132 * 32768 / H200["hbm_bytes"]


def test_the_clock_falls_with_products_and_with_what_memory_moves():
    gpu = architecture("h200")
    rate, nominal = gpu.times["hbm_bytes"].value, gpu.clock_mhz.value
    assert clock(gpu, 0.0, 0.0) == pytest.approx(nominal, rel=0.003)
    assert clock(gpu, 1.0, 0.0) == pytest.approx(gpu.power_clock_mhz.value)
    # As 62 calls had it on an H200: decode that memory bounds, and prefill at 64 and 256.
    assert clock(gpu, 0.2, 0.65 * rate) == pytest.approx(1773, rel=0.02)
    assert clock(gpu, 0.52, 0.05 * rate) == pytest.approx(1775, rel=0.02)
    assert clock(gpu, 0.9, 0.0) == pytest.approx(1627, rel=0.02)


BULK_STORE = (
    BULK
    + """
mul.lo.u32 %r2, %r2, LANE;
cvt.u64.u32 %rd2, %r2;
add.s64 %rd1, %rd1, %rd2;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;"""
)


@pytest.mark.parametrize(("lane", "stores"), [(0, 1), (16, 32)])
def test_a_bulk_store_of_a_whole_warp_is_one_for_lanes_of_equal_operands(lane, stores):
    """As ptxas makes it: a loop that takes lanes of equal operands together. Public epilogues have a warp issue it."""
    report, _ = timed(kernel(BULK_STORE.replace("LANE", str(lane))), grid=4, checks=False)
    assert sum(report.timing._recorder.clusters[0]["written"].values()) == 16 * stores


@pytest.mark.parametrize(("copy", "nbytes"), [("8", 256), ("16", 512), ("16, 8", 256), ("16, 0", 0)])
def test_a_non_bulk_copy_reads_what_its_sizes_say(copy: str, nbytes: int) -> None:
    """A source of half a copy's bytes is half of them, one of none is none."""
    size, _, source = copy.partition(", ")
    body = f"""ld.param.u64 %rd1, [out]; mov.u32 %r1, %laneid; mul.wide.u32 %rd2, %r1, {size};
add.s64 %rd1, %rd1, %rd2; mov.u32 %r2, stage;
mad.lo.u32 %r3, %r1, {size}, %r2;
cp.async.{"cg" if size == "16" else "ca"}.shared.global [%r3], [%rd1], {size}{", " + source if source else ""};
cp.async.wait_all;"""
    device = emulator.Device(timing="h200", checks=False)
    data = device.alloc(512, "data", zeroed=True)
    timing = device.launch(
        kernel(body, ".reg .b32 %r<4>; .reg .b64 %rd<3>; .shared .align 16 .b8 stage[512];"), "k", 1, 32, [data.address]
    ).timing
    assert timing is not None
    asked = sum(timing._recorder.clusters[0]["read"].values())
    assert asked == nbytes


def test_memory_keeps_its_rate_when_the_clock_falls():
    """So that it moves more in a cycle, of which there are fewer a second."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 8192, [%r4];"
    body = BULK_LOADS.replace("CTA", "8192").replace("LOADS", load).replace("BYTES", "8192")
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    out = device.alloc(8192 * 132, "out", zeroed=True)
    timing = device.launch(kernel(body), "k", 132, 1, [out.address]).timing
    assert timing is not None
    cycles = []
    for power in (1900.0, 1200.0):
        gpu = architecture("h200")
        timing.architecture = replace(gpu, power_clock_mhz=replace(gpu.power_clock_mhz, value=power))
        said = timing.modelled()
        cycles.append((said.cycles, said.clock_mhz))
    (high, fast), (low, slow) = cycles
    assert high - low == pytest.approx(8192 * 132 / H200["hbm_bytes"] * (fast - slow) / 1980, rel=0.1)


def test_what_hardly_uses_memory_is_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its clock is below the nominal one: memory's own changes nothing of it."""
    replays: list[int] = []
    replay = LaunchTiming.replay
    monkeypatch.setattr(LaunchTiming, "replay", lambda *of, **how: replays.append(1) or replay(*of, **how))
    report, _ = timed(kernel("ex2.approx.ftz.f32 %f0, %f0;" * 4000), grid=4, gpu="h200", checks=False)
    assert report.timing.modelled().clock_mhz < 1980
    assert len(replays) == 1


def test_copies_of_no_bytes_are_modelled():
    assert loaded(0, size=0).from_hbm == 0


HANDOVER = """.reg .u64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 8 .b64 bar;
mov.u32 %r1, bar;
mov.u32 %r2, %tid.x;
setp.eq.u32 %p1, %r2, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 32;
bar.sync 0;
setp.lt.u32 %p2, %r2, 32;
@!%p2 bra waits;
mov.f32 %f0, 0f3F800000;
CHAIN
mbarrier.arrive.shared::cta.b64 _, [%r1];
bra done;
waits:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0;
@!%p3 bra waits;
done:"""


@pytest.fixture(scope="module")
def handover() -> Timeline:
    body = HANDOVER.replace("CHAIN", "ex2.approx.ftz.f32 %f0, %f0;\n" * 100)
    report, _ = timed(kernel(body), block=64)
    assert report.ok
    replayed = report.timing.replay(0, without_code(), traced=True)
    assert replayed.forced == 0
    timeline = Timeline(replayed, without_code())
    timeline.sources = report.timing.sources
    return timeline


def test_a_wait_names_who_ended_it(handover):
    (wait,) = [w for w in handover.waits if w.cause == "mbarrier"]
    assert (wait.warp, wait.by) == (1, ~0)
    assert 100 * H200["mufu_latency"] < wait.end - wait.start < 110 * H200["mufu_latency"]


def test_the_critical_path_leads_through_the_one_who_is_waited_for(handover):
    links = handover.critical_path()
    assert links[0].end == handover.cycles
    assert {link.warp for link in links} == {0, 1}
    assert all(later.start <= earlier.end for earlier, later in itertools.pairwise(links))
    assert next(iter(handover.shares(links))) == "mufu"


def test_events_are_what_trace_viewers_take(handover):
    events = json.loads(json.dumps(handover.events(1980.0, handover.sources)))
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert all(e["dur"] >= 0 and e["ts"] >= 0 and e["name"] for e in spans)
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {"CTA 0", "warp 0, computes", "warp 1, computes", "critical path"}
    waits = [e for e in spans if e["name"].startswith("waits at the mbarrier")]
    assert [e["args"]["for"] for e in waits] == ["warp 0 of CTA 0, which computes"]
    tracks = {(e["pid"], e["tid"]) for e in spans if e["name"] == RUNNING}
    for track in tracks:  # no two spans of a warp overlap
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == track)
        assert all(round(1e3 * a[1]) <= round(1e3 * b[0]) for a, b in itertools.pairwise(own))


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_has_a_source_and_the_core_knows_it(name):
    gpu = architecture(name)
    assert all(c.source and c.within.endswith("%") for c in gpu.times.values())
    timed(kernel(chain("add.f32", 1)), gpu=name)


def test_constants_are_all_that_the_core_wants_and_no_other():
    report, _ = timed(kernel(chain("add.f32", 1)))
    with pytest.raises(ValueError, match="that the timing model does not have"):
        report.timing.modelled({"warp_speed": 9.0})
    with pytest.raises(ValueError, match="no value for the constant fma_latency"):
        report.timing._recorder.replay(
            _core.Program(b"", b"", b"", 0, 0, 0, 0, []), [0], {"fma_interval": 1.0}, 1, 1, 0, 0, 0, False
        )


def test_an_unknown_gpu_is_refused():
    with pytest.raises(ValueError, match="'h300' is not one of h200, h100, b200, gb200, gb300"):
        emulator.Device(timing="h300")
