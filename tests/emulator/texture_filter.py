"""What a linear filter makes of elements, in exact numbers: docs/journal/2026-11-25-textures.md, of one H100."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

# Bits of a significand, and the exponent of the least normal number.
FORMATS = {"f16": (11, -14), "f32": (24, -126)}


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


def weighted_sum(values: Sequence[float], weights: Sequence[int], texel: str) -> float:
    """Of finite elements. `texel` u8: fractions of 255."""
    used = [(Fraction(float(v)), w) for v, w in zip(values, weights, strict=True) if w]
    if texel == "u8":
        return _nearest(Fraction(sum(_nearest(v * 65535) * w for v, w in used), 256)) / 65535
    bits, least = FORMATS[texel]
    largest = max([least, *(math.frexp(v)[1] - 1 for v, _ in used if v)])
    step = Fraction(2) ** (largest - (bits - 1) - 4)
    total = sum(math.trunc(v / step) * step * w for v, w in used) / 256
    if not total:
        return 0.0
    last = Fraction(2) ** (max(math.frexp(total)[1] - 1, least) - (bits - 1))
    return math.copysign(float(_nearest(abs(total) / last) * last), total)
