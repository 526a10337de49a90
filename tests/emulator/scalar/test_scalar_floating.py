"""Floating-point arithmetic against exact rational arithmetic (PTX ISA 9.7.3-9.7.6)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.lanes import check, run_lanes
from tests.emulator.number_formats import NAN, Real, add, decode, encode, flush, multiply, negate, samples

WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
COUNT = 400
MODES = ("rn", "rz", "rm", "rp")
SIGNS = {"f32": 31, "f64": 63, "f16": 15, "bf16": 15}


def _arguments(name: str, count: int, n: int = COUNT):
    """Random operands; a third are related, so that sums cancel and products meet midpoints."""
    first = samples(name, n, 1)
    out = [first]
    for k in range(1, count):
        other = samples(name, n, 10 + k)
        near = first ^ first.dtype.type(1 << SIGNS[name]) ^ first.dtype.type(k)
        out.append(np.where(np.arange(n) % 3 == 0, near, other))
    return out


def _operation(op: str, mode: str) -> Callable[..., Real]:
    return {
        "add": lambda x, y: add(x, y, mode),
        "sub": lambda x, y: add(x, negate(y), mode),
        "mul": multiply,
        "fma": lambda x, y, z: add(multiply(x, y), z, mode),
    }[op]


def _saturate(name: str, bits: int) -> int:
    x = decode(name, bits)
    if x.kind == "nan" or x.negative:
        return 0
    return min(bits, encode(name, Real(False, "number", Fraction(1))))


def _expected(name: str, op: str, mode: str, flags: str) -> Callable[..., int | None]:
    """NaN results are canonical for f16 and bf16 and of no given payload for the others."""

    def result(*bits: int) -> int | None:
        if "ftz" in flags:
            bits = tuple(flush(name, b) for b in bits)
        x = _operation(op, mode)(*(decode(name, b) for b in bits))
        if "relu" in flags and x.kind != "nan" and x.negative:
            x = Real(False)
        if x.kind == "nan" and name in ("f32", "f64") and "sat" not in flags:
            return None
        out = encode(name, x, mode)
        out = flush(name, out) if "ftz" in flags else out
        return _saturate(name, out) if "sat" in flags else out

    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_every_rounding(op: str, name: str, mode: str) -> None:
    n = 3 if op == "fma" else 2
    operands = ", ".join(f"%{x}" for x in "abc"[:n])
    check(f"{op}.{mode}.{name} %d0, {operands};", _arguments(name, n), WIDTH[name], _expected(name, op, mode, ""))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("flags", [".ftz", ".sat", ".ftz.sat"])
@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_ftz_and_sat(op: str, mode: str, flags: str) -> None:
    n = 3 if op == "fma" else 2
    operands = ", ".join(f"%{x}" for x in "abc"[:n])
    expected = _expected("f32", op, mode, flags)
    check(f"{op}.{mode}{flags}.f32 %d0, {operands};", _arguments("f32", n), 32, expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_product_is_flushed_by_its_size_before_it_is_rounded(mode: str) -> None:
    """2^-126 less half a step is below the normal numbers, though it rounds to the least of them."""
    a = np.array([(2 - 2.0**-23) * 2.0**-64], np.float32).view(np.uint32)
    b = np.array([2.0**-63], np.float32).view(np.uint32)
    assert run_lanes(f"mul.{mode}.ftz.f32 %d0, %a, %b;", [a, b], [32])[0].tolist() == [0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_pairs_of_f32(op: str, mode: str, ftz: str) -> None:
    n = 3 if op == "fma" else 2
    halves = [_arguments("f32", n), [np.roll(x, 7) for x in _arguments("f32", n)]]
    inputs = [
        low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32) for low, high in zip(*halves, strict=True)
    ]
    got, active = run_lanes(f"{op}.{mode}{ftz}.f32x2 %d0, {', '.join(f'%{x}' for x in 'abc'[:n])};", inputs, [64])
    expected = _expected("f32", op, mode, ftz)
    for value, lane in zip(got.tolist(), active.tolist(), strict=True):
        for half in (0, 1):
            want = expected(*(int(x[lane]) for x in halves[half]))
            assert want is None or value >> 32 * half & 0xFFFFFFFF == want


_HALF_FORMS = [
    *((op, name, "") for op in ("add", "sub", "mul", "fma") for name in ("f16", "bf16")),
    *((op, "f16", flags) for op in ("add", "mul", "fma") for flags in (".ftz", ".sat")),
    ("fma", "f16", ".relu"),
    ("fma", "bf16", ".relu"),
]


@pytest.mark.parametrize(("op", "name", "flags"), _HALF_FORMS)
def test_half_precision(op: str, name: str, flags: str) -> None:
    n = 3 if op == "fma" else 2
    names = ", ".join(f"%{x}" for x in "abc"[:n])
    one = _expected(name, op, "rn", flags)
    inputs = _arguments(name, n, 900)
    mode = ".rn" if op == "fma" else ""
    check(f"{op}{mode}{flags}.{name} %d0, {names};", inputs, 16, one)
    pairs = [x.astype(np.uint32) | np.roll(x, 11).astype(np.uint32) << 16 for x in inputs]

    def two(*bits: int) -> int:
        low, high = (one(*(b >> s & 0xFFFF for b in bits)) for s in (0, 16))
        assert low is not None and high is not None  # noqa: PT018
        return low | high << 16

    check(f"{op}{mode}{flags}.{name}x2 %d0, {names};", pairs, 32, two)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_an_out_of_bounds_factor_makes_zero(name: str, relu: str) -> None:
    """The NaN that a tensor copy fills in does so, any other stays one; the summand is no factor."""
    one = _expected(name, "fma", "rn", relu)
    values = [
        0x7FF7,
        0x7FFF,
        0xFFF7,
        encode(name, Real(False, "number", Fraction(3))),
        encode(name, Real(True, "inf")),
        0,
    ]
    grid = [np.array(x, np.uint16) for x in zip(*itertools.product(values, repeat=3), strict=True)]
    inputs = [np.tile(x, 2) for x in grid]

    def clamped(a: int, b: int, c: int) -> int | None:
        return 0 if 0x7FF7 in (a, b) else one(a, b, c)

    check(f"fma.rn.oob{relu}.{name} %d0, %a, %b, %c;", inputs, 16, clamped)
    pairs = [x.astype(np.uint32) | np.roll(x, 5).astype(np.uint32) << 16 for x in inputs]

    def both(*bits: int) -> int:
        low, high = (clamped(*(b >> s & 0xFFFF for b in bits)) for s in (0, 16))
        assert low is not None and high is not None  # noqa: PT018
        return low | high << 16

    check(f"fma.rn.oob{relu}.{name}x2 %d0, %a, %b, %c;", pairs, 32, both)


def _extreme(name: str, op: str, flags: str) -> Callable[..., int]:
    nan = encode(name, NAN)

    def key(bits: int) -> tuple[Fraction, int]:
        x = decode(name, bits)
        value = Fraction(2) ** 2000 * (-1 if x.negative else 1) if x.kind == "inf" else x.value
        return value, 0 if x.negative else 1

    def two(a: int, b: int) -> int:
        nans = [decode(name, v).kind == "nan" for v in (a, b)]
        if all(nans) and name == "f64":
            return b | 1 << 51
        if all(nans) or (any(nans) and "NaN" in flags):
            return nan
        if any(nans):
            return b if nans[0] else a
        return (min if op == "min" else max)(a, b, key=key)

    def result(*bits: int) -> int:
        if "ftz" in flags:
            bits = tuple(flush(name, b) for b in bits)
        sign = 1 << SIGNS[name]
        if "abs" in flags:
            bits, signs = tuple(b & ~sign for b in bits), [b & sign for b in bits]
        out = bits[0]
        for b in bits[1:]:
            out = two(out, b)
        if "xorsign" in flags and decode(name, out).kind != "nan":
            out |= signs[0] ^ signs[1]
        return out

    return result


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("flags", ["", ".ftz", ".NaN", ".xorsign.abs", ".ftz.NaN.xorsign.abs"])
def test_min_and_max_of_two(op: str, name: str, flags: str) -> None:
    if name == "f64":
        flags = ""
    check(f"{op}{flags}.{name} %d0, %a, %b;", _arguments(name, 2), WIDTH[name], _extreme(name, op, flags))


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("flags", ["", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_min_and_max_of_three(op: str, flags: str) -> None:
    check(f"{op}{flags}.f32 %d0, %a, %b, %c;", _arguments("f32", 3), 32, _extreme("f32", op, flags))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_signs(name: str) -> None:
    sign = 1 << SIGNS[name]
    inputs = _arguments(name, 2)

    def unless_nan(a: int, result: int) -> int:
        """As an H200 does, which adds zero; a NaN of f64 keeps its bits and is quiet."""
        if decode(name, a).kind != "nan":
            return result
        return a | 1 << 51 if name == "f64" else sign - 1

    check(f"neg.{name} %d0, %a;", inputs[:1], WIDTH[name], lambda a: unless_nan(a, a ^ sign))
    check(f"abs.{name} %d0, %a;", inputs[:1], WIDTH[name], lambda a: unless_nan(a, a & ~sign))
    if name in ("f32", "f64"):
        check(f"copysign.{name} %d0, %a, %b;", inputs, WIDTH[name], lambda a, b: a & sign | b & ~sign)


def _compare(name: str, op: str) -> Callable[[int, int], bool]:
    def result(a: int, b: int) -> bool:
        x, y = decode(name, a), decode(name, b)
        unordered = "nan" in (x.kind, y.kind)
        if op in ("num", "nan"):
            return unordered == (op == "nan")
        if unordered:
            return op.endswith("u")
        huge = Fraction(2) ** 2000
        p, q = (v.value if v.kind == "number" else -huge if v.negative else huge for v in (x, y))
        return {"eq": p == q, "ne": p != q, "lt": p < q, "le": p <= q, "gt": p > q, "ge": p >= q}[op.removesuffix("u")]

    return result


_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]


@pytest.mark.parametrize("op", _COMPARISONS)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_comparisons(op: str, name: str) -> None:
    inputs = _arguments(name, 2)
    inputs[1] = np.where(np.arange(COUNT) % 4 == 0, inputs[0], inputs[1])
    compare = _compare(name, op)
    check(f"setp.{op}.{name} %p0, %a, %b;", inputs, 1, compare)
    if name != "f64":
        check(f"set.{op}.u32.{name} %d0, %a, %b;", inputs, 32, lambda a, b: 0xFFFFFFFF if compare(a, b) else 0)


def test_setp_of_pairs_gives_two_predicates() -> None:
    low, high = _arguments("f16", 2), _arguments("f16", 2)[::-1]
    inputs = [a.astype(np.uint32) | b.astype(np.uint32) << 16 for a, b in zip(low, high, strict=True)]
    p, q, active = run_lanes("setp.lt.f16x2 %p0|%p1, %a, %b;", inputs, [1, 1])
    less = _compare("f16", "lt")
    for k, lane in enumerate(active.tolist()):
        assert p[k] == less(int(low[0][lane]), int(low[1][lane]))
        assert q[k] == less(int(high[0][lane]), int(high[1][lane]))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("to", ["u32", "s32"])
def test_set_of_pairs_gives_a_mask_of_their_halves(name: str, to: str) -> None:
    """What `__hltu2_mask` and its kin are."""
    low, high = _arguments(name, 2), _arguments(name, 2)[::-1]
    inputs = [a.astype(np.uint32) | b.astype(np.uint32) << 16 for a, b in zip(low, high, strict=True)]
    less = _compare(name, "ltu")

    def mask(a: int, b: int) -> int:
        return 0xFFFF * less(a & 0xFFFF, b & 0xFFFF) | 0xFFFF0000 * less(a >> 16, b >> 16)

    check(f"set.ltu.{to}.{name}x2 %d0, %a, %b;", inputs, 32, mask)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("test", ["finite", "infinite", "number", "notanumber", "normal", "subnormal"])
def test_properties(name: str, test: str) -> None:
    def expected(bits: int) -> bool:
        x = decode(name, bits)
        subnormal = x.kind == "number" and x.magnitude != 0 and flush(name, bits) != bits
        return {
            "finite": x.kind == "number",
            "infinite": x.kind == "inf",
            "number": x.kind != "nan",
            "notanumber": x.kind == "nan",
            "normal": x.kind == "number" and not subnormal,
            "subnormal": subnormal,
        }[test]

    check(f"testp.{test}.{name} %p0, %a;", _arguments(name, 1), 1, expected)


@pytest.mark.parametrize("mode", MODES)
def test_division_rounds_as_told(mode: str) -> None:
    def divide(a: int, b: int) -> int | None:
        x, y = decode("f32", a), decode("f32", b)
        if x.kind != "number" or y.kind != "number" or y.magnitude == 0:
            return None
        return encode("f32", Real(x.negative != y.negative, "number", x.magnitude / y.magnitude), mode)

    inputs = _arguments("f32", 2)
    check(f"div.{mode}.f32 %d0, %a, %b;", inputs, 32, divide)
    check(f"rcp.{mode}.f32 %d0, %a;", inputs[:1], 32, lambda a: divide(0x3F800000, a))


@pytest.mark.parametrize("mode", MODES)
def test_square_root_rounds_as_told(mode: str) -> None:
    def check_root(a: int, root: int) -> None:
        x, r = decode("f32", a), decode("f32", root)
        if x.kind != "number" or (x.negative and x.magnitude):
            return
        step = [decode("f32", max(root + d, 0)).magnitude for d in (-1, 1)]
        low, high = ((r.magnitude + s) / 2 for s in step)
        fits = {
            "rn": low**2 <= x.magnitude <= high**2,
            "rz": r.magnitude**2 <= x.magnitude < step[1] ** 2,
            "rp": (step[0] ** 2 < x.magnitude or not root) and x.magnitude <= r.magnitude**2,
        }
        assert fits["rz" if mode == "rm" else mode] or x.magnitude == 0, (hex(a), hex(root))

    inputs = _arguments("f32", 1)
    got, active = run_lanes(f"sqrt.{mode}.f32 %d0, %a;", inputs, [32])
    for root, lane in zip(got.tolist(), active.tolist(), strict=True):
        check_root(int(inputs[0][lane]), root)


_APPROXIMATIONS = [  # the errors that PTX ISA 9.7.3 and 9.7.4 promise, relative or absolute
    ("tanh", "f32", np.tanh, 2**-10.9),
    ("sin", "f32", np.sin, 2**-20),
    ("cos", "f32", np.cos, 2**-20),
    ("ex2", "f32", np.exp2, 2**-21),
    ("ex2", "f16", np.exp2, 2**-9.9),
    ("tanh", "f16", np.tanh, 2**-10.987),
    ("tanh", "bf16", np.tanh, 2**-8 + 2**-16),  # the ISA says 2^-8; an H200's are up to 3e-7 beyond it
]


@pytest.mark.parametrize(("op", "name", "function", "tolerance"), _APPROXIMATIONS)
def test_approximations(op: str, name: str, function, tolerance: float) -> None:
    values = np.random.default_rng(2).uniform(-3, 3, 500)
    bits = np.array([encode(name, Real(bool(v < 0), "number", abs(Fraction(float(v))))) for v in values])
    inputs = [bits.astype(np.uint32 if name == "f32" else np.uint16)]
    got, active = run_lanes(f"{op}.approx.{name} %d0, %a;", inputs, [WIDTH[name]])
    x = np.array([float(decode(name, int(inputs[0][n])).value) for n in active])
    y = np.array([float(decode(name, int(v)).value) for v in got])
    absolute = op in ("sin", "cos") or (op == "tanh" and name != "f32")
    np.testing.assert_allclose(y, function(x), rtol=0 if absolute else tolerance, atol=tolerance if absolute else 0)


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
def test_mixed_precision_addition(narrow: str) -> None:
    a, c = samples(narrow, 300, 3), samples("f32", 300, 4)

    def expected(x: int, y: int) -> int | None:
        total = add(decode(narrow, x), decode("f32", y))
        return None if total.kind == "nan" else encode("f32", total)

    check(f"add.f32.{narrow} %d0, %a, %b;", [a, c], 32, expected)
