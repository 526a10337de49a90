"""What the machine remembers of each byte of shared memory: through accesses of every size, and for long."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.bulk_rig import tiled
from tests.emulator.clusterlab import init_barriers, run, wait
from tests.emulator.micro import run_micro

SIZES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v4.b32": 16}


def rules(body: str) -> list[str]:
    return [finding.rule for finding in run_micro(body, "none", 64)[0].findings]


def store(kind: str, offset: int, guard: str) -> str:
    value = {"v4.b32": "{%zero, %zero, %zero, %zero}", "b64": "%d0", "b16": "%h0", "b8": "%h0"}.get(kind, "%zero")
    return f"{guard} st.shared.{kind} [tile+{offset}], {value};\n"


BEGIN = "mov.b16 %h0, 0;\nmov.b64 %d0, 0;\nsetp.eq.u32 %p0, %thread, 0;\nsetp.eq.u32 %p1, %thread, 32;\n"


@pytest.mark.parametrize("second", SIZES)
@pytest.mark.parametrize("first", SIZES)
def test_a_race_is_seen_where_two_stores_overlap_and_nowhere_else(first: str, second: str) -> None:
    for offset in range(0, 32, SIZES[second]):
        body = BEGIN + store(first, 16 - SIZES[first], "@%p0") + store(second, offset, "@%p1")
        overlap = offset < 16 and offset + SIZES[second] > 16 - SIZES[first]
        assert rules(body) == ["race"] * overlap, offset


def test_a_store_to_all_of_what_was_divided_replaces_its_past() -> None:
    """The bytes that warp 1 wrote first are warp 0's after the barrier: warp 1 races with warp 0 alone."""
    body = BEGIN + store("b8", 3, "@%p1") + store("b16", 6, "@%p1") + "bar.sync 0;\n" + store("v4.b32", 0, "@%p0")
    for kind, offset in (("b8", 3), ("b16", 6), ("b32", 12)):
        assert rules(body + store(kind, offset, "@%p1")) == ["race"]
        assert rules(body + store(kind, offset, "@%p0")) == []


FILL = """
mov.b32 %r0, 0;
next:
and.b32 %r1, %r0, 4095;
shl.b32 %r1, %r1, 2;
mov.b32 %r2, tile;
add.s32 %r2, %r2, %r1;
@%first st.shared.b32 [%r2], %r0;
bar.sync 0;
add.s32 %r0, %r0, 1;
setp.lt.u32 %p0, %r0, ROUNDS;
@%p0 bra next;
"""


@pytest.mark.parametrize("rounds", [4096, 30000])
def test_what_many_operations_leave_behind_is_not_forgotten(rounds: int) -> None:
    """A past for every word, and for every word several that are gone."""
    fill = FILL.replace("ROUNDS", str(rounds)) + "setp.ge.u32 %p1, %thread, 32;\n"
    assert rules(fill) == []
    for word in (0, 1000, 4095):
        write = f"@%first st.shared.b32 [tile+{4 * word}], %r0;\n"
        read = "@%p1 ld.shared.b32 %r3, [tile+{}];\n"
        assert rules(fill + write + read.format(4 * (word ^ 1))) == []
        assert rules(fill + write + read.format(4 * word)) == ["race"]


@pytest.mark.parametrize("finer", [False, True])
@pytest.mark.parametrize("strided_warp", [0, 1])
@pytest.mark.parametrize("second", SIZES)
@pytest.mark.parametrize("first", SIZES)
def test_a_race_with_one_lane_of_a_strided_store_is_seen(
    first: str, second: str, strided_warp: int, finer: bool
) -> None:
    """Warp 0 runs first: the lanes' store is the earlier access, or the later. `finer`: lane 13 has written a byte."""
    size = SIZES[first]
    begin = BEGIN + f"setp.eq.u32 %p2, %warp, {strided_warp};\nsetp.eq.and.u32 %p3, %lane, 13, %p2;\n"
    for stride in {2 * size, 48, 512}:
        begin_here = begin + f"mov.b32 %r1, tile;\nmad.lo.u32 %r1, %lane, {stride}, %r1;\n"
        begin_here += "@%p3 st.shared.b8 [%r1], %h0;\n" * finer
        strided = store(first, 0, "@%p2").replace("tile+0", "%r1")
        for lane in (0, 13, 31):
            start, width = lane * stride, SIZES[second]
            ends = (start, start + size - 1, start + size + width - 1)  # overlapping, overlapping, mostly not
            for offset in {at // width * width for at in ends}:
                single = store(second, offset, "@%p1" if strided_warp == 0 else "@%p0")
                overlap = any(n * stride < offset + width and offset < n * stride + size for n in range(32))
                told = rules(begin_here + strided + single)
                assert set(told) == ({"race"} if overlap else set()), (stride, offset)


@pytest.mark.parametrize("kind", SIZES)
def test_a_race_of_two_strided_stores_is_seen(kind: str) -> None:
    begin = BEGIN + f"mov.b32 %r1, tile;\nmad.lo.u32 %r1, %lane, {2 * SIZES[kind]}, %r1;\nsetp.eq.u32 %p2, %warp, 1;\n"
    one, other = (store(kind, 0, guard).replace("tile+0", "%r1") for guard in ("@%warp0", "@%p2"))
    assert rules(begin + one + other) == ["race"]
    assert rules(begin + one + "bar.sync 0;\n" + other) == []


@pytest.mark.parametrize(("width", "first"), [(256, 64), (128, 96), (512, 0), (40, 8), (100, 48)])
def test_a_tensor_load_reads_its_box_and_nothing_else(width: int, first: int) -> None:
    """Rows of a whole block, of half and of two, and such as lie differently in every block."""
    data = np.zeros((24, width), np.uint32)
    rows, columns = range(3, 19), range(first, first + 32)
    places = [(r, c) for r in (2, 3, 10, 18, 19) for c in (first - 1, first, first + 31, first + 32) if 0 <= c < width]
    for row, column in places:
        body = f"""
        {init_barriers()} mov.u32 %r9, bar; mov.u32 %r8, tile;
        @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
        @%leader cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
            [%r8], [%map, {{{first}, 3}}], [%r9];
        setp.eq.u32 %p1, %tid, 32;
        @%p1 st.global.u32 [%data + {4 * (row * width + column)}], %tid;
        {wait()}
        """
        maps = {"map": tiled("data", data.shape, (16, 32))}
        found = run(body, {"data": data}, maps, block=64).rules
        assert found == ({"race"} if row in rows and column in columns else set()), (row, column)
