"""Which shared array the address of a load or store was computed from: an index may run over its end into the next.

An address is followed from the names of arrays through moves, additions and conversions. Where several reach one
register, all of them count. Nothing is claimed of an address that may have come another way: from memory, by a mask, a
shift or a shuffle, or by a choice of which only one side is known. An index added to an address is an index, wherever
it is from.
"""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.decode.builder import Builder, Emitted

_CHOICES = ("mov", "cvta", "cvta_to", "selp")
_SUMS = ("add", "sub", "mad_lo", "mad_wide", "carry_add", "carry_sub")
_ACCESSES = ("ld", "st", "atom", "ld_sync", "st_sync")
_MOST_SETS = 255  # an instruction has 8 bits for the number of one

Names = frozenset[str] | None  # None: unknown
Extents = Mapping[str, tuple[int, int]]


def mark_arrays(builder: Builder, extents: Extents) -> list[tuple[str, list[tuple[int, int]]]]:
    """Gives every load and store the number of the arrays that its address may be in, from 1; returns those: their
    names, and where each begins and ends."""
    origin = _origins(builder)
    numbers: dict[frozenset[str], int] = {}
    for e in builder.emitted:
        names = origin.get(e.src[0]) if e.op in _ACCESSES and e.src else None
        if names and (names in numbers or len(numbers) < _MOST_SETS):
            e.arrays = numbers.setdefault(names, len(numbers) + 1)
    return [
        (", ".join(_in_words(name, extents[name]) for name in sorted(names)), sorted(extents[name] for name in names))
        for names in numbers
    ]


def _in_words(name: str, extent: tuple[int, int]) -> str:
    begin, end = extent
    return f"'{name}', {end - begin} bytes from 0x{begin:x} on"


def _origins(builder: Builder) -> dict[int, Names]:
    """By register: grows until nothing changes."""
    origin: dict[int, Names] = {unit: frozenset((name,)) for unit, name in builder.shared_units().items()}
    if not origin:
        return {}
    constants = set(builder.const_units())
    writers = [e for e in builder.emitted if e.dst]
    changed = True
    while changed:
        changed = False
        for e in writers:
            result = _result(e, origin, constants)
            if result == _PENDING:
                continue
            for unit in e.dst:
                before = origin.get(unit, _PENDING)
                after = result if before is _PENDING else _either(before, result)
                if after != before:
                    origin[unit] = after
                    changed = True
    return origin


_PENDING: Names = frozenset()  # no definition has been looked at


def _either(a: Names, b: Names) -> Names:
    return None if a is None or b is None else a | b


def _result(e: Emitted, origin: Mapping[int, Names], constants: set[int]) -> Names:
    # What a register may hold that is used before it is defined does not matter.
    sources = [origin.get(s, None if s in constants else _PENDING) for s in e.src]
    if e.op in _CHOICES or (e.op == "cvt" and e.width_dst >= 32 and e.type[0] in "usb"):
        result: Names = _PENDING
        for source in sources[:2]:
            result = _either(result, source)
        return result
    if e.op in _SUMS:
        known = frozenset[str]().union(*(s for s in sources if s))
        return known or (_PENDING if _PENDING in sources else None)
    return None
