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
MOST_OF_A_TILE: Final = 64  # splits of one tile of keys each: the merge of more takes longer than a second tile
TURNS: Final = 4  # of CTAs that splits may have,
FEW_ROWS: Final = 1024  # of planes of so many rows at most; those of more have one
SHORT: Final = 0.2  # of the mean of entries that differ, a short one's keys
BALANCED: Final = -1  # in the place of a number of splits
MOST_FOR_A_WARP: Final = 16  # splits whose merge one warp takes, of which so many parts are in flight,
IN_FLIGHT: Final = 8
MANY_IN_FLIGHT: Final = 32  # or so many of four warps
COMBINE_CTAS: Final = 4  # that a multiprocessor holds
UNKNOWN: Final = 0.0  # in the place of a mean: one entry is the longest, and others have so many keys in the mean,
LIKELY: Final = (0.06, 0.45)  # as parts of the longest's


@dataclass(frozen=True, slots=True)
class Decode:
    """What decides of a call: planes are K/V heads of batch entries, `rows` those of one, `keys` of the longest."""

    head_dim: int
    planes: int
    rows: int
    keys: int
    mean: float = 1.0  # of the planes' keys, as a part of the longest's; UNKNOWN where they differ on the device
    entries: int = 1  # whose planes they are, as many of each


def call_us(of: Decode, asked: int, splits: int, pace: Pace, rates: Rates) -> float:
    """The call's time as in a replay of a graph; `splits` BALANCED where the tiles of all planes are divided evenly.
    `pace` is that of the kernel which does so."""
    if of.mean == UNKNOWN:
        few, many = (call_us(replace(of, mean=_mean_with(of, others)), asked, splits, pace, rates) for others in LIKELY)
        return math.sqrt(few * many)
    launch = sm90_launch(of.head_dim, asked)
    slots = MULTIPROCESSORS * launch.ctas_per_sm
    row_tiles, key_tiles = -(-of.rows // launch.rows) * of.planes, -(-of.keys // launch.keys)
    nbytes = of.mean * of.planes * of.keys * of.head_dim * 4

    def tile_us(ctas: float) -> float:
        return pace.tile if ctas <= MULTIPROCESSORS or launch.ctas_per_sm == 1 else pace.together

    def read_us(moved: float, ctas: float) -> float:
        return rates.lead + moved / (rates.memory * math.sqrt(min(1.0, ctas / MULTIPROCESSORS)))

    if splits == BALANCED:
        tiles = max(of.mean * key_tiles * of.planes / slots, PART_KEYS / launch.keys)
        ctas, parts = min(slots, row_tiles * key_tiles), slots / of.planes + 1.0
        each = pace.around + tiles * tile_us(ctas) + of.planes / slots * rates.further
        time = _together(each, read_us(nbytes, ctas))
    elif of.mean < 1.0:
        ctas, parts = row_tiles * splits, float(splits)
        each = _apart_us(of.mean, ctas, slots, float(-(-key_tiles // splits)), pace.around, tile_us(ctas))
        each += max(0.0, ctas / slots - 1.0) * rates.empty
        time = _together(each, read_us(nbytes, ctas))
    else:  # whole turns, and one of what is left
        ctas, parts = row_tiles * splits, float(splits)
        tiles, whole, rest = -(-key_tiles // splits), ctas // slots, ctas % slots
        time = 0.0
        for count, ctas_of_turn in ((whole, slots), (1, rest)):
            if count and ctas_of_turn:
                moved = nbytes / ctas * ctas_of_turn
                each = pace.around + tiles * tile_us(ctas_of_turn)
                time += count * _together(each, read_us(moved, ctas_of_turn))
    if splits == 1:
        return rates.launch + time
    rows = of.planes * of.rows
    many = splits > MOST_FOR_A_WARP and rows <= COMBINE_CTAS * MULTIPROCESSORS
    of_parts = -(-parts // (MANY_IN_FLIGHT if many else IN_FLIGHT))
    moved = parts * rows * of.head_dim * rates.part_bytes / rates.cache
    return rates.launch + time + rates.merge + of_parts * rates.merge_turn + moved


def _mean_with(of: Decode, others: float) -> float:
    """Of the planes' keys, where all entries but the longest have so many in the mean."""
    return (1.0 + (of.entries - 1) * others) / of.entries


def _apart_us(mean: float, ctas: int, slots: int, tiles: float, around: float, tile: float) -> float:
    """CTAs of entries that differ, the longest of which has so many tiles: the longest of what it takes, of the work of
    all, and, where there are more than places, of one of the mean that begins as a short one ends."""
    longest = around + tiles * tile
    busy = mean * (around + tiles * tile) * ctas / slots
    later = 2.0 * around + min(1.0, mean + SHORT * mean) * tiles * tile if ctas > slots else 0.0
    return _together(_together(longest, busy), later)


def _together(a: float, b: float) -> float:
    """Nearly the longer of two times that overlap: the fourth root of the sum of their fourth powers."""
    a, b = a * a, b * b
    return math.sqrt(math.sqrt(a * a + b * b))


def most_splits(of: Decode, asked: int) -> int:
    """Those whose CTAs take so many turns on the GPU at most; one where even planes are more."""
    launch = sm90_launch(of.head_dim, asked)
    tiles, ctas = -(-of.keys // launch.keys), -(-of.rows // launch.rows) * of.planes
    turns = TURNS if of.rows <= FEW_ROWS else 1
    most = min(tiles, max(MOST_OF_A_TILE, tiles // 2), MOST_SPLITS)
    return max(1, min(turns * MULTIPROCESSORS * launch.ctas_per_sm // ctas, most))


def splits_to_try(of: Decode, asked: int) -> Iterator[int]:
    """Of numbers that leave the longest split as long the least, most_splits at most."""
    tiles, room = -(-of.keys // sm90_launch(of.head_dim, asked).keys), most_splits(of, asked)
    yield 1
    splits = 2
    while splits <= room:
        yield splits
        longest = -(-tiles // splits)
        splits = max(splits + 1, -(-tiles // (longest - 1))) if longest > 1 else room + 1
