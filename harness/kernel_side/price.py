"""What decode takes on a Hopper GPU by each shape, in so many splits or with balanced ones: what choice compares.

By sizes alone, in microseconds. The constants, in paces.py, are fitted by `python -m tools.refit` to calls that
fmha.harness.bench.runs.swept timed in every choice; it also tells how far the cheapest is from the fastest.
harness/worker/devices/native/price.hpp is the same in C++, to the bit: nothing here is but + - * / and a square root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from fmha.harness.kernel_side.paces import Pace, Rates
from fmha.harness.kernel_side.params import sm90_launch

MULTIPROCESSORS: Final = 132  # of an H100 and of an H200
PART_KEYS: Final = 128  # that a CTA has at least, with balanced splits
MOST_SPLITS: Final = 128
TURNS: Final = 4  # of CTAs that splits may have,
TURNS_APART: Final = 2  # or where entries differ: behind so many, balanced ones end sooner
BALANCED: Final = -1  # in the place of a number of splits
MOST_FOR_A_WARP: Final = 16  # splits whose merge one warp takes, of which so many parts are in flight,
IN_FLIGHT: Final = 8
MANY_IN_FLIGHT: Final = 32  # or so many of four warps
COMBINE_CTAS: Final = 4  # that a multiprocessor holds
UNKNOWN: Final = 0.0  # in the place of a mean: as likely one entry is far longer than all others as not
LIKELY: Final = (0.15, 0.6)


@dataclass(frozen=True, slots=True)
class Decode:
    """What decides of a call: planes are K/V heads of batch entries, `rows` those of one, `keys` of the longest."""

    head_dim: int
    planes: int
    rows: int
    keys: int
    mean: float = 1.0  # of the planes' keys, as a part of the longest's; UNKNOWN where they differ on the device


def call_us(of: Decode, asked: int, splits: int, pace: Pace, rates: Rates) -> float:
    """The call's time as in a replay of a graph; `splits` BALANCED where the tiles of all planes are divided evenly.
    `pace` is that of the kernel which does so."""
    if of.mean == UNKNOWN:
        few, many = (call_us(replace(of, mean=mean), asked, splits, pace, rates) for mean in LIKELY)
        return math.sqrt(few * many)
    mean, launch = of.mean, sm90_launch(of.head_dim, asked)
    row_tiles, key_tiles = -(-of.rows // launch.rows) * of.planes, -(-of.keys // launch.keys)
    slots = MULTIPROCESSORS * launch.ctas_per_sm
    if splits == BALANCED:
        tiles = max(mean * key_tiles * of.planes / slots, PART_KEYS / launch.keys)
        ctas, turns = min(slots, row_tiles * key_tiles), 1.0
        more = of.planes / slots * rates.further
        parts = slots / of.planes + 1.0
    else:
        tiles = float(-(-key_tiles // splits))
        ctas = row_tiles * splits
        # CTAs of a further turn begin as others end, those of short planes sooner; some have no keys.
        turns = max(1.0, ctas / slots * mean) if mean < 1.0 else float(-(-ctas // slots))
        more = max(0.0, ctas / slots - 1.0) * rates.empty if mean < 1.0 else 0.0
        parts = float(splits)
    alone = ctas <= MULTIPROCESSORS or launch.ctas_per_sm == 1
    each = (pace.around + tiles * (pace.tile if alone else pace.together)) * turns + more
    used = min(1.0, ctas / MULTIPROCESSORS)
    read = rates.lead + mean * of.planes * of.keys * of.head_dim * 4 / (rates.memory * math.sqrt(used))
    time = _together(each, read)
    if splits == 1:
        return rates.launch + time
    rows = of.planes * of.rows
    many = splits > MOST_FOR_A_WARP and rows <= COMBINE_CTAS * MULTIPROCESSORS
    of_parts = -(-parts // (MANY_IN_FLIGHT if many else IN_FLIGHT))
    moved = parts * rows * of.head_dim * rates.part_bytes / rates.cache
    return rates.launch + time + rates.merge + of_parts * rates.merge_turn + moved


def _together(a: float, b: float) -> float:
    """Nearly the longer of two times that overlap: the fourth root of the sum of their fourth powers."""
    a, b = a * a, b * b
    return math.sqrt(math.sqrt(a * a + b * b))


def most_splits(of: Decode, asked: int) -> int:
    """Those whose CTAs take so many turns on the GPU at most; one where even planes are more."""
    launch = sm90_launch(of.head_dim, asked)
    tiles, ctas = -(-of.keys // launch.keys), -(-of.rows // launch.rows) * of.planes
    turns = TURNS if of.mean == 1.0 else TURNS_APART
    return max(1, min(turns * MULTIPROCESSORS * launch.ctas_per_sm // ctas, tiles, MOST_SPLITS))


def splits_to_try(of: Decode, asked: int) -> Iterator[int]:
    """Of numbers that leave the longest split as long the least, most_splits at most."""
    tiles, room = -(-of.keys // sm90_launch(of.head_dim, asked).keys), most_splits(of, asked)
    yield 1
    splits = 2
    while splits <= room:
        yield splits
        longest = -(-tiles // splits)
        splits = max(splits + 1, -(-tiles // (longest - 1))) if longest > 1 else room + 1
