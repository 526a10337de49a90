"""Giving the registers of a decoded function places in the register file.

PTX is written as if registers were free: a kernel names thousands, and few of them hold a value at a time. Registers
that never do so at once share their units, so that a warp's registers stay in the processor's caches.

What a lane sees is not changed. Its registers are its own, and each lane follows the control-flow graph. A register
that may be read before it is written is live from the entry on, and shares with nobody until then: the read still finds
it without a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from fmha.emulator.decode.builder import Builder, Emitted, units_of

# Asynchronous instructions, which use their registers after the next instructions have started.
_PINNED = frozenset({"wgmma"})


def read_by(e: Emitted) -> list[int]:
    """The units that it reads, its guard's among them."""
    read = [unit for unit in e.src if unit >= 0]
    if e.kept:
        read += [unit for unit, _ in e.kept]
    if e.guard >= 0:
        read.append(e.guard)
    return read


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


@dataclass(frozen=True, slots=True)
class _Liveness:
    """Sets are integers, bit k for `units[k]`: those that some block reads before it writes them. No other unit is live
    where a block begins or ends."""

    units: list[int]
    into: list[int]  # by block: live where it begins
    out: list[int]


def _liveness(emitted: list[Emitted], blocks: list[tuple[int, int]], successors: list[list[int]]) -> _Liveness:
    exposed, defined = [], []
    for first, stop in blocks:
        use: set[int] = set()
        define: set[int] = set()
        for e in emitted[first:stop]:
            use.update(unit for unit in read_by(e) if unit not in define)
            if e.guard < 0:
                define.update(unit for unit in e.dst if unit >= 0)
        exposed.append(use)
        defined.append(define)
    units = list(dict.fromkeys(unit for use in exposed for unit in use))
    number = {unit: k for k, unit in enumerate(units)}
    used = [_mask(number[unit] for unit in use) for use in exposed]
    written = [_mask(number[unit] for unit in define if unit in number) for define in defined]
    into, out = used[:], [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(blocks))):
            after = 0
            for successor in successors[n]:
                after |= into[successor]
            if after != out[n]:
                out[n] = after
                before = used[n] | (after & ~written[n])
                changed = changed or before != into[n]
                into[n] = before
    return _Liveness(units, into, out)


def _mask(bits: Iterable[int]) -> int:
    # In one step: as many additions to a large integer as there are bits would take their number squared.
    chosen = list(bits)
    octets = bytearray(max(chosen, default=-1) // 8 + 1)
    for bit in chosen:
        octets[bit // 8] |= 1 << bit % 8
    return int.from_bytes(octets, "little")


def _bits(mask: int) -> Iterator[int]:
    digits = bin(mask)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)


def _across_blocks(live: _Liveness, blocks: list[tuple[int, int]]) -> tuple[dict[int, int], dict[int, int]]:
    """First and last pc at which a unit is live where a block begins or ends. Each is taken up once in either
    direction, however many blocks it lives through."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    edges = [
        (pc, mask)
        for n, (begin, stop) in enumerate(blocks)
        for pc, mask in ((begin, live.into[n]), (stop - 1, live.out[n]))
    ]
    for order, found in ((edges, first), (reversed(edges), last)):
        seen = 0
        for pc, mask in order:
            new = mask & ~seen
            if new:
                seen |= new
                found.update((live.units[k], pc) for k in _bits(new))
    return first, last


def _intervals(emitted: list[Emitted], start: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """First and last pc at which a unit is live, by unit."""
    blocks, successors = _blocks(emitted, start)
    first, last = _across_blocks(_liveness(emitted, blocks, successors), blocks)

    for pc, e in enumerate(emitted):
        pinned = e.op in _PINNED
        earliest, latest = (0, len(emitted)) if pinned else (pc, pc)
        for unit in (*read_by(e), *e.dst):
            if unit >= 0:
                if first.get(unit, latest) >= earliest:
                    first[unit] = earliest
                if last.get(unit, earliest) <= latest:
                    last[unit] = latest
    return {unit: (pc, last[unit]) for unit, pc in first.items()}


@dataclass(frozen=True, slots=True)
class RegisterPlace:
    """Where a register lies, and the first and the last pc at which it is its own."""

    unit: int
    width: int  # bits; 1 for a predicate
    first: int
    last: int


def allocate(builder: Builder, start: Mapping[int, int], shared: bool = True) -> tuple[dict[str, RegisterPlace], int]:
    """Renumbers the units of the builder's records and constants, and says where registers have come to lie, by name,
    and how many units are live at once, predicates and constants left out. `start`: the pc of each body index. Not
    `shared`: each register has a unit of its own, so that no instruction depends on another for a place alone."""
    fixed = builder.const_units()
    place: dict[int, int] = {}
    units = 0
    for unit in fixed:
        place[unit] = units
        units += units_of(builder.width(unit))
    intervals = _intervals(builder.emitted, start)
    busy: list[tuple[int, int, int]] = []  # (last pc, place, width)
    live = most = 0
    # By width: where a lane's value lies in a unit depends on it, and lanes may be at different places of the program.
    free: dict[int, list[int]] = {}
    for unit, (begin, end) in sorted(intervals.items(), key=lambda item: (item[1], item[0])):
        if unit in place:
            continue
        # An instruction's results never share with its sources.
        while busy and busy[0][0] < begin:
            _, at, width = heappop(busy)
            if shared:
                free.setdefault(width, []).append(at)
            live -= 0 if width == 1 else units_of(width)
        width = builder.width(unit)
        if free.get(width):
            at = free[width].pop()
        else:
            at, units = units, units + units_of(width)
        place[unit] = at
        heappush(busy, (end, at, width))
        live += 0 if width == 1 else units_of(width)
        most = max(most, live)
    registers = {
        name: RegisterPlace(place[unit], builder.width(unit), *intervals[unit])
        for name, unit in builder.register_units().items()
        if unit in intervals
    }
    builder.renumber(place, units)
    return registers, most
