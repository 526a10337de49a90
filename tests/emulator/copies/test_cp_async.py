"""Non-bulk cp.async: what lands, when it may be read, and its groups and mbarrier arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator.device import SCHEDULES, Schedule
from tests.emulator import matrix_rig as rig
from tests.emulator.micro import run_micro

RNG = np.random.default_rng(5)
SHARED = ".shared .align 128 .b8 smem[4096]; .shared .align 8 .b64 bars[4];"
SOURCE = RNG.integers(0, 256, 1024, dtype=np.uint8)

ADDRESSES = """
mov.u32 %r60, smem;
mad.lo.u32 %r61, %tid0, 16, %r60;
mad.wide.u32 %rd0, %tid0, 16, %p_x;
mad.wide.u32 %rd1, %tid0, 16, %p_out;
"""
COPY = "cp.async.cg.shared.global [%r61], [%rd0], 16;\n"
READ = "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r61];\nst.global.v4.b32 [%rd1], {%r0, %r1, %r2, %r3};\n"


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("limit", ["", "size", "ignore", "not-ignore"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bytes(size: int, limit: str, schedule: Schedule) -> None:
    """Lane l reads l % (size + 1) bytes under src-size, none where l is odd under ignore-src; the rest are zeros."""
    operand = {"": "", "size": ", %r5", "ignore": ", %p1", "not-ignore": ", !%p1"}[limit]
    body = (
        ADDRESSES
        + f"""
    mov.b32 %r0, 0xEEEEEEEE;
    st.shared.v4.b32 [%r61], {{%r0, %r0, %r0, %r0}};
    rem.u32 %r5, %lane0, {size + 1};
    and.b32 %r6, %lane0, 1;
    setp.eq.u32 %p1, %r6, 1;
    cp.async.ca.shared.global.L2::128B [%r61], [%rd0], {size}{operand};
    cp.async.commit_group;
    cp.async.wait_group 0;
    """
        + READ
    )
    out = rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED, schedule=schedule, seed=3)
    assert out.rules == []
    want = np.full((32, 16), 0xEE, np.uint8)
    for lane in range(32):
        n = {"": size, "size": lane % (size + 1), "ignore": size * (1 - lane % 2), "not-ignore": size * (lane % 2)}[
            limit
        ]
        want[lane, :size] = 0
        want[lane, :n] = SOURCE.reshape(-1, 16)[lane, :n]
    np.testing.assert_array_equal(out.buffers["out"].reshape(32, 16), want)


def test_offsets_and_generic_width() -> None:
    body = (
        ADDRESSES
        + """
    cvt.u64.u32 %rd2, %r61;
    cp.async.cg.shared::cta.global [%rd2+512], [%rd0+256], 16;
    cp.async.wait_all;
    ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r61+512];
    st.global.v4.b32 [%rd1], {%r0, %r1, %r2, %r3};
    """
    )
    out = rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED)
    assert out.rules == []
    np.testing.assert_array_equal(out.buffers["out"], SOURCE[256:768])


def test_ignored_source_is_not_read() -> None:
    body = (
        ADDRESSES + "setp.ge.u32 %p1, %lane0, 0;\ncp.async.cg.shared.global [%r61], [0], 16, %p1;\ncp.async.wait_all;\n"
    )
    assert rig.run(body + READ, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == []
    body = body.replace(", %p1;\ncp", ";\ncp")
    assert rig.run(body + READ, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == ["global-out-of-bounds"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cp.async.cg.shared.global [%r61+4], [%rd0], 16;", "misaligned"),
        ("cp.async.cg.shared.global [%r61], [%rd0+8], 16;", "misaligned"),
        ("cp.async.cg.shared.global [%r61+65536], [%rd0], 16;", "shared-out-of-bounds"),
        ("mov.u32 %r5, 17; cp.async.cg.shared.global [%r61], [%rd0], 16, %r5;", "cp-async-size"),
    ],
)
def test_faults(text: str, rule: str) -> None:
    assert rig.run(ADDRESSES + text, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == [rule]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_read_before_the_wait(schedule: Schedule) -> None:
    """A commit orders nothing; the wait does."""
    head, wait = ADDRESSES + COPY + "cp.async.commit_group;\n", "cp.async.wait_group 0;\n"
    clean = rig.run(head + wait + READ, {"x": SOURCE, "out": 512}, declarations=SHARED, schedule=schedule)
    assert clean.rules == []
    assert (
        "cp-async-in-flight"
        in rig.run(head + READ + wait, {"x": SOURCE, "out": 512}, declarations=SHARED, schedule=schedule).rules
    )


def test_data_does_not_land_early() -> None:
    head = ADDRESSES + "mov.b32 %r0, 0;\nst.shared.v4.b32 [%r61], {%r0, %r0, %r0, %r0};\n" + COPY
    late = rig.run(head + READ + "cp.async.wait_all;", {"x": SOURCE, "out": 512}, declarations=SHARED, schedule="late")
    assert not late.buffers["out"].any()


def test_copies_of_a_thread_into_the_same_words_come_in_any_order() -> None:
    for between, rules in (("", ["cp-async-in-flight"]), ("cp.async.wait_all;\n", [])):
        body = ADDRESSES + COPY + between + COPY + "cp.async.wait_all;\n"
        assert rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == rules


def _stages(pending: int) -> str:
    """Three groups of one copy; waits until `pending` are left, then reads the second one."""
    copies = "".join(
        f"cp.async.cg.shared.global [%r61+{512 * k}], [%rd0+{128 * k}], 16;\ncp.async.commit_group;\n" for k in range(3)
    )
    read = READ.replace("[%r61]", "[%r61+512]")
    return ADDRESSES + copies + f"cp.async.wait_group {pending};\n" + read + "cp.async.wait_all;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_groups(schedule: Schedule) -> None:
    for pending, rules in ((0, []), (1, []), (2, ["cp-async-in-flight"]), (3, ["cp-async-in-flight"])):
        out = rig.run(_stages(pending), {"x": SOURCE, "out": 512}, declarations=SHARED, schedule=schedule, seed=1)
        assert out.rules == rules
        if not rules:
            np.testing.assert_array_equal(out.buffers["out"], SOURCE[128:640])


def test_an_empty_group_counts() -> None:
    """Two commits after one copy: a wait for all but the last group covers the copy."""
    body = ADDRESSES + COPY + "cp.async.commit_group;\ncp.async.commit_group;\ncp.async.wait_group 1;\n" + READ
    assert rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == []
    body = ADDRESSES + COPY + "cp.async.commit_group;\ncp.async.wait_group 1;\n" + READ + "cp.async.wait_all;"
    assert rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == ["cp-async-in-flight"]


def test_uncommitted_copies_need_wait_all() -> None:
    for wait, rules in (("cp.async.wait_all;\n", []), ("cp.async.wait_group 0;\n", ["cp-async-in-flight"])):
        body = ADDRESSES + COPY + wait + READ + "cp.async.wait_all;"
        assert rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == rules


def test_groups_belong_to_lanes() -> None:
    """Odd lanes commit once more than even ones: a wait for one pending group leaves the even lanes' copy in flight."""
    body = (
        ADDRESSES
        + """
    and.b32 %r6, %lane0, 1;
    setp.eq.u32 %p1, %r6, 1;
    """
        + COPY
        + "cp.async.commit_group;\n@%p1 cp.async.commit_group;\ncp.async.wait_group 1;\n"
        + READ
    )
    assert rig.run(body + "cp.async.wait_all;", {"x": SOURCE, "out": 512}, declarations=SHARED).rules == [
        "cp-async-in-flight"
    ]
    body = body.replace("@%p1 ", "")
    assert rig.run(body, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == []


NEIGHBOUR = """
xor.b32 %r10, %tid0, 32;
mad.lo.u32 %r61, %r10, 16, %r60;
"""


@pytest.mark.parametrize("barrier", [True, False])
def test_other_warps_need_a_barrier(barrier: bool) -> None:
    sync = "bar.sync 0;\n" if barrier else ""
    body = ADDRESSES + COPY + "cp.async.wait_all;\n" + sync + NEIGHBOUR + READ
    out = rig.run(body, {"x": SOURCE, "out": 1024}, declarations=SHARED, block=(64, 1, 1))
    assert out.rules == ([] if barrier else ["cp-async-in-flight"])
    if barrier:
        np.testing.assert_array_equal(out.buffers["out"].reshape(2, 512)[::-1].reshape(-1), SOURCE)


def test_the_wait_precedes_the_barrier() -> None:
    """bar.sync alone does not order another thread's copy; nor does a wait after it."""
    body = ADDRESSES + COPY + "bar.sync 0;\ncp.async.wait_all;\n" + NEIGHBOUR + READ
    assert rig.run(body, {"x": SOURCE, "out": 1024}, declarations=SHARED, block=(64, 1, 1)).rules == [
        "cp-async-in-flight"
    ]


def test_overwriting_the_source() -> None:
    """Another warp writes what a copy reads."""
    body = (
        ADDRESSES
        + """
    setp.ge.u32 %p0, %tid0, 32;
    @%p0 bra $wait;
    cp.async.cg.shared.global [%r61], [%rd0], 16;
    WAIT
    $wait:
    bar.sync 0;
    @!%p0 bra $end;
    mov.b32 %r0, 0;
    st.global.b32 [%rd0+-512], %r0;
    $end:
    cp.async.wait_all;
    """
    )
    for wait, rules in (("cp.async.wait_all;", []), ("", ["cp-async-in-flight"])):
        got = rig.run(
            body.replace("WAIT", wait), {"x": SOURCE.copy(), "out": 16}, declarations=SHARED, block=(64, 1, 1)
        )
        assert got.rules == rules


MBARRIER = """
mov.u32 %r62, bars;
setp.eq.u32 %p0, %tid0, 0;
@%p0 mbarrier.init.shared.b64 [%r62], COUNT;
bar.sync 0;
setp.ge.u32 %p1, %tid0, 32;
@%p1 bra $consumer;
cp.async.cg.shared.global [%r61], [%rd0], 16;
ARRIVE
bra $end;
$consumer:
mbarrier.try_wait.parity.shared.b64 %p2, [%r62], 0;
@!%p2 bra $consumer;
xor.b32 %r10, %tid0, 32;
mad.lo.u32 %r61, %r10, 16, %r60;
"""


@pytest.mark.parametrize(
    ("arrive", "count", "rules"),
    [
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r62];", 32, []),
        # Without .noinc the arrival is balanced: the thread's own arrival still counts.
        ("cp.async.mbarrier.arrive.shared.b64 [%r62]; mbarrier.arrive.shared.b64 %rd9, [%r62];", 32, []),
        ("cp.async.mbarrier.arrive.shared.b64 [%r62];", 32, ["deadlock"]),
        ("mbarrier.arrive.shared.b64 %rd9, [%r62];", 32, ["cp-async-in-flight"]),
    ],
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_mbarrier(arrive: str, count: int, rules: list[str], schedule: Schedule) -> None:
    body = ADDRESSES + MBARRIER.replace("COUNT", str(count)).replace("ARRIVE", arrive) + READ
    body += "$end:\ncp.async.wait_all;"
    out = rig.run(body, {"x": SOURCE, "out": 1024}, declarations=SHARED, block=(64, 1, 1), schedule=schedule)
    assert out.rules == rules
    if not rules:
        np.testing.assert_array_equal(out.buffers["out"][512:], SOURCE[:512])


def test_an_exit_with_copies_in_flight() -> None:
    assert rig.run(ADDRESSES + COPY, {"x": SOURCE, "out": 512}, declarations=SHARED).rules == [
        "exit-with-work-in-flight"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp.async.cg.shared.global [%r61], [%rd0], 8", "cp-size of .cg is 16"),
        ("cp.async.ca.shared.global [%r61], [%rd0], 12", "4, 8 or 16"),
        ("cp.async.ca.global.shared [%r61], [%rd0]", "are expected"),
        ("cp.async.ca.shared.global [%r61], [%rd0], 16, 16, 16, 16", "are expected"),
        ("cp.async.wait_group %r1", "constant"),
        ("cp.async.ca.shared::cluster.global [%r61], [%rd0], 16", "in .shared"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(ADDRESSES + text + ";", {"x": SOURCE, "out": 4}, declarations=SHARED)


# Warp 1 copies every other word of `out`, of which thread 0 writes one.
SCATTERED = """
@%first st.global.b32 [%out+{word}], %zero;
{barrier}
mov.b32 %r1, tile;
mad.lo.u32 %r1, %lane, 4, %r1;
mad.wide.u32 %d0, %lane, 8, %out;
setp.eq.u32 %p1, %warp, 1;
@%p1 cp.async.ca.shared.global [%r1], [%d0], 4;
@%p1 cp.async.wait_all;
"""


@pytest.mark.parametrize(
    ("word", "barrier", "rules"), [(8 * 13, "", ["race"]), (8 * 13 + 4, "", []), (8 * 13, "bar.sync 0;", [])]
)
def test_a_race_with_one_of_the_words_copied_is_seen(word: int, barrier: str, rules: list[str]) -> None:
    report, _, _ = run_micro(SCATTERED.format(word=word, barrier=barrier), block=64)
    assert [f.rule for f in report.findings] == rules
