"""Types, variables with their initializers, and parameters."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from fmha.emulator.ptx.expressions import parse_constant, parse_integer
from fmha.emulator.ptx.lexer import Tokens, is_identifier, unquote
from fmha.emulator.ptx.parsed_module import Parameter, Relocation, Variable

SPACES = frozenset((".shared", ".global", ".const", ".local", ".param"))
_LARGEST_INITIALIZED = 1 << 26

TYPE_BITS: dict[str, int] = {
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("f32", "f16x2", "bf16x2"), 32),
    "f64": 64,
    "b128": 128,
    "pred": 1,
}


def parse_type(tokens: Tokens) -> str:
    """The next token as a variable's type, without its dot. PtxError for what is not supported."""
    token = tokens.items[tokens.at]
    if token in (".v2", ".v4", ".v8"):
        raise tokens.error("variables of vector type are not supported")
    if token in (".texref", ".samplerref", ".surfref"):
        raise tokens.error("textures, samplers and surfaces are not supported")
    if token[:1] != "." or token[1:] not in TYPE_BITS:
        tokens.unexpected("a type")
    tokens.at += 1
    return token[1:]


def _alignment(tokens: Tokens) -> int:
    at = tokens.at
    align = parse_integer(tokens)
    if align <= 0 or align & (align - 1) or align > 1 << 20:
        raise tokens.error(f"alignment {align} is not a power of two", at)
    return align


def parse_register_declaration(
    tokens: Tokens, add: Callable[[str, str], None], add_range: Callable[[str, int, str], None]
) -> None:
    """After `.reg`, through the semicolon."""
    type_ = parse_type(tokens)
    while True:
        name = tokens.identifier("the name of a register")
        if tokens.accept("<"):
            at = tokens.at
            # not an expression: ">" would be its operator
            count = tokens.take()
            if not count.isdigit() or len(count) > 9:
                raise tokens.error("expected the number of registers", at)
            tokens.expect(">")
            add_range(name, int(count), type_)
        else:
            add(name, type_)
        if not tokens.accept(","):
            break
    tokens.expect(";")


@dataclass(slots=True)
class _DeclaredShape:
    elements: int = 1
    dims: tuple[int, ...] = ()
    unsized: bool = False  # the first dimension is `[]`


def _parse_shape(tokens: Tokens) -> _DeclaredShape:
    shape = _DeclaredShape()
    while tokens.accept("["):
        if tokens.items[tokens.at] == "]":
            if shape.dims or shape.unsized:
                raise tokens.error("only the first dimension of an array may be left open")
            shape.unsized = True
        else:
            at = tokens.at
            size = parse_integer(tokens)
            if size < 0 or size > 1 << 48:
                raise tokens.error(f"array dimension {size} is out of range", at)
            shape.dims = (*shape.dims, size)
            shape.elements *= size
            if shape.elements > 1 << 48 or len(shape.dims) > 16:
                raise tokens.error("array too large", at)
        tokens.expect("]")
    return shape


class _Initializer:
    """Collects the bytes of `= {...}`, nested braces filling the inner dimensions of the array."""

    def __init__(self, tokens: Tokens, type_: str, shape: _DeclaredShape) -> None:
        self.tokens = tokens
        self.type = type_
        self.size = TYPE_BITS[type_] // 8
        self.dims = (None, *shape.dims) if shape.unsized else shape.dims
        self.data = bytearray()
        self.relocations: list[Relocation] = []

    def parse(self, level: int = 0) -> None:
        tokens = self.tokens
        if tokens.items[tokens.at] != "{":
            self._element()
            return
        if level >= len(self.dims):
            raise tokens.error("more braces than the variable has dimensions")
        tokens.at += 1
        start = len(self.data)
        while tokens.items[tokens.at] != "}":
            self.parse(level + 1)
            if not tokens.accept(","):
                break
        if tokens.items[tokens.at] != "}":
            tokens.unexpected("',' or '}'")
        tokens.at += 1
        nbytes = self._nbytes(level)
        if nbytes is not None:
            if nbytes > _LARGEST_INITIALIZED:
                raise tokens.error("initialized variable too large")
            if len(self.data) - start > nbytes:
                raise tokens.error("more values than the variable has elements")
            self.data.extend(bytes(nbytes - (len(self.data) - start)))

    def _nbytes(self, level: int) -> int | None:
        nbytes = self.size
        for size in self.dims[level:]:
            if size is None:
                return None
            nbytes *= size
        return nbytes

    def _element(self) -> None:
        tokens = self.tokens
        token = tokens.items[tokens.at]
        string = unquote(token)
        if string is not None:
            if self.size != 1:
                raise tokens.error(f"a string initializes bytes, not .{self.type}")
            self.data.extend(string.encode())
            tokens.at += 1
        elif is_identifier(token):
            self._address(None)
        elif tokens.items[tokens.at + 1 : tokens.at + 2] == ["("] and token[:1].isdigit():
            self._address(parse_integer(tokens))
        else:
            self._number()

    def _address(self, mask: int | None) -> None:
        tokens = self.tokens
        if mask is not None:
            tokens.expect("(")
        token = tokens.identifier("the name of a variable or function")
        generic = token == "generic" and tokens.accept("(")
        if generic:
            token = tokens.identifier("the name of a variable or function")
            tokens.expect(")")
        addend = parse_integer(tokens) if tokens.items[tokens.at] in ("+", "-") else 0
        if mask is not None:
            tokens.expect(")")
        self.relocations.append(Relocation(len(self.data), self.size, token, addend, generic, mask))
        self.data.extend(bytes(self.size))

    def _number(self) -> None:
        tokens, at = self.tokens, self.tokens.at
        value = parse_constant(tokens)
        if value.kind == "int":
            if value.bits and self.type in ("f32", "f64"):
                raise tokens.error("an integer initializes a floating-point variable", at)
            bits = value.bits & ((1 << 8 * self.size) - 1)
            if not -(1 << 8 * self.size - 1) <= value.bits < 1 << 8 * self.size:
                raise tokens.error(f"{value.bits} does not fit into .{self.type}", at)
        elif value.kind == "f64" and self.size == 4:
            double = struct.unpack("<d", struct.pack("<Q", value.bits))[0]
            try:
                bits = int.from_bytes(struct.pack("<f", double), "little")
            except OverflowError:
                raise tokens.error(f"{double} does not fit into .{self.type}", at) from None
        elif self.size == {"f32": 4, "f64": 8}[value.kind]:
            bits = value.bits
        else:
            raise tokens.error(f"{value.kind} constant for a variable of type .{self.type}", at)
        self.data.extend(bits.to_bytes(self.size, "little"))


def parse_variables(
    tokens: Tokens,
    space: str,
    rename: Callable[[str], str],
    *,
    extern: bool = False,
    visible: bool = False,
) -> list[Variable]:
    """After the state space, through the semicolon. `rename` declares a name and returns the unique one."""
    align = None
    while tokens.items[tokens.at] in (".align", ".attribute"):
        if tokens.take() == ".align":
            align = _alignment(tokens)
        else:
            skip_parentheses(tokens)
    type_ = parse_type(tokens)
    if type_ == "pred":
        raise tokens.error("a variable in memory cannot be of type .pred", tokens.at - 1)
    size = TYPE_BITS[type_] // 8
    variables = []
    while True:
        line = tokens.line()
        at = tokens.at
        name = rename(tokens.identifier("the name of a variable"))
        shape = _parse_shape(tokens)
        elements = 0 if shape.unsized else shape.elements
        data: bytes | None = None
        relocations: tuple[Relocation, ...] = ()
        if tokens.accept("="):
            if space not in ("global", "const"):
                raise tokens.error(f"a .{space} variable cannot have an initializer", at)
            initializer = _Initializer(tokens, type_, shape)
            initializer.parse()
            if shape.unsized:
                elements = len(initializer.data) // size
            if elements * size > _LARGEST_INITIALIZED:
                raise tokens.error("initialized variable too large", at)
            data = bytes(initializer.data).ljust(elements * size, b"\0")
            if len(data) > elements * size:
                raise tokens.error("more values than the variable has elements", at)
            relocations = tuple(initializer.relocations)
        variables.append(
            Variable(
                name, space, type_, elements, elements * size, align or size, data, relocations, extern, visible, line
            )
        )
        if not tokens.accept(","):
            break
    tokens.expect(";")
    return variables


def parse_parameters(tokens: Tokens) -> tuple[Parameter, ...]:
    """`(.param .b32 a, .param .align 8 .b8 b[16], ...)`"""
    tokens.expect("(")
    parameters: list[Parameter] = []
    while tokens.items[tokens.at] != ")":
        if parameters:
            tokens.expect(",")
        parameters.append(_parameter(tokens))
    tokens.at += 1
    return tuple(parameters)


def _parameter(tokens: Tokens) -> Parameter:
    space = tokens.items[tokens.at]
    if space not in (".param", ".reg"):
        tokens.unexpected(".param")
    tokens.at += 1
    align = _alignment(tokens) if tokens.accept(".align") else None
    type_ = parse_type(tokens)
    if tokens.accept(".ptr"):
        if tokens.items[tokens.at] in SPACES:
            tokens.at += 1
        if tokens.accept(".align"):
            _alignment(tokens)  # of what it points to
    name = "_" if tokens.accept("_") else tokens.identifier("the name of a parameter")
    shape = _parse_shape(tokens)
    nbytes = 0 if shape.unsized else shape.elements * (TYPE_BITS[type_] // 8)
    return Parameter(name, type_, nbytes, align or max(TYPE_BITS[type_] // 8, 1), space[1:])


def skip_parentheses(tokens: Tokens) -> None:
    """Whether no run has an error that nobody accepted."""
    tokens.expect("(")
    depth = 1
    while depth:
        token = tokens.take()
        if token == "":
            tokens.unexpected("')'")
        depth += (token == "(") - (token == ")")
