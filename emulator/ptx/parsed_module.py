"""What a parsed PTX module consists of. Plain frozen data; the terms are those of the PTX ISA.

Names are unique within a function: a register, variable or label that a nested `{ }` block redeclares gets a suffix,
"%p$2". A `SymbolRef` is looked up in its function's `params` and `returns`, then its `variables`, then the module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the program that was compiled to PTX (`.loc`). `file` is the path as `.file` writes it."""

    file: str
    line: int
    column: int
    function: str | None = None  # of an inlined function: the name of the function that this code was written in
    inlined_at: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# Operands


@dataclass(frozen=True, slots=True)
class Register:
    """A register as declared; its name is unique within the function."""

    name: str
    type: str  # as declared, without the dot: "b32", "f32", "pred", ...

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Special:
    """A predefined register or constant: "%tid.x", "%laneid", "WARP_SZ"."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. `bits` is the integer (negative as such), or the IEEE bits of an f32 or f64."""

    bits: int
    kind: Literal["int", "f32", "f64"] = "int"

    def __str__(self) -> str:
        return {"int": f"{self.bits}", "f32": f"0f{self.bits:08X}", "f64": f"0d{self.bits:016X}"}[self.kind]


@dataclass(frozen=True, slots=True)
class SymbolRef:
    """The address of a variable, parameter or function, plus `offset` bytes. `element`: written as `a[1]`, which loads
    and stores take without further brackets."""

    name: str
    offset: int = 0
    element: bool = False

    def __str__(self) -> str:
        return f"{self.name}+{self.offset}" if self.offset else self.name


@dataclass(frozen=True, slots=True)
class LabelRef:
    """A label of the body, a key of `Function.labels`; in `brx.idx` a key of `Function.branch_targets`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Vector:
    """`{%r1, %r2}`"""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.items)) + "}"


@dataclass(frozen=True, slots=True)
class Address:
    """`[%rd1+16]`. `offset` holds all constant bytes: a SymbolRef as base has offset 0; an Immediate too."""

    base: Register | SymbolRef | Immediate
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.base}{self.offset:+d}]" if self.offset else f"[{self.base}]"


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """`[%rd1, {%r1, %r2}]`: a tensor map and the coordinates of a box."""

    descriptor: Address
    coordinates: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"[{str(self.descriptor)[1:-1]}, {Vector(self.coordinates)}]"


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result nobody wants."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p` as a source operand."""

    register: Register

    def __str__(self) -> str:
        return f"!{self.register}"


@dataclass(frozen=True, slots=True)
class Selected:
    """`%r1.b0`, `%r1.h10`, `-%r1`, `-%r1.h1`: what a video instruction takes of a register."""

    register: Register
    part: str = ""
    minus: bool = False

    def __str__(self) -> str:
        return f"{'-' * self.minus}{self.register}{'.' * bool(self.part)}{self.part}"


@dataclass(frozen=True, slots=True)
class PredicatePair:
    """`%p1|%p2`, `%r1|%p1`, `_|%p1`: two results."""

    first: Register | Sink
    second: Register | Sink

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class CallOperands:
    """All of a `call`. `prototype`: the key in `Function.prototypes` or `Function.call_targets` of an indirect call."""

    returns: tuple[Operand, ...]
    target: SymbolRef | Register
    args: tuple[Operand, ...]
    prototype: str | None = None

    def __str__(self) -> str:
        returns = f"({', '.join(map(str, self.returns))}), " if self.returns else ""
        args = f", ({', '.join(map(str, self.args))})" if self.args else ""
        prototype = f", {self.prototype}" if self.prototype else ""
        return f"{returns}{self.target}{args}{prototype}"


Operand: TypeAlias = (
    Register
    | Special
    | Immediate
    | SymbolRef
    | LabelRef
    | Vector
    | Address
    | TensorAddress
    | Sink
    | Negated
    | Selected
    | PredicatePair
    | CallOperands
)


# Instructions and declarations


@dataclass(frozen=True, slots=True)
class GuardPredicate:
    """The predicate of an instruction, `@p` or `@!p`."""

    register: Register
    negated: bool = False

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.register}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """`opcode` is what precedes the first dot ("tcgen05"), `modifiers` the rest in order ("mma", "cta_group::1")."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: GuardPredicate | None
    line: int
    text: str  # the source of the statement on one line, without the semicolon
    location: Location | None
    used_bytes: int | None = None  # .pragma "used_bytes_mask": a bit for each byte of the load that it stands before

    @property
    def mnemonic(self) -> str:
        """The opcode with its modifiers, as written."""
        return ".".join((self.opcode, *self.modifiers))

    def __str__(self) -> str:
        guard = f"{self.guard} " if self.guard else ""
        return f"{guard}{self.mnemonic} {', '.join(map(str, self.operands))}".rstrip() + ";"


@dataclass(frozen=True, slots=True)
class Relocation:
    """In an initializer, the `nbytes` at `offset` hold the address of `symbol` plus `addend`.

    `generic`: the generic address rather than the one in the symbol's own space. `mask`, of the form 0xff00(symbol):
    only the bits under the mask, shifted down to bit 0.
    """

    offset: int
    nbytes: int
    symbol: str
    addend: int = 0
    generic: bool = False
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """`nbytes` is 0 for an array without a size (`.extern .shared .b8 smem[]`); `initializer` has `nbytes` bytes."""

    name: str
    space: str  # "shared", "global", "const", "local", "param"
    type: str
    elements: int
    nbytes: int
    align: int
    initializer: bytes | None = None
    relocations: tuple[Relocation, ...] = ()
    extern: bool = False
    visible: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of a function or a call prototype. `space` is "param", or "reg" for a device function's register parameter."""

    name: str
    type: str
    nbytes: int
    align: int
    space: str = "param"


@dataclass(frozen=True, slots=True)
class Prototype:
    """`.callprototype`"""

    returns: tuple[Parameter, ...]
    params: tuple[Parameter, ...]


DirectiveArgument: TypeAlias = int | str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An `.entry` or a `.func`. A declaration without a body has `defined` False."""

    name: str
    is_entry: bool
    visible: bool
    extern: bool
    params: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    body: tuple[Instruction, ...]
    labels: dict[str, int]  # index into body; len(body) for a label after the last instruction
    registers: dict[str, str]  # name -> type, of the registers that the body names, in order of appearance
    variables: dict[str, Variable]
    directives: dict[str, tuple[DirectiveArgument, ...]]  # "maxntid" -> (128, 1, 1); "pragma" -> all its strings
    line: int
    defined: bool = True
    weak: bool = False
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # keys of labels
    call_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)  # names of functions
    pending: list[Callable[[], Function]] = field(default_factory=list, compare=False, repr=False)  # deferred.py


@dataclass(frozen=True, slots=True, eq=False)
class ParsedModule:
    """PTX once it is parsed: functions, variables and source files by number."""

    version: tuple[int, int]
    target: str  # "sm_100a"
    address_size: int
    functions: dict[str, Function]
    variables: dict[str, Variable]
    files: dict[int, str]
    source: str
    path: str | None = None
    target_options: tuple[str, ...] = ()  # what follows the architecture: "debug", "texmode_independent"
    aliases: dict[str, str] = field(default_factory=dict)  # .alias: also entered in functions

    @property
    def entries(self) -> dict[str, Function]:
        """The functions that can be launched."""
        return {name: function for name, function in self.functions.items() if function.is_entry}
