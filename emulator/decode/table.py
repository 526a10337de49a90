"""Instructions that a row of core/isa/operations.hpp spells out: their decoders are made of its text.

A text is the PTX ISA's syntax in a line, as in `prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] d, a, b, c`, or several lines
with semicolons between. One of the names in braces is there, at most one of those in brackets.

- The first type is the record's, a second one its other type.
- A name that has bits in MODS sets them. Of other names the record's immediate has the place: the first is 0 in braces,
  and 1 in brackets.
- Operands have the record's type, or the one that stands behind them. `d` is a destination.

What one line does not say, such as types that only some modifier allows, a function of this package decodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from fmha.emulator._core import MODS, SYNTAX, TYPES
from fmha.emulator.decode.builder import Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers

_PART = re.compile(r"\{(?P<one>[^}]*)\}|\[(?P<optional>[^]]*)\]|\.(?P<name>[\w:]+)")


@dataclass(frozen=True, slots=True)
class Part:
    """A place among an instruction's modifiers."""

    names: tuple[str, ...]
    optional: bool = False

    def is_type(self) -> bool:
        return self.names[0] in TYPES

    def fixed(self) -> bool:
        return len(self.names) == 1 and not self.optional

    def values(self) -> dict[str, tuple[int, int]]:
        """The bits of mods and the immediate of each name."""
        if self.names[0] in MODS:
            return {name: (MODS[name], 0) for name in self.names}
        first = 0 if self.fixed() else int(self.optional)
        return {name: (0, first + place) for place, name in enumerate(self.names)}


@dataclass(frozen=True, slots=True)
class Form:
    """One line of a row, which decodes an instruction that is written so."""

    operation: str
    text: str
    opcode: str
    parts: tuple[Part, ...]
    operands: tuple[tuple[str, str], ...]  # name and type, empty for the record's

    def __call__(self, b: Builder, m: Modifiers) -> None:
        types: list[str] = []
        mods = immediate = 0
        for part in self.parts:
            if part.is_type():
                types.append(m.type(part.names))
            elif part.fixed():
                m.need(part.names[0])
                mods |= MODS.get(part.names[0], 0)
            else:
                bits, place = m.choose(part.values(), (0, 0) if part.optional else None)
                mods, immediate = mods | bits, immediate | place
        m.done()
        first, second = (*types, "none", "none")[:2]
        units: dict[bool, list[int]] = {True: [], False: []}
        width = 0
        for operand, (name, own) in zip(b.operands(len(self.operands)), self.operands, strict=True):
            type_name = own or first
            if name == "d":
                units[True].append(b.dst(operand, type_name))
                width = width_of(type_name)
            else:
                units[False].append(b.src(operand, type_name))
        b.emit(
            self.operation,
            first,
            type2=second,
            dst=units[True],
            src=units[False],
            mods=mods,
            immediate=immediate,
            width_dst=width,
        )

    def spellings(self) -> list[str]:
        """Every instruction that this decodes, without operands."""
        names = [(*part.names, "") if part.optional else part.names for part in self.parts]
        return [".".join((self.opcode, *filter(None, chosen))) for chosen in product(*names)]


def read(operation: str, text: str) -> Form:
    """A line of a row. Raises ValueError where it is not such a line."""
    head, _, tail = text.strip().partition(" ")
    opcode = re.match(r"\w*", head)[0]  # type: ignore[index]  # an empty match at least
    parts, at = [], len(opcode)
    while at < len(head):
        found = _PART.match(head, at)
        if not found:
            raise ValueError(f"row {operation}: modifiers are expected where {text!r} has {head[at:]!r}")
        several = found["one"] or found["optional"] or f".{found['name']}"
        parts.append(Part(tuple(name.removeprefix(".") for name in several.split("|")), found["optional"] is not None))
        at = found.end()
    operands = [word.strip().partition(":") for word in tail.split(",") if word.strip()]
    form = Form(operation, text.strip(), opcode, tuple(parts), tuple((name, own) for name, _, own in operands))
    _check(form)
    return form


def _check(form: Form) -> None:
    for part in form.parts:
        for known in (TYPES, MODS):
            if len({name in known for name in part.names}) > 1:
                raise ValueError(f"row {form.operation}: {form.text!r} has names of several kinds in one place")
    for _, own in form.operands:
        if own and own not in TYPES:
            raise ValueError(f"row {form.operation}: {form.text!r} has an operand of type {own!r}")
    if sum(part.is_type() for part in form.parts) > 2:
        raise ValueError(f"row {form.operation}: {form.text!r} has more than two types")


def _one_of(forms: list[Form]) -> Callable[[Builder, Modifiers], None]:
    """Decodes by the form of which most is fixed, among those whose fixed names are there."""
    fixed = [(frozenset(part.names[0] for part in form.parts if part.fixed()), form) for form in forms]
    fixed.sort(key=lambda pair: -len(pair[0]))
    ways = sorted({f".{part.names[0]}" for form in forms for part in form.parts if part.fixed() and not part.is_type()})

    def decode(b: Builder, m: Modifiers) -> None:
        for names, form in fixed:
            if all(map(m.has, names)):
                form(b, m)
                return
        b.fail(f"one of {', '.join(ways)} is missing in {b.instruction.mnemonic}")

    return decode


def table(rows: Mapping[str, str]) -> list[Form]:
    """What the texts of rows say, by operation."""
    return [read(operation, text) for operation, texts in rows.items() for text in texts.split(";")]


TABLE = table(SYNTAX)
_BY_OPCODE: dict[str, list[Form]] = {}
for _form in TABLE:
    _BY_OPCODE.setdefault(_form.opcode, []).append(_form)
FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    opcode: forms[0] if len(forms) == 1 else _one_of(forms) for opcode, forms in _BY_OPCODE.items()
}
