"""The operands of an instruction."""

from __future__ import annotations

import re
from dataclasses import replace

from fmha.emulator.ptx.expressions import parse_constant, parse_integer
from fmha.emulator.ptx.lexer import Tokens, is_identifier
from fmha.emulator.ptx.parsed_module import (
    Address,
    CallOperands,
    Immediate,
    LabelRef,
    Negated,
    Operand,
    PredicatePair,
    Register,
    Selected,
    Sink,
    SymbolRef,
    TensorAddress,
    Vector,
)
from fmha.emulator.ptx.scope import Scope

SINK = Sink()
_PART = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")
_CONSTANT_STARTS = frozenset("0123456789-+~(!")


def parse_operands(tokens: Tokens, scope: Scope) -> tuple[Operand, ...]:
    """Up to and including the semicolon.

    A name that is no register, variable or special register becomes a `LabelRef` of the name as written: what it means
    is known only when the function has ended (`resolve`).
    """
    items, names = tokens.items, scope.names
    operands: list[Operand] = []
    if items[tokens.at] == ";":
        tokens.at += 1
        return ()
    while True:
        found = names.get(items[tokens.at])
        if type(found) is Register and items[tokens.at + 1] in (",", ";"):
            scope.function.registers[found.name] = found.type
            operands.append(found)
            tokens.at += 1
        else:
            operands.append(parse_operand(tokens, scope))
        token = items[tokens.at]
        tokens.at += 1
        if token == ",":
            continue
        if token == ";":
            return tuple(operands)
        tokens.at -= 1
        tokens.unexpected("',' or ';'")


def parse_operand(tokens: Tokens, scope: Scope, nested: bool = False) -> Operand:
    """The next operand, with names resolved as far as they are declared. PtxError for what is none."""
    token = tokens.items[tokens.at]
    if token == "[":
        return _address(tokens, scope)
    if token == "{":
        if nested:
            raise tokens.error("a vector within a vector")
        return Vector(_vector(tokens, scope))
    if token == "!" and is_identifier(tokens.items[tokens.at + 1]):
        tokens.at += 1
        return Negated(parse_register(tokens, scope))
    if token == "-" and isinstance(scope.find(tokens.items[tokens.at + 1].split(".")[0]), Register):
        tokens.at += 1
        return replace(_selected(tokens, scope), minus=True)
    if token[:1] in _CONSTANT_STARTS:
        return parse_constant(tokens)
    if token == "_":
        tokens.at += 1
        return _pair(tokens, scope, SINK) if tokens.items[tokens.at] == "|" else SINK
    named = scope.find(token)
    if named is None or type(named) is LabelRef:
        return _unknown(tokens, scope, nested)
    tokens.at += 1
    following = tokens.items[tokens.at]
    if type(named) is Register:
        return _pair(tokens, scope, named) if following == "|" else named
    if type(named) is SymbolRef:
        if following == "[" and not nested:
            return _element(tokens, scope, named.name)
        if following in ("+", "-"):
            return SymbolRef(named.name, parse_integer(tokens))
    return named


def _element(tokens: Tokens, scope: Scope, name: str) -> SymbolRef:
    """`a[1]`: ptxas counts scalars, also of an array of vectors, and takes one index, also of two dimensions."""
    size = scope.function.element_bytes.get(name)
    if size is None:
        raise tokens.error(f"{name!r} is no array")
    tokens.expect("[")
    if isinstance(scope.find(tokens.items[tokens.at]), Register):
        raise tokens.error("a register as the index of an array is not modelled")
    index = parse_integer(tokens)
    tokens.expect("]")
    return SymbolRef(name, (index if index < 1 << 63 else index - (1 << 64)) * size, element=True)


def _unknown(tokens: Tokens, scope: Scope, nested: bool) -> Operand:
    """A variable or function of the module, a label, or a mistake."""
    token = tokens.items[tokens.at]
    if not is_identifier(token):
        if "." in token and isinstance(scope.find(token.split(".")[0]), Register):
            return _selected(tokens, scope)
        tokens.unexpected("an operand")
    if scope.function.in_module(token) and scope.find(token) is None:
        tokens.at += 1
        if tokens.items[tokens.at] == "[" and not nested:
            return _element(tokens, scope, token)
        offset = parse_integer(tokens) if tokens.items[tokens.at] in ("+", "-") else 0
        return SymbolRef(token, offset)
    tokens.at += 1
    return LabelRef(token)


def _selected(tokens: Tokens, scope: Scope) -> Selected:
    """A register and, of a video instruction's operand, the part that it takes."""
    token = tokens.items[tokens.at]
    base, _, part = token.partition(".")
    if part and not _PART.fullmatch(part):
        raise tokens.error(f"components of vector registers ({token!r}) are not supported")
    found = scope.find(base)
    assert isinstance(found, Register)
    scope.function.registers[found.name] = found.type
    tokens.at += 1
    return Selected(found, part)


def _pair(tokens: Tokens, scope: Scope, first: Register | Sink) -> PredicatePair:
    tokens.expect("|")
    second = SINK if tokens.accept("_") else parse_register(tokens, scope)
    return PredicatePair(first, second)


def parse_register(tokens: Tokens, scope: Scope) -> Register:
    """The next token as a register. PtxError for one that is not declared."""
    token = tokens.items[tokens.at]
    found = scope.find(token)
    if not isinstance(found, Register):
        if is_identifier(token):
            raise tokens.error(f"register {token!r} is not declared")
        tokens.unexpected("a register")
    tokens.at += 1
    return found


def _vector(tokens: Tokens, scope: Scope) -> tuple[Operand, ...]:
    tokens.expect("{")
    operands = [parse_operand(tokens, scope, nested=True)]
    while tokens.accept(","):
        operands.append(parse_operand(tokens, scope, nested=True))
    if tokens.items[tokens.at] != "}":
        tokens.unexpected("',' or '}'")
    tokens.at += 1
    return tuple(operands)


def _address(tokens: Tokens, scope: Scope) -> Address | TensorAddress:
    tokens.expect("[")
    at = tokens.at
    base = parse_operand(tokens, scope, nested=True)
    offset = 0
    if isinstance(base, Register):
        if tokens.items[tokens.at] in ("+", "-"):
            offset = parse_integer(tokens)
    elif isinstance(base, LabelRef):
        raise tokens.error(f"{base.name!r} is not declared", at)
    elif isinstance(base, SymbolRef):
        base, offset = SymbolRef(base.name), base.offset
    elif not isinstance(base, Immediate) or base.kind != "int":
        raise tokens.error("an address is a register, a variable or a constant, plus a constant", at)
    address = Address(base, offset)
    if tokens.accept(","):
        if tokens.items[tokens.at] != "{":
            tokens.unexpected("'{' and coordinates")
        coordinates = _vector(tokens, scope)
        tokens.expect("]")
        return TensorAddress(address, coordinates)
    tokens.expect("]")
    return address


def _list(tokens: Tokens, scope: Scope) -> tuple[Operand, ...]:
    """`(a, b)`"""
    tokens.expect("(")
    operands: list[Operand] = []
    while tokens.items[tokens.at] != ")":
        if operands:
            tokens.expect(",")
        operands.append(parse_operand(tokens, scope))
    tokens.at += 1
    return tuple(operands)


def parse_call(tokens: Tokens, scope: Scope) -> CallOperands:
    """Up to and including the semicolon. The prototype, a label, is as written until `resolve`."""
    returns: tuple[Operand, ...] = ()
    args: tuple[Operand, ...] = ()
    prototype = None
    if tokens.items[tokens.at] == "(":
        returns = _list(tokens, scope)
        tokens.expect(",")
    named = scope.find(tokens.items[tokens.at])
    target: Register | SymbolRef
    if isinstance(named, Register):
        target = named
        tokens.at += 1
    else:
        target = SymbolRef(tokens.identifier("a function"))
    if tokens.accept(","):
        if tokens.items[tokens.at] == "(":
            args = _list(tokens, scope)
            if tokens.accept(","):
                prototype = tokens.identifier("the label of a prototype")
        else:
            prototype = tokens.identifier("arguments or the label of a prototype")
    tokens.expect(";")
    return CallOperands(returns, target, args, prototype)


def unresolved(operand: Operand) -> bool:
    """Whether it has labels, which may be declared further down."""
    kind = type(operand)
    if kind is LabelRef:
        return True
    if isinstance(operand, Vector):
        return any(type(item) is LabelRef for item in operand.items)
    if isinstance(operand, TensorAddress):
        return any(type(item) is LabelRef for item in operand.coordinates)
    if isinstance(operand, CallOperands):
        return operand.prototype is not None or any(type(item) is LabelRef for item in operand.returns + operand.args)
    return False


class UndeclaredError(Exception):
    """A name that nothing in the function or the module declares."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def resolve(operand: Operand, scope: Scope) -> Operand:
    """The operand with each name that `parse_operands` left open replaced by the label or function that it means."""
    if isinstance(operand, LabelRef):
        label = scope.find_label(operand.name)
        if label is not None:
            return label
        if scope.function.in_module(operand.name):
            return SymbolRef(operand.name)
        raise UndeclaredError(operand.name)
    if isinstance(operand, Vector):
        return Vector(tuple(resolve(item, scope) for item in operand.items))
    if isinstance(operand, TensorAddress):
        return replace(operand, coordinates=tuple(resolve(item, scope) for item in operand.coordinates))
    if isinstance(operand, CallOperands):
        prototype = operand.prototype
        if prototype is not None:
            label = scope.find_label(prototype)
            if label is None:
                raise UndeclaredError(prototype)
            prototype = label.name
        returns = tuple(resolve(item, scope) for item in operand.returns)
        return CallOperands(returns, operand.target, tuple(resolve(item, scope) for item in operand.args), prototype)
    return operand
