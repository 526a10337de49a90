"""Constants and constant expressions (PTX ISA 4.5): 64-bit integers with a signedness, and floating-point literals."""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from fmha.emulator.ptx.lexer import Tokens
from fmha.emulator.ptx.parsed_module import Immediate

_INTEGER = re.compile(
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|(?P<oct>0[0-7]*)|(?P<dec>[1-9]\d*))U?\Z", re.ASCII
)
_FLOAT = re.compile(r"(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)\Z", re.ASCII)
_HEX_FLOAT = re.compile(r"0(?:[fF](?P<f32>[0-9a-fA-F]{8})|[dD](?P<f64>[0-9a-fA-F]{16}))\Z", re.ASCII)
_MASK = (1 << 64) - 1
_DEEPEST = 50  # levels of parentheses, unary operators and ?:

# (value, unsigned): the value of an integer constant and whether it is .u64 rather than .s64
_Integer = tuple[int, bool]

_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_CONTINUE = frozenset((*_PRECEDENCE, "?"))  # what has a literal before it be a part of an expression


def _wrap(value: int, unsigned: bool) -> _Integer:
    value &= _MASK
    return (value if unsigned or value < 1 << 63 else value - (1 << 64)), unsigned


@lru_cache(maxsize=4096)
def _literal(token: str) -> _Integer | Immediate | None:
    match = _INTEGER.match(token)
    if match is not None:
        base = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}[match.lastgroup or "dec"]
        digits = match[match.lastgroup or "dec"].lstrip("0") or "0"
        if len(digits) > 64:
            return None
        value = int(digits, base)
        if value > _MASK:
            return None
        return value, token.endswith("U") or value >= 1 << 63
    match = _HEX_FLOAT.match(token)
    if match is not None:
        return Immediate(int(match["f32"], 16), "f32") if match["f32"] else Immediate(int(match["f64"], 16), "f64")
    if _FLOAT.match(token):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(token)))[0], "f64")
    return None


def _negate(value: Immediate) -> Immediate:
    return Immediate(value.bits ^ (1 << (31 if value.kind == "f32" else 63)), value.kind)


def _unary(tokens: Tokens, depth: int) -> _Integer | Immediate:
    if depth > _DEEPEST:
        raise tokens.error("constant expression nested too deeply")
    token = tokens.items[tokens.at]
    if token in ("-", "+", "~", "!"):
        at = tokens.at
        tokens.at += 1
        operand = _unary(tokens, depth + 1)
        if isinstance(operand, Immediate):
            if token in ("~", "!"):
                raise tokens.error(f"'{token}' of a floating-point constant", at)
            return _negate(operand) if token == "-" else operand
        value, unsigned = operand
        if token == "!":
            return int(value == 0), False
        return _wrap({"-": -value, "+": value, "~": ~value}[token], unsigned)
    if token == "(":
        tokens.at += 1
        if tokens.items[tokens.at] in (".s64", ".u64"):
            unsigned = tokens.take() == ".u64"
            tokens.expect(")")
            at = tokens.at
            operand = _unary(tokens, depth + 1)
            if isinstance(operand, Immediate):
                raise tokens.error("cast of a floating-point constant", at)
            return _wrap(operand[0], unsigned)
        operand = _ternary(tokens, depth + 1)
        tokens.expect(")")
        return operand
    if not token[:1].isdigit():
        tokens.unexpected("a constant")
    literal = _literal(token)
    if literal is None:
        raise tokens.error(f"{token[:40]!r} is not a constant of at most 64 bits")
    tokens.at += 1
    return literal


def _apply(tokens: Tokens, operator: str, left: _Integer, right: _Integer, at: int) -> _Integer:
    (a, a_unsigned), (b, b_unsigned) = left, right
    unsigned = a_unsigned or b_unsigned
    if operator in ("<<", ">>"):
        amount = min(b & _MASK, 64)
        return _wrap(a << amount if operator == "<<" else a >> amount, a_unsigned)
    if operator in ("&&", "||"):
        return int((a != 0 and b != 0) if operator == "&&" else (a != 0 or b != 0)), False
    a, b = _wrap(a, unsigned)[0], _wrap(b, unsigned)[0]
    if operator in ("/", "%"):
        if b == 0:
            raise tokens.error("division by zero in a constant expression", at)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return _wrap(quotient if operator == "/" else a - quotient * b, unsigned)
    if operator in ("==", "!=", "<", "<=", ">", ">="):
        truth = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
        return int(truth[operator]), False
    if operator == "*":
        return _wrap(a * b, unsigned)
    return _wrap({"+": a + b, "-": a - b, "&": a & b, "|": a | b, "^": a ^ b}[operator], unsigned)


def _binary(tokens: Tokens, lowest: int, depth: int) -> _Integer | Immediate:
    left = _unary(tokens, depth)
    while True:
        operator = tokens.items[tokens.at]
        precedence = _PRECEDENCE.get(operator, 0)
        if precedence < max(lowest, 1):
            return left
        at = tokens.at
        tokens.at += 1
        right = _binary(tokens, precedence + 1, depth)
        if isinstance(left, Immediate) or isinstance(right, Immediate):
            raise tokens.error("arithmetic on floating-point constants is not supported, except negation", at)
        left = _apply(tokens, operator, left, right, at)


def _ternary(tokens: Tokens, depth: int) -> _Integer | Immediate:
    if depth > _DEEPEST:
        raise tokens.error("constant expression nested too deeply")
    condition = _binary(tokens, 1, depth)
    if tokens.items[tokens.at] != "?":
        return condition
    at = tokens.at
    tokens.at += 1
    yes = _ternary(tokens, depth + 1)
    tokens.expect(":")
    no = _ternary(tokens, depth + 1)
    if isinstance(condition, Immediate) or isinstance(yes, Immediate) or isinstance(no, Immediate):
        raise tokens.error("arithmetic on floating-point constants is not supported, except negation", at)
    value = yes[0] if condition[0] else no[0]
    return _wrap(value, yes[1] or no[1])


_immediate = lru_cache(maxsize=4096)(Immediate)


def parse_constant(tokens: Tokens) -> Immediate:
    """A constant expression, folded. `||` and `|` bind as in C, so a caller must rule out `%p|%q` first."""
    token = tokens.items[tokens.at]
    if token[:1].isdigit() and tokens.items[tokens.at + 1] not in _CONTINUE:  # the common case: a lone literal
        literal = _literal(token)
        if literal is not None:
            tokens.at += 1
            return literal if isinstance(literal, Immediate) else _immediate(literal[0], "int")
    value = _ternary(tokens, 0)
    return value if isinstance(value, Immediate) else _immediate(value[0], "int")


def parse_integer(tokens: Tokens) -> int:
    """The value of a constant expression, its bits. PtxError for a floating-point one."""
    at = tokens.at
    value = parse_constant(tokens)
    if value.kind != "int":
        raise tokens.error("expected an integer constant", at)
    return value.bits
