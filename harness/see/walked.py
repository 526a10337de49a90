"""The order in which the CTAs of the Hopper kernel draw row tiles, and CTAs that draw two which are looked at."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fmha.harness.kernel_side.launch import Call

_CACHED: Final = 16 << 20  # bytes: kCached and kCachedOfLast of Walk::divide, kernel/sm90/walk.cuh
_CACHED_OF_LAST: Final = 24 << 20
_APART: Final = 0.618  # as draw_in_turn of emulator/core/ptx/memory/atomics.cpp
_PAIRS: Final = 2
_LONGEST: Final = 8  # tiles of keys of a row tile that is looked at for what it overlaps, where there are such


@dataclass(frozen=True, slots=True)
class TileOrder:
    """Of the row tiles of a launch in which `ctas` draw: as Walk of kernel/sm90/walk.cuh has it."""

    row_tiles: int  # of a plane
    planes: int
    each: int = 1  # planes of a group
    before_last: int = 0  # planes of all groups but the last one

    @staticmethod
    def of(call: Call, row_tiles: int, ctas: int) -> TileOrder:
        """Without a window planes follow one another; else they come by groups, the last row tiles of a group first."""
        planes = call.planes.batch
        if call.window_left is None and call.window_right is None:
            return TileOrder(row_tiles, planes, 1, planes - 1)
        keys, key_bytes = max(call.s_k, 1), call.head_dim * (2 if call.shared_kv else 4)
        wanted = 2 * -(-ctas // row_tiles)
        most = max(min(wanted, _CACHED // key_bytes // keys), 1)
        last = min(wanted, max(_CACHED_OF_LAST // key_bytes // keys, 2))
        if last > most and planes >= most + last:
            before_last = planes - last
            return TileOrder(row_tiles, planes, -(-before_last // -(-before_last // most)), before_last)
        larger = last > most or planes < 2 * most
        each = -(-planes // (max(planes // most, 1) if larger else -(-planes // most)))
        return TileOrder(row_tiles, planes, each, (-(-planes // each) - 1) * each)

    def cta(self, index: int) -> int:
        """The CTA, in the order of a grid in which each row tile has its own, of what is drawn at a place."""
        first = index // (self.each * self.row_tiles) * self.each
        if index >= self.before_last * self.row_tiles:
            first = self.before_last
        width = self.planes - first if first == self.before_last else min(self.each, self.before_last - first)
        place = index - first * self.row_tiles
        return place // width + self.row_tiles * (first + place % width)

    def ctas(self) -> list[int]:
        """All of them."""
        return [self.cta(index) for index in range(self.row_tiles * self.planes)]


@dataclass(frozen=True, slots=True)
class RowTilePair:
    """A CTA of a grid that draws two row tiles, and which CTAs have these where each has its own."""

    cta: int
    own: tuple[int, int]


def pairs(call: Call, work: Sequence[float], lacking: int | None, row_tiles: int) -> tuple[int, list[RowTilePair]]:
    """CTAs to draw from the counter so that those that are told here do two row tiles, the second as long as the first
    or shorter, and end. `work` is that of all row tiles, of which those at `lacking` of a plane have fewer rows. They
    are of the usual length but for long ones: what two that follow one another overlap does not grow with that."""
    every = row_tiles * call.planes.batch
    ctas = -(-every // 2)
    if ctas == row_tiles and call.planes.batch == 1:
        ctas += 1  # else each would have its own
    order, apart = TileOrder.of(call, row_tiles, ctas), int(_APART * ctas)
    usual = min(statistics.median(work), max(_LONGEST, min(work)))
    found: dict[tuple[float, float], RowTilePair] = {}
    for cta in range(ctas):
        second = ctas + (cta + apart) % ctas
        if second >= every:
            continue
        own = order.cta(cta), order.cta(second)
        lengths = work[own[0]], work[own[1]]
        if 0 < lengths[1] <= lengths[0] and lacking not in {n % row_tiles for n in own}:
            found.setdefault(lengths, RowTilePair(cta, own))

    def unusual(lengths: tuple[float, float]) -> float:
        return sum(abs(length - usual) for length in lengths)

    return ctas, [found[key] for key in sorted(found, key=unusual)[:_PAIRS]]
