"""What a call takes on a B200 by a variant of so many query rows a CTA, in so many splits: what choice compares.

By sizes alone. The constants are what the timing model says of the kernels, in microseconds; of a B200 they were not
measured. docs/journal/2026-11-28-b200-decode.md has how far the choice is from an exhaustive search under that model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fmha.harness.contract.protocol import LaunchShape
from fmha.harness.kernel_side.params import (
    COMBINE_ROWS,
    SM100_FEW_ROWS,
    SM100_PAIRS,
    partial_f16,
    sm100_ctas_per_sm,
    sm100_pair_shape,
    sm100_prefill_shape,
    sm100_shape,
)


@dataclass(frozen=True, slots=True)
class PricedGpu:
    """What counts of a GPU. Rates are bytes a microsecond."""

    multiprocessors: int
    memory: float
    cache: float  # L2, as much as a combine kernel gets of it
    clock: float  # MHz
    power_clock: float  # of a tensor pipe that is always busy; else power goes with the work and the cube of the clock


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a forward kernel: what a CTA takes before and after its tiles, and what a tile takes."""

    around: float
    tile: float  # of one CTA on a multiprocessor
    together: float  # of each of those that it holds, where it holds more than one
    tensor: float  # that the tensor pipe works of it
    again: float  # around the tiles of a further row tile, of the same CTA where CTAs stay
    masked: float = 0.0  # of a row tile under a mask, besides
    late: float = 0.0  # under a mask, the part of the longest row tile by which the last CTA ends late


@dataclass(frozen=True, slots=True)
class Merge:
    """Of a combine kernel: how a team divides a row, and what it takes."""

    suffix: str  # of the entry
    warps: int
    columns: int  # of a slab, at most
    in_flight: tuple[int, int]  # parts, of a thread: in fp32 and in f16
    ctas_per_sm: int
    around: float
    turn: float  # of parts in flight
    wave: float  # of as many CTAs as the GPU holds, more than if it holds few

    def slabs(self, head_dim: int) -> int:
        """Into how many parts of columns a row is divided."""
        return -(-head_dim // self.columns)

    def ctas(self, head_dim: int, rows: int, planes: int) -> int:
        """Of `rows` rows a plane."""
        return -(-rows * self.warps // COMBINE_ROWS) * self.slabs(head_dim) * planes

    def parts(self, head_dim: int) -> int:
        """Splits that are read side by side."""
        return self.warps * 32 * 8 // min(self.columns, head_dim)


B200: Final = PricedGpu(multiprocessors=148, memory=7.26e6, cache=6e6, clock=1845, power_clock=1200)
# By head_dim and the rows that a variant of fewer than the head_dim's own has; 0 for these.
PACES: Final[Mapping[tuple[int, int], Pace]] = {
    (64, 0): Pace(1.8, 1.10, 1.10, 0.28, 2.5, masked=0.8, late=0.6),
    (64, 64): Pace(1.6, 0.67, 0.93, 0.28, 1.6),
    (64, 32): Pace(1.4, 0.58, 0.80, 0.28, 1.4),
    (64, 256): Pace(3.6, 1.147, 1.147, 0.555, 0.87, masked=1.3),
    (128, 0): Pace(2.2, 1.10, 1.10, 0.56, 3.1, masked=0.8, late=0.6),
    (128, 64): Pace(2.0, 0.73, 0.73, 0.56, 2.0),
    (128, 32): Pace(1.8, 0.66, 0.66, 0.56, 1.8),
    (128, 256): Pace(4.55, 1.141, 1.141, 1.11, 1.3, masked=1.73),
    (256, 0): Pace(2.6, 0.73, 0.73, 0.69, 2.6),
    (256, 64): Pace(2.0, 0.66, 0.66, 0.56, 2.0),
    (512, 0): Pace(2.3, 1.40, 1.40, 1.11, 2.3),
    (256, 256): Pace(4.5, 1.13, 1.13, 1.11, 1.6),
    (256, 128): Pace(2.9, 0.74, 0.74, 0.56, 1.2),
    (512, 128): Pace(3.6, 1.15, 1.15, 1.11, 1.6),
}
# Of the kernel for many rows, which has no splits,
PREFILL_ROWS: Final = sm100_prefill_shape(64).rows
PREFILL: Final = {(head_dim, PREFILL_ROWS): sm100_prefill_shape(head_dim) for head_dim in (64, 128)}
# and of the one of CTA pairs, by the rows of a row tile.
PAIRS: Final = {(head_dim, 2 * rows): sm100_pair_shape(head_dim, rows) for head_dim, rows in SM100_PAIRS}
BY_WARP: Final = Merge("", 1, 256, (3, 5), 8, 0.0, 0.72, 0.3)
BY_CTA: Final = Merge("_many", 4, 32, (5, 5), 5, 0.45, 0.4, 0.75)
MEMORY_AROUND: Final = 0.5  # of what is around a CTA's tiles, the part for which memory is idle
LAUNCH: Final = 0.2


@dataclass(frozen=True, slots=True)
class PlaneSizes:
    """What decides of a call. `rows` are those of a plane."""

    head_dim: int
    planes: int
    rows: int
    keys: int


def launch_shape(head_dim: int, asked: int) -> LaunchShape:
    """Of the variant that asks for so many rows."""
    made = head_dim, asked
    return PAIRS.get(made) or PREFILL.get(made) or sm100_shape(head_dim, "smem", asked)


def forward_us(gpu: PricedGpu, shape: PlaneSizes, asked: int, splits: int) -> float:
    """The forward kernel's time."""
    pace, tile = PACES[shape.head_dim, asked], launch_shape(shape.head_dim, asked)
    row_tiles = -(-shape.rows // tile.row_tile) * shape.planes
    key_tiles = -(-shape.keys // (tile.keys * tile.ctas))
    ctas, tiles = row_tiles * splits * tile.ctas, -(-key_tiles // splits)
    held = sm100_ctas_per_sm(shape.head_dim, asked)
    waves = math.ceil(ctas / (gpu.multiprocessors * held))
    beside = min(held, -(-ctas // gpu.multiprocessors))
    loop = tiles * max(pace.tile if beside == 1 else pace.together, beside * pace.tensor)
    read = shape.planes * shape.keys * shape.head_dim * 4 / gpu.memory
    used = min(1.0, ctas / gpu.multiprocessors)
    time = max(
        pace.around + waves * loop + (waves - 1) * pace.again, MEMORY_AROUND * pace.around + read / math.sqrt(used)
    )
    return _clocked(gpu, time, row_tiles * key_tiles * tile.ctas * pace.tensor)


def _clocked(gpu: PricedGpu, time: float, tensor: float) -> float:
    """At the clock that the tensor pipes' work leaves: `tensor` of all of them, in time at the nominal one."""
    busy = tensor / (gpu.multiprocessors * time)
    return time * max(1.0, gpu.clock / gpu.power_clock * math.cbrt(busy))


def row_tiles_us(gpu: PricedGpu, shape: PlaneSizes, heads: int, asked: int, windowed: bool) -> float:
    """The time of a launch without splits, as a mask has it, by a CTA a multiprocessor. A window is taken for a causal
    one, whose row tiles see fewer keys the earlier they are; `heads` are those of a plane."""
    pace, tile = PACES[shape.head_dim, asked], launch_shape(shape.head_dim, asked)
    tiles = []  # of keys, of each row tile of a plane
    for end in range(tile.rows, shape.rows + tile.rows, tile.rows):
        hidden = shape.rows // heads - -(-min(end, shape.rows) // heads) if windowed else 0
        tiles.append(-(-max(shape.keys - hidden, 1) // tile.keys))
    of_each = pace.again + pace.masked * windowed
    turns = len(tiles) * shape.planes / gpu.multiprocessors
    longest, shortest = of_each + max(tiles) * pace.tile, of_each + min(tiles) * pace.tile
    mean = (len(tiles) * of_each + sum(tiles) * pace.tile) * shape.planes / gpu.multiprocessors
    most: float = math.ceil(turns) * longest
    if windowed:
        most = min(most, mean + (math.ceil(turns) - turns) * shortest + pace.late * longest)
    time = max(0.0, pace.around - pace.again) + max(longest, most)
    return _clocked(gpu, time, sum(tiles) * shape.planes * pace.tensor)


def many_rows_pay(gpu: PricedGpu, shape: PlaneSizes, heads: int, windowed: bool, than: int) -> bool:
    """Whether the kernel for many rows takes less time than the six-warp kernel of `than` rows, without splits."""
    if (shape.head_dim, PREFILL_ROWS) not in PREFILL:
        return False
    many, six_warps = (row_tiles_us(gpu, shape, heads, asked, windowed) for asked in (PREFILL_ROWS, 0))
    if than:  # a mask leaves as much of its time as of that with the head_dim's own rows
        six_warps *= forward_us(gpu, shape, than, 1) / forward_us(gpu, shape, 0, 1)
    return many < six_warps


def merge_us(gpu: PricedGpu, shape: PlaneSizes, merge: Merge, splits: int) -> float:
    """A combine kernel's time: a thread's loads wait for each other, so that what L2 takes comes on top."""
    f16 = partial_f16(shape.head_dim, True)
    turns = -(-splits // (merge.parts(shape.head_dim) * merge.in_flight[f16]))
    filled = merge.ctas(shape.head_dim, shape.rows, shape.planes) / (gpu.multiprocessors * merge.ctas_per_sm)
    one = merge.around + turns * merge.turn
    waves = one + merge.wave * min(filled, 1.0) + (math.ceil(filled) - 1) * (one + merge.wave)
    return waves + splits * shape.planes * shape.rows * shape.head_dim * (2 if f16 else 4) / gpu.cache


def merge_of(gpu: PricedGpu, shape: PlaneSizes, splits: int) -> Merge:
    """The combine kernel that takes less time."""
    return min((BY_WARP, BY_CTA), key=lambda merge: merge_us(gpu, shape, merge, splits))


def call_us(gpu: PricedGpu, shape: PlaneSizes, asked: int, splits: int) -> float:
    """The call's time as in a replay of a graph."""
    merge = merge_us(gpu, shape, merge_of(gpu, shape, splits), splits) if splits > 1 else 0.0
    return LAUNCH + forward_us(gpu, shape, asked, splits) + merge


def rows_of(head_dim: int, pairs: bool = True) -> tuple[int, ...]:
    """The rows that variants of a head_dim ask for; of CTA pairs as well, but for a call that they do not know."""
    of_pairs = (rows for of, rows in PAIRS if of == head_dim and pairs)
    return (0, *(rows for of, rows in SM100_FEW_ROWS if of == head_dim), *of_pairs)


def splits_to_try(gpu: PricedGpu, shape: PlaneSizes, asked: int) -> Iterator[int]:
    """Of those with as long a longest split the most, while the GPU holds all CTAs at once: the CTAs with less end
    sooner and leave memory to the others. And as many as leave each CTA its multiprocessor."""
    tile = launch_shape(shape.head_dim, asked)
    tiles = -(-shape.keys // (tile.keys * tile.ctas))
    ctas = -(-shape.rows // tile.row_tile) * shape.planes * tile.ctas
    room = max(1, min(gpu.multiprocessors * sm100_ctas_per_sm(shape.head_dim, asked) // ctas, tiles))
    alone = gpu.multiprocessors // ctas
    for splits in range(1, room + 1):
        if splits in (alone, room) or -(-tiles // splits) != -(-tiles // (splits + 1)):
            yield splits


def best_of(gpu: PricedGpu, shape: PlaneSizes, pairs: bool = True) -> tuple[int, int]:
    """Rows that are asked for, and splits."""
    found = [(asked, splits) for asked in rows_of(shape.head_dim, pairs) for splits in splits_to_try(gpu, shape, asked)]
    return min(found, key=lambda item: call_us(gpu, shape, *item))
