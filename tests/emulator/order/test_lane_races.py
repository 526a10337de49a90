"""lane-race: what orders the lanes of a warp that share memory, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.device import SCHEDULES
from tests.emulator.clusterlab import run
from tests.emulator.micro import run_micro

# %mine and %next: a word of each lane, and the next lane's.
WORDS = """
.reg .b32 %base, %mine, %next;
mov.b32 %base, tile;
shl.b32 %mine, %lane, 2;
add.u32 %next, %mine, 4;
and.b32 %next, %next, 127;
add.u32 %mine, %mine, %base;
add.u32 %next, %next, %base;
"""
PUT, TAKE = "st.shared.b32 [%mine], %lane;", "ld.shared.b32 %r1, [%next];"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [tile+1024];"
WAIT = "{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [tile+1024], 0; @!%p1 bra W; }"
OF_ALL = "@%first mbarrier.init.shared::cta.b64 [tile+1024], 32; bar.sync 0;"
BYTES = "add.u32 %r5, %base, %lane; xor.b32 %r6, %r5, 1; mov.b16 %h0, 7; st.shared.b8 [%r5], %h0;"
MATRIX = ".reg .b32 %row; shl.b32 %row, %lane, 4; mov.b32 %r4, tile; add.u32 %row, %row, %r4;"
STORE_ROWS = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%row], {%lane, %lane, %lane, %lane};"
OTHER_ROWS = "xor.b32 %row, %row, 16; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%row];"

EXCHANGES = {
    "nothing": (PUT + TAKE, True),
    "a shuffle": (PUT + "shfl.sync.idx.b32 %r2, %lane, 0, 31, -1;" + TAKE, True),
    "a vote": (PUT + "vote.sync.any.pred %p2, %off, -1;" + TAKE, True),
    "a proxy fence": (PUT + "fence.proxy.async.shared::cta;" + TAKE, True),
    "a fence": (PUT + "fence.acq_rel.cta;" + TAKE, True),
    "__syncwarp": (PUT + "bar.warp.sync -1;" + TAKE, False),
    "a barrier": (PUT + "bar.sync 0;" + TAKE, False),
    "an mbarrier": (OF_ALL + PUT + ARRIVE + WAIT + TAKE, False),
    "an arrival alone": (OF_ALL + PUT + ARRIVE + TAKE + WAIT, True),
    "a wait for what came before": (OF_ALL + ARRIVE + PUT + WAIT + TAKE, True),
    "the lane's own word": (PUT + "ld.shared.b32 %r1, [%mine];", False),
    "bytes of one word, its own": (BYTES + "ld.shared.b8 %h1, [%r5];", False),
    "bytes of one word, a neighbour's": (BYTES + "ld.shared.b8 %h1, [%r6];", True),
    "volatile": ("st.volatile.shared.b32 [%mine], %lane; ld.volatile.shared.b32 %r1, [%next];", False),
    "volatile on one side": (PUT + "ld.volatile.shared.b32 %r1, [%next];", True),
    "a store after a load": (PUT + "bar.warp.sync -1;" + TAKE + PUT, True),
    "two loads": (PUT + "bar.warp.sync -1;" + TAKE + "ld.shared.b32 %r2, [%mine];", False),
    "matrices": (MATRIX + STORE_ROWS + OTHER_ROWS, True),
    "matrices and __syncwarp": (MATRIX + STORE_ROWS + "bar.warp.sync -1;" + OTHER_ROWS, False),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("body", "race"), EXCHANGES.values(), ids=EXCHANGES)
def test_what_orders_lanes(body: str, race: bool, schedule: str) -> None:
    report, _, _ = run_micro(WORDS + body, "barrier", 32, schedule=schedule)
    assert {f.rule for f in report.findings} == ({"lane-race"} if race else set())
    lenient, _, _ = run_micro(WORDS + body, "barrier", 32, schedule=schedule, profile="lenient")
    assert not lenient.findings


# Lanes that add to one word do so in turn, the lowest first.
LAST_TAKES = "setp.eq.u32 %p3, %lane, 31; @%p3 ld.shared.b32 %r1, [%base];"
FIRST_TAKES = "setp.eq.u32 %p3, %lane, 0; @%p3 ld.shared.b32 %r1, [%next];"


def add(how: str, at: str = "tile+1024") -> str:
    return f"atom.{how}.shared.add.u32 %r2, [{at}], 1;"


FENCE = "fence.acq_rel.cta;"
IN_TURN = {
    "acq_rel": (add("acq_rel.cta") + LAST_TAKES, False),
    "fences": (FENCE + add("relaxed.cta") + FENCE + LAST_TAKES, False),
    "fences of device scope": ("membar.gl;" + add("relaxed.gpu") + "membar.gl;" + LAST_TAKES, False),
    "release, then a fence": (add("release.cta") + FENCE + LAST_TAKES, False),
    "a fence, then acquire": (FENCE + add("acquire.cta") + LAST_TAKES, False),
    "twice": (add("acq_rel.cta") + PUT + add("acq_rel.cta") + LAST_TAKES, False),
    "a lane of those before": (add("acq_rel.cta") + FIRST_TAKES, True),
    "relaxed": (add("relaxed.cta") + LAST_TAKES, True),
    "acquire alone": (add("acquire.cta") + LAST_TAKES, True),
    "release alone": (add("release.cta") + LAST_TAKES, True),
    "no fence behind": (FENCE + add("relaxed.cta") + LAST_TAKES, True),
    "no fence before": (add("relaxed.cta") + FENCE + LAST_TAKES, True),
    "each at its own place": (add("acq_rel.cta", "%mine+1024") + LAST_TAKES, True),
    "stored behind it": (add("acq_rel.cta") + PUT + LAST_TAKES, True),
    "not the lane that takes": ("setp.lt.u32 %p2, %lane, 31; @%p2 " + add("acq_rel.cta") + LAST_TAKES, True),
    "through a third lane": (
        "setp.lt.u32 %p2, %lane, 9; setp.gt.u32 %p1, %lane, 7; @%p2 "
        + add("acq_rel.cta")
        + "@%p1 "
        + add("acq_rel.cta", "tile+1028")
        + LAST_TAKES,
        False,
    ),
}


@pytest.mark.parametrize(("body", "race"), IN_TURN.values(), ids=IN_TURN)
def test_lanes_in_turn_at_one_place(body: str, race: bool) -> None:
    zero = "st.shared.b32 [%mine+1024], 0; bar.warp.sync -1;"
    report, _, _ = run_micro(WORDS + zero + PUT + body, "barrier", 32)
    assert {f.rule for f in report.findings} == ({"lane-race"} if race else set())


def test_rows_of_matrices_and_words_in_any_cta_of_a_cluster() -> None:
    """ldmatrix and stmatrix name rows by offset, loads and stores by the address in the cluster."""
    swap = (
        "mov.b32 %r0, tile; shl.b32 %r1, %tid, 4; add.u32 %r1, %r0, %r1; xor.b32 %r2, %r1, 16;"
        "setp.ne.u32 %p0, %rank, 1; @%p0 bra END; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r3, %r3, %r3, %r3};"
        "ORDER ld.shared.b32 %r4, [%r2]; END:"
    )
    body = "mov.b32 %r3, 0;" + swap
    arrays = {"out": np.zeros(4, np.uint32)}
    (found,) = run(body.replace("ORDER", ""), arrays, grid=2, cluster=2).report.findings
    assert found.rule == "lane-race"
    assert "of CTA 1, rank 1 of its cluster" in found.message
    run(body.replace("ORDER", "bar.warp.sync -1;"), arrays, grid=2, cluster=2).clean()


def met(*masks: int) -> str:
    """bar.warp.sync of these lanes, one after the other; the lanes that no mask names go on."""
    lines = [
        f"mov.b32 %r9, {mask:#x}; shr.u32 %r9, %r9, %lane; and.b32 %r9, %r9, 1; setp.ne.u32 %p5, %r9, 0;"
        f"@%p5 bar.warp.sync {mask:#x};"
        for mask in masks
    ]
    return " ".join(lines)


@pytest.mark.parametrize(
    ("masks", "race"),
    [
        ([0xFFFFFFFF], False),
        ([0x3], False),  # lanes 0 and 1 exchange
        ([0xFFFF0003], False),
        ([0x1, 0x2], True),
        ([0xFFFFFFFE], True),  # all but lane 0
        ([0x5, 0x6], False),  # lane 2 has met both, one after the other
        ([0x6, 0x5], True),  # it met lane 1 before lane 0, which knows of lane 1 now, but not lane 1 of it
        ([0x5, 0x50, 0x42, 0x3], False),
    ],
)
def test_lanes_that_have_met(masks: list[int], race: bool) -> None:
    """Lane 0 writes a word; some lanes meet; lane 1 reads it."""
    body = f"""
    setp.eq.u32 %p0, %lane, 0; setp.eq.u32 %p1, %lane, 1;
    @%p0 st.shared.b32 [tile], 1; {met(*masks)} @%p1 ld.shared.b32 %r1, [tile];
    """
    report, _, _ = run_micro(body, "none", 32)
    assert {f.rule for f in report.findings} == ({"lane-race"} if race else set())


def test_a_wait_does_not_undo_what_was_ordered() -> None:
    """An older release is no reason to forget a later bar.warp.sync."""
    body = """
    @%first mbarrier.arrive.shared::cta.b64 _, [bar];
    setp.eq.u32 %p2, %lane, 1; @%first st.shared.b32 [tile], 1; bar.warp.sync -1;
    { W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
    @%p2 ld.shared.b32 %r1, [tile];
    """
    report, _, _ = run_micro(body, "barrier", 32)
    assert not report.findings, report.findings
