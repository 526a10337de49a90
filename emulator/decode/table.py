"""Instructions that a row spells out, which stands with its handler in core/ptx: their decoders are made of its text.

A text is the PTX ISA's syntax in a line, as in `prmt.b32[.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] d, a, b, c`, or several lines
with semicolons between, as the ISA has them. One of the names in braces is there, at most one of those in brackets. An
instruction is decoded by the line that has all its modifiers and needs no other.

- The first type is the record's, a second one its other type. Without one the record has the first operand's.
- A name that has bits in MODS sets them. `.name=bits` sets those, and `.name=` none. Of other names the record's
  immediate has the place: the first is 0 in braces, and 1 in brackets. With `.aligned` the record is.
- Operands have the record's type, or the one that stands behind them. `d` is a destination, `d|p` one with a predicate
  that may be missing. `[a:space]` is an address, whose offset is the record's immediate, as `#n` is, a constant.

What lines do not say, such as several records or vectors of registers, a function of this package decodes. An opcode
may have both: the function then gets what no line says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from fmha.emulator._core import MODS, SYNTAX, TYPES
from fmha.emulator.decode.builder import SPACES, Builder, width_of
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Immediate, Instruction, PredicatePair, PtxError

Decoder = Callable[[Builder, Modifiers], None]
_PART = re.compile(r"\{(?P<one>[^}]*)\}|\[(?P<optional>[^]]*)\]|\.(?P<name>[\w:=]+)")
_OPERAND = re.compile(
    r"\[\w+:(?P<space>[\w:]+)\]|#(?P<constant>\w+)|(?P<name>\w+)(:(?P<type>\w+))?(\|\w+:(?P<pair>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A place among an instruction's modifiers: names, and what `=` says of some of them."""

    names: tuple[str, ...]
    optional: bool = False
    bits: tuple[tuple[str, str], ...] = ()

    def is_type(self) -> bool:
        """Whether the part is the instruction's type."""
        return self.names[0] in TYPES

    def fixed(self) -> bool:
        """Whether it is always there, in one form."""
        return len(self.names) == 1 and not self.optional

    def values(self) -> dict[str, tuple[int, int]]:
        """The bits of mods and the immediate of each name."""
        said = dict(self.bits)
        first = int(self.optional)
        values = {}
        for place, name in enumerate(self.names):
            if name in said:
                values[name] = (MODS[said[name]] if said[name] else 0, 0)
            elif name in MODS or self.fixed() or name == "aligned":
                values[name] = (MODS.get(name, 0), 0)
            else:
                values[name] = (0, first + place)
        return values


@dataclass(frozen=True, slots=True)
class SyntaxOperand:
    """One of a line: a register of `type`, empty for the record's, maybe a destination with a predicate of type `pair`;
    or an address in `space`; or a constant."""

    type: str = ""
    destination: bool = False
    pair: str = ""
    space: str = ""
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What the modifiers of an instruction say. Without a type it has that of the first operand with one, or none."""

    types: tuple[str, ...]
    mods: int
    immediate: int
    aligned: bool


@dataclass(frozen=True, slots=True)
class Form:
    """One line of a row."""

    operation: str
    text: str
    opcode: str
    parts: tuple[Part, ...]
    operands: tuple[SyntaxOperand, ...]

    def read(self, m: Modifiers) -> Taken:
        """Raises PtxError where the modifiers are not those of the line."""
        types: list[str] = []
        mods = immediate = 0
        aligned = m.has("aligned")
        for part in self.parts:
            if part.is_type():
                types.append(m.type(part.names))
                continue
            if part.fixed():
                m.need(part.names[0])
                bits, place = part.values()[part.names[0]]
            else:
                bits, place = m.choose(part.values(), (0, 0) if part.optional else None)
            mods, immediate = mods | bits, immediate | place
        m.done()
        usual = next((operand.type for operand in self.operands if operand.type), "none")
        return Taken(tuple(types) or (usual,), mods, immediate, aligned)

    def emit(self, b: Builder, taken: Taken) -> None:
        """Emits the record of an instruction that has the form."""
        first, second = (*taken.types, "none")[:2]
        units: dict[bool, list[int]] = {True: [], False: []}
        immediate, width, address = taken.immediate, 0, 0
        for operand, said in zip(b.operands(len(self.operands)), self.operands, strict=True):
            type_name = said.type or first
            if said.space:
                unit, address, immediate = b.address(operand, said.space)
                units[False].append(unit)
            elif said.constant:
                if not isinstance(operand, Immediate) or operand.kind != "int" or operand.bits < 0:
                    b.fail(f"a constant that is not negative is expected, not {operand}")
                immediate = operand.bits
            elif said.pair and isinstance(operand, PredicatePair):
                units[True] += [b.dst(operand.first, type_name), b.dst(operand.second, said.pair)]
                width = width_of(type_name)
            elif said.destination:
                units[True] += [b.dst(operand, type_name), *([-1] if said.pair else [])]
                width = width_of(type_name)
            else:
                units[False].append(b.src(operand, type_name))
        b.emit(
            self.operation,
            first,
            type2=second,
            dst=units[True],
            src=units[False],
            mods=taken.mods,
            immediate=immediate,
            aligned=taken.aligned,
            width_dst=width,
            width_src=address,
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
        parts.append(_part(several.split("|"), found["optional"] is not None))
        at = found.end()
    operands = [_operand(operation, text, word.strip()) for word in tail.split(",") if word.strip()]
    form = Form(operation, text.strip(), opcode, tuple(parts), tuple(operands))
    _check(form)
    return form


def _part(words: list[str], optional: bool) -> Part:
    said = [word.removeprefix(".").partition("=") for word in words]
    return Part(
        tuple(name for name, _, _ in said), optional, tuple((name, bits) for name, equals, bits in said if equals)
    )


def _operand(operation: str, text: str, word: str) -> SyntaxOperand:
    found = _OPERAND.fullmatch(word)
    if not found:
        raise ValueError(f"row {operation}: an operand is expected where {text!r} has {word!r}")
    if found["space"]:
        return SyntaxOperand(space=found["space"])
    if found["constant"]:
        return SyntaxOperand(constant=True)
    return SyntaxOperand(found["type"] or "", found["name"] == "d", found["pair"] or "")


def _check(form: Form) -> None:
    for part in form.parts:
        plain = [name for name in part.names if name not in dict(part.bits)]
        if any(len({name in known for name in plain}) > 1 for known in (TYPES, MODS)):
            raise ValueError(f"row {form.operation}: {form.text!r} has names of several kinds in one place")
        for _, bits in part.bits:
            if bits and bits not in MODS:
                raise ValueError(f"row {form.operation}: {form.text!r} has {bits!r}, which are no bits")
    for operand in form.operands:
        if wrong := [name for name in (operand.type, operand.pair) if name and name not in TYPES]:
            raise ValueError(f"row {form.operation}: {form.text!r} has an operand of type {wrong[0]!r}")
        if operand.space and operand.space not in SPACES:
            raise ValueError(f"row {form.operation}: {form.text!r} has an address in {operand.space!r}")
    if sum(bool(operand.space or operand.constant) for operand in form.operands) > 1:
        raise ValueError(f"row {form.operation}: {form.text!r} has more than one address or constant")
    if sum(part.is_type() for part in form.parts) > 2:
        raise ValueError(f"row {form.operation}: {form.text!r} has more than two types")


def table(rows: Mapping[str, str]) -> list[Form]:
    """What the texts of rows say, by operation."""
    return [read(operation, text) for operation, texts in rows.items() for text in texts.split(";")]


TABLE = table(SYNTAX)
LINES: dict[str, list[Form]] = {}
for _form in TABLE:
    LINES.setdefault(_form.opcode, []).append(_form)


@functools.lru_cache(maxsize=4096)
def line_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[Form, Taken] | None:
    """The line by which an instruction is decoded; None where none has these modifiers."""
    for form in LINES.get(opcode, ()):
        try:
            return form, form.read(Modifiers(Instruction(opcode, modifiers, (), None, 0, opcode, None)))
        except PtxError:
            continue
    return None


def decoder(opcode: str, otherwise: Decoder | None) -> Decoder:
    """Of an opcode that has lines, and the function for what they do not say."""
    forms = [([part.names[0] for part in form.parts if part.fixed()], form) for form in LINES[opcode]]
    forms.sort(key=lambda pair: -len(pair[0]))
    ways = sorted({f".{p.names[0]}" for _, form in forms for p in form.parts if p.fixed() and not p.is_type()})

    def nearest(m: Modifiers) -> Form | None:
        """The line of which most is fixed, among those whose fixed names are there, or else those whose first one is:
        what it misses is said."""
        whole = [form for names, form in forms if len(forms) == 1 or all(map(m.has, names))]
        begun = [form for names, form in forms if names and m.has(names[0])]
        return next(iter(whole + begun), None)

    def decode(b: Builder, m: Modifiers) -> None:
        if found := line_of(opcode, b.instruction.modifiers):
            form, taken = found
            form.emit(b, taken)
            return
        fresh = Modifiers(b.instruction)
        near = nearest(fresh)
        if otherwise is None:
            if near is None:
                b.fail(f"one of {', '.join(ways)} is missing in {b.instruction.mnemonic}")
            near.read(m)
            return
        try:
            otherwise(b, m)
        except PtxError:
            if near is not None:
                _complain(near, fresh, m.left)
            raise

    return decode


def _complain(near: Form, m: Modifiers, left: int) -> None:
    """Of what a line misses, where it knows more of the modifiers than the function, which has so many left."""
    try:
        near.read(m)
    except PtxError:
        if m.left < left:
            raise
