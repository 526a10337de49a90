"""Floating-point formats in exact rational arithmetic: an oracle that shares nothing with the machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Format:
    exponent: int
    mantissa: int
    bias: int
    specials: str = "ieee"  # "nan": no infinity; "none": neither

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def nan(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def largest(self) -> int:
        return {"ieee": self.infinity - 1, "nan": self.nan - 1, "none": self.nan}[self.specials]


FORMATS = {
    "f16": Format(5, 10, 15),
    "bf16": Format(8, 7, 127),
    "tf32": Format(8, 10, 127),
    "f32": Format(8, 23, 127),
    "f64": Format(11, 52, 1023),
    "e4m3": Format(4, 3, 7, "nan"),
    "e5m2": Format(5, 2, 15),
    "e2m1": Format(2, 1, 1, "none"),
    "e2m3": Format(2, 3, 1, "none"),
    "e3m2": Format(3, 2, 3, "none"),
}


@dataclass(frozen=True)
class Real:
    """A number with a sign of its own, so that -0 exists; kind "number", "inf" or "nan"."""

    negative: bool
    kind: str = "number"
    magnitude: Fraction = Fraction(0)

    @property
    def value(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude


NAN = Real(False, "nan")


def real(value: Fraction, zero_negative: bool = False) -> Real:
    return Real(value < 0 or (value == 0 and zero_negative), "number", abs(value))


@functools.cache
def _power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


@functools.lru_cache(maxsize=1 << 16)
def decode(name: str, bits: int) -> Real:
    f = FORMATS[name]
    negative, field = bool(bits >> (f.bits - 1) & 1), bits & f.nan
    if f.specials == "ieee" and field >= f.infinity:
        return NAN if field > f.infinity else Real(negative, "inf")
    if f.specials == "nan" and field == f.nan:
        return NAN
    exponent, fraction = field >> f.mantissa, field & ((1 << f.mantissa) - 1)
    scale = _power(max(exponent, 1) - f.bias - f.mantissa)
    return Real(negative, "number", scale * (fraction + ((1 << f.mantissa) if exponent else 0)))


def _neighbours(f: Format, x: Fraction) -> tuple[int, Fraction, Fraction]:
    """The field of the largest representable number <= x (unbounded above), that number, and the next."""
    lowest = 1 - f.bias
    exponent = x.numerator.bit_length() - x.denominator.bit_length()  # or one more than floor(log2(x))
    exponent = max(exponent - (_power(exponent) > x), lowest)
    quantum = _power(exponent - f.mantissa)
    steps = x // quantum
    field = steps if exponent == lowest else ((exponent - lowest) << f.mantissa) + steps
    return int(field), steps * quantum, (steps + 1) * quantum


def encode(name: str, x: Real, mode: str = "rn", satfinite: bool = False) -> int:
    f = FORMATS[name]
    if x.kind == "nan":
        return f.largest if f.specials == "none" else f.nan
    sign = int(x.negative) << (f.bits - 1)
    if x.kind == "inf":
        return sign | (f.largest if satfinite or f.specials == "none" else f.infinity)
    if x.magnitude == 0:
        return sign
    field, low, high = _neighbours(f, x.magnitude)
    if x.magnitude != low:
        middle = (low + high) / 2
        up = {
            "rn": x.magnitude > middle or (x.magnitude == middle and field & 1 == 1),
            "rna": x.magnitude >= middle,
            "rz": False,
            "rm": x.negative,
            "rp": not x.negative,
        }[mode]
        field += up
    if field > f.largest:
        inwards = mode == "rz" or mode == ("rp" if x.negative else "rm")
        field = f.largest if satfinite or inwards or f.specials == "none" else f.infinity
    return sign | field


def flush(name: str, bits: int) -> int:
    f = FORMATS[name]
    return bits if bits & f.infinity else bits & (1 << (f.bits - 1))


def add(x: Real, y: Real, mode: str = "rn") -> Real:
    if "nan" in (x.kind, y.kind) or (x.kind == y.kind == "inf" and x.negative != y.negative):
        return NAN
    if x.kind == "inf" or y.kind == "inf":
        return x if x.kind == "inf" else y
    same = x.negative == y.negative
    return real(x.value + y.value, x.negative if same else mode == "rm")


def multiply(x: Real, y: Real) -> Real:
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return NAN
    if "inf" in (x.kind, y.kind):
        zero = any(v.kind == "number" and v.magnitude == 0 for v in (x, y))
        return NAN if zero else Real(negative, "inf")
    return Real(negative, "number", x.magnitude * y.magnitude)


def negate(x: Real) -> Real:
    return NAN if x.kind == "nan" else Real(not x.negative, x.kind, x.magnitude)


def samples(name: str, count: int, seed: int = 0) -> NDArray[np.unsignedinteger]:
    """Bits of a format: zeros, denormals, limits, infinities, NaN, values near one another, and random ones."""
    f = FORMATS[name]
    one = f.bias << f.mantissa
    edges = [0, 1, 2, f.largest, f.largest - 1, one, one + 1, one - 1, one + (1 << f.mantissa - 1)]
    edges += [1 << f.mantissa, (1 << f.mantissa) - 1, f.nan]
    if f.specials == "ieee":
        edges += [f.infinity, f.infinity + 1]
    edges += [e | 1 << (f.bits - 1) for e in edges]
    rng = np.random.default_rng(seed)
    wild = rng.integers(0, 1 << f.bits, count, dtype=np.uint64)
    tame = (rng.integers(0, 8 << f.mantissa, count, dtype=np.uint64) + np.uint64(max(one - (4 << f.mantissa), 0))) | (
        rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(f.bits - 1)
    )
    mixed = np.concatenate([np.array(edges, dtype=np.uint64), np.where(rng.random(count) < 0.5, wild, tame)])
    storage = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[max(1, 1 << ((f.bits + 7) // 8 - 1).bit_length())]
    rng.shuffle(mixed)
    return mixed.astype(storage)[:count] if count > len(edges) else mixed.astype(storage)
