"""Giving the registers of a decoded function places in the register file.

PTX is written as if registers were free: a kernel names thousands, and few of them hold a value at a time. Registers
that never do so at once share their units, so that a warp's registers stay in the processor's caches.

What a lane sees is not changed. Its registers are its own, and each lane follows the control-flow graph. A register
that may be read before it is written is live from the entry on, and shares with nobody until then: the read still finds
it without a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from fmha.emulator.decode.builder import Builder, Emitted, units_of

# Asynchronous instructions, which use their registers after the next instructions have started.
_PINNED = frozenset({"wgmma"})


def _reads(e: Emitted) -> Iterator[int]:
    yield from (unit for unit in e.src if unit >= 0)
    yield from (unit for unit, _ in e.kept)
    if e.guard >= 0:
        yield e.guard


def _blocks(emitted: list[Emitted], start: Mapping[int, int]) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Basic blocks as [first pc, end), and the successors of each."""
    end = len(emitted)
    leaders = {0, end}
    for pc, e in enumerate(emitted):
        goes = [start[t] for t in (e.target, *e.targets) if t >= 0]
        if goes or e.op == "ret":
            leaders.update((*goes, pc + 1))
    firsts = sorted(leaders)
    blocks = list(pairwise(firsts))
    index = {first: n for n, (first, _) in enumerate(blocks)}
    successors = []
    for _, stop in blocks:
        last = emitted[stop - 1]
        after = [start[t] for t in (last.target, *last.targets) if t >= 0]
        if last.op not in ("ret", "bra") or last.guard >= 0:
            after.append(stop)
        successors.append([index[pc] for pc in after if pc < end])
    return blocks, successors


def _live_in(emitted: list[Emitted], blocks: list[tuple[int, int]], successors: list[list[int]]) -> list[int]:
    """The units that hold a value which may still be read where a block begins, a bit each."""
    used, written = [], []
    for first, stop in blocks:
        use = define = 0
        for e in emitted[first:stop]:
            for unit in _reads(e):
                use |= (1 << unit) & ~define
            if e.guard < 0:
                for unit in e.dst:
                    if unit >= 0:
                        define |= 1 << unit
        used.append(use)
        written.append(define)
    live = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(blocks))):
            out = 0
            for successor in successors[n]:
                out |= live[successor]
            into = used[n] | (out & ~written[n])
            changed = changed or into != live[n]
            live[n] = into
    return live


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _intervals(emitted: list[Emitted], start: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """First and last pc at which a unit is live, by unit."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}

    def live_at(unit: int, pc: int) -> None:
        first[unit] = min(pc, first.get(unit, pc))
        last[unit] = max(pc, last.get(unit, pc))

    blocks, successors = _blocks(emitted, start)
    live = _live_in(emitted, blocks, successors)
    for n, (begin, stop) in enumerate(blocks):
        for unit in _bits(live[n]):
            live_at(unit, begin)
        for successor in successors[n]:
            for unit in _bits(live[successor]):
                live_at(unit, stop - 1)
    for pc, e in enumerate(emitted):
        pinned = e.op in _PINNED
        for unit in (*_reads(e), *e.dst):
            if unit >= 0:
                live_at(unit, pc)
                if pinned:
                    live_at(unit, 0)
                    live_at(unit, len(emitted))
    return {unit: (pc, last[unit]) for unit, pc in first.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a register lies, and the first and the last pc at which it is its own."""

    unit: int
    width: int  # bits; 1 for a predicate
    first: int
    last: int


def allocate(builder: Builder, start: Mapping[int, int]) -> dict[str, Place]:
    """Renumbers the units of the builder's records and constants, and says where registers have come to lie, by name.
    `start`: the pc of each body index."""
    fixed = builder.const_units()
    place: dict[int, int] = {}
    units = 0
    for unit in fixed:
        place[unit] = units
        units += units_of(builder.width(unit))
    intervals = _intervals(builder.emitted, start)
    busy: list[tuple[int, int, int]] = []  # (last pc, place, width)
    # By width: where a lane's value lies in a unit depends on it, and lanes may be at different places of the program.
    free: dict[int, list[int]] = {}
    for unit, (begin, end) in sorted(intervals.items(), key=lambda item: (item[1], item[0])):
        if unit in place:
            continue
        # An instruction's results never share with its sources.
        while busy and busy[0][0] < begin:
            _, at, width = heappop(busy)
            free.setdefault(width, []).append(at)
        width = builder.width(unit)
        if free.get(width):
            at = free[width].pop()
        else:
            at, units = units, units + units_of(width)
        place[unit] = at
        heappush(busy, (end, at, width))
    registers = {
        name: Place(place[unit], builder.width(unit), *intervals[unit])
        for name, unit in builder.register_units().items()
        if unit in intervals
    }
    builder.renumber(place, units)
    return registers
