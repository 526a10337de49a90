"""What a linear filter makes of elements, in exact numbers: docs/journal/2026-11-25-textures.md, of one H100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

# Bits of a significand, and the exponent of the least normal number.
FORMATS = {"f16": (11, -14), "f32": (24, -126)}
# Integers that are read as fractions, and which one stands for 1.
ONES = {"u8": 255, "s8": 127, "u16": 65535, "s16": 32767}


def _nearest(x: Fraction) -> int:
    """Half-way up."""
    return math.floor(x + Fraction(1, 2))


def corner_weights(behind: Sequence[int]) -> list[int]:
    """256ths of the elements around a place, x fastest; `behind` are those of the second element along x, y, z."""
    x, y, z = [*behind, 0, 0][:3]
    found = []
    for plane in (256 - z, z):
        right = _nearest(Fraction(plane * x, 256))
        left = plane - right
        top_left = _nearest(Fraction(left * (256 - y), 256))
        bottom_right = _nearest(Fraction(right * y, 256))
        found += [top_left, right - bottom_right, left - top_left, bottom_right]
    return found


def _plane(values: Sequence[float], weights: Sequence[int], bits: int, least: int) -> tuple[Fraction, Fraction]:
    """The sum of four elements, and the step of which it is a whole number."""
    used = [(Fraction(float(v)), w) for v, w in zip(values, weights, strict=True) if w]
    largest = max([least, *(math.frexp(v)[1] - 1 for v, _ in used if v)])
    step = Fraction(2) ** (largest - (bits - 1) - 4)
    return sum((math.trunc(v / step) * step * w for v, w in used), Fraction(0)) / 256, step / 256


def weighted_sum(values: Sequence[float], weights: Sequence[int], texel: str) -> float:
    """Of eight finite elements. Those of an integer texel are whole numbers, and the sum is a fraction; see ONES."""
    if texel in ONES:
        total = sum(int(v) * w for v, w in zip(values, weights, strict=True))
        one = 32767 if texel.startswith("s") else 65535
        if texel == "s8":
            return max(total + math.floor((total // 16 + total // 4096 + 4) / 8), -one) / one
        return max(_nearest(Fraction(total * (65535 // 255 if texel == "u8" else 1), 256)), -one) / one
    bits, least = FORMATS[texel]
    normal = 2.0**least if texel == "f32" else 0.0
    values = [v if abs(v) >= normal else 0.0 for v in values]
    planes = [_plane(values[k : k + 4], weights[k : k + 4], bits, least) for k in (0, 4)]
    step = max(step for _, step in planes)
    total_of_both = sum(math.floor(plane / step) * step for plane, _ in planes)
    if not total_of_both:
        return 0.0
    last = Fraction(2) ** (max(math.frexp(total_of_both)[1] - 1, least) - (bits - 1))
    found = float(_nearest(abs(total_of_both) / last) * last)
    return math.copysign(found, total_of_both) if found >= normal else 0.0
