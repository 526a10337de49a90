"""What one element of D becomes in a tcgen05.mma of a B200, one term at a time, in whole numbers; at the end, many.

The rule is the one that github.com/sf-tensor/tcgen05 (tcgen05_model/MODEL.md) fitted to a B200; this is written from
its text. A term is m 2^e, and has a `raw` exponent: the sum of those that its factors are stored with, a denormal's
being the least of its format. Words are those of the instruction's operands; the result is a word of D.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# exponent bits, mantissa bits, bias
FORMATS = {
    "f32": (8, 23, 127), "tf32": (8, 10, 127), "bf16": (8, 7, 127), "f16": (5, 10, 15), "e4m3": (4, 3, 7),
    "e5m2": (5, 2, 15), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1), "fp4": (2, 1, 1),
}  # fmt: skip
_IEEE = ("f32", "tf32", "bf16", "f16", "e5m2")
NAN = {"f32": 0x7FFF_FFFF, "f16": 0x7FFF}


class Term(NamedTuple):
    m: int
    e: int
    raw: int
    special: str = ""  # "nan", "+inf" or "-inf"

    def units(self, bottom: int) -> int:
        """Whole multiples of 2^bottom, toward zero."""
        shift = self.e - bottom
        size = abs(self.m) << shift if shift >= 0 else abs(self.m) >> -shift
        return -size if self.m < 0 else size


def number(word: int, fmt: str) -> Term:
    e_bits, m_bits, bias = FORMATS[fmt]
    if fmt == "tf32":
        word >>= 13
    negative = word >> (e_bits + m_bits) & 1
    e, m = word >> m_bits & (1 << e_bits) - 1, word & (1 << m_bits) - 1
    if fmt == "e4m3" and (e, m) == (15, 7):
        return Term(0, 0, 0, "nan")
    if fmt in _IEEE and e == (1 << e_bits) - 1:
        return Term(0, 0, 0, "nan" if m else "-inf" if negative else "+inf")
    size = m | (1 << m_bits if e else 0)
    raw = max(e, 1) - bias
    return Term(-size if negative else size, raw - m_bits, raw)


def scale(word: int, *, e8m0: bool) -> Term:
    if e8m0:
        return Term(1, word - 127, word - 127, "nan" if word == 255 else "")
    return number(word & 0x7F, "e4m3")


def times(x: Term, y: Term) -> Term:
    if not x.special and not y.special:  # nearly all of millions
        return Term(x.m * y.m, x.e + y.e, x.raw + y.raw)
    if "nan" in (x.special, y.special) or any(t.m == 0 and not t.special for t in (x, y)):
        return Term(0, 0, 0, "nan")
    negative = sum(t.special == "-inf" or t.m < 0 for t in (x, y)) % 2
    return Term(0, 0, 0, "-inf" if negative else "+inf")


def special_word(terms: Sequence[Term], d: str) -> int | None:
    kinds = {t.special for t in terms} - {""}
    if not kinds:
        return None
    if "nan" in kinds or len(kinds) == 2:
        return NAN[d]
    infinity = 0x7F80_0000 if d == "f32" else 0x7C00
    return infinity | (0 if kinds == {"+inf"} else 0x8000_0000 if d == "f32" else 0x8000)


def rounded(units: int, bottom: int, d: str) -> int:
    """units 2^bottom as a word of D: toward zero in f32, to nearest even in f16. Past the largest lies infinity."""
    e_bits, m_bits, bias = FORMATS[d]
    size = abs(units)
    exponent = max(size.bit_length() - 1 + bottom, 1 - bias) if size else 1 - bias
    drop = exponent - m_bits - bottom
    kept = size << -drop if drop <= 0 else size >> drop
    if drop > 0 and d == "f16":
        rest, half = size - (kept << drop), 1 << (drop - 1)
        kept += rest > half or (rest == half and kept & 1)
    word = ((exponent + bias - 1) << m_bits) + kept if kept else 0
    word = min(word, ((1 << e_bits) - 1) << m_bits)
    return word | (1 << (e_bits + m_bits) if units < 0 and word else 0)


def window(products: Sequence[Term], c: Term, d: str = "f32") -> int:
    """All of one instruction, but for the kinds below."""
    terms = [*products, c]
    word = special_word(terms, d)
    if word is not None:
        return word
    raws = [t.raw for t in terms if t.m]
    if not raws:
        return 0
    bottom = max(raws) - 25
    return rounded(sum(t.units(bottom) for t in terms), bottom, d)


def total(terms: Sequence[Term]) -> Term:
    """Their exact sum."""
    low = min((t.e for t in terms), default=0)
    return Term(sum(t.units(low) for t in terms), low, 0)


def four_bits(products: Sequence[Term], scales: Sequence[Term], c: Term, *, e8m0: bool) -> int:
    """kind::mxf4 and mxf4nvf4: 64 scaled products, and of each the two scales' product."""
    word = special_word([*scales, c], "f32")
    if word is not None:
        return word
    present = [k for k, t in enumerate(products) if t.m]
    if not present:
        return rounded(c.m, c.e, "f32")
    largest, highest = max(products[k].raw for k in present), max(scales[k].raw for k in present)
    if c.m and c.raw >= largest:
        bottom = c.raw - 35
        groups = (total(products[k : k + 16]).units(bottom) for k in range(0, 64, 16))
        return rounded(c.units(bottom) + sum(groups), bottom, "f32")
    bottom = max(largest - 39, highest - 35, *([c.raw - 39] if c.m else []))
    if not e8m0:
        fours = (total(products[k : k + 4]).units(bottom) for k in range(0, 64, 4))
        return rounded(c.units(bottom) + sum(fours), bottom, "f32")
    parts: list[tuple[int, bool]] = []  # units, and whether a denormal sum leaves them out
    for k in range(0, 64, 16):
        group = [i for i in present if k <= i < k + 16]
        if not group:
            continue
        end = bottom
        if c.m and c.raw >= max(products[i].raw for i in group):
            end = max(bottom, c.raw - 35)
        units = total(products[k : k + 16]).units(end) << (end - bottom)
        lower = max(scales[i].raw for i in group) < highest
        parts.append((units, lower and abs(units) < 1 << max(-174 - bottom, 0)))
    word = rounded(c.units(bottom) + sum(units for units, _ in parts), bottom, "f32")
    if 0 < word & 0x7FFF_FFFF < 0x0080_0000:
        word = rounded(c.units(bottom) + sum(units for units, small in parts if not small), bottom, "f32")
    return word


# The same for many elements at once, but for infinities and NaN. Numbers of 64 bits hold what one instruction adds.

Numbers = NDArray[np.int64]
_NOTHING = -(1 << 20)  # below every exponent


class Terms(NamedTuple):
    m: Numbers
    e: Numbers
    raw: Numbers
    special: NDArray[np.bool_]

    def times(self, other: Terms) -> Terms:
        raw, special = self.raw + other.raw, self.special | other.special
        return Terms(self.m * other.m, self.e + other.e, raw, special)


def numbers(words: Numbers, fmt: str) -> Terms:
    e_bits, m_bits, bias = FORMATS[fmt]
    if fmt == "tf32":
        words = words >> 13
    e, m = words >> m_bits & (1 << e_bits) - 1, words & (1 << m_bits) - 1
    special = (e == 15) & (m == 7) if fmt == "e4m3" else (e == (1 << e_bits) - 1) & (fmt in _IEEE)
    size, raw = m | (e > 0) << m_bits, np.maximum(e, 1) - bias
    return Terms(np.where(words >> (e_bits + m_bits) & 1, -size, size), raw - m_bits, raw, special)


def _shifted(size: Numbers, left: Numbers) -> Numbers:
    return np.where(left >= 0, size << np.clip(left, 0, 40), size >> np.clip(-left, 0, 62))


def windows(products: Terms, c: Terms, d: str) -> Numbers:
    """`window` of each row of `products` and its element of `c`."""
    m, e, raw = (np.hstack([x, y[:, None]]) for x, y in zip(products[:3], c[:3], strict=True))
    bottom = np.where(m != 0, raw, _NOTHING).max(1) - 25
    units = (np.sign(m) * _shifted(abs(m), e - bottom[:, None])).sum(1)
    e_bits, m_bits, bias = FORMATS[d]
    size = abs(units)
    exponent = np.maximum(np.frexp(size.astype(np.float64))[1] - 1 + bottom, 1 - bias)
    drop = exponent - m_bits - bottom
    kept = _shifted(size, -drop)
    if d == "f16":
        lost = np.clip(drop, 1, 40)
        rest, half = size - (kept << lost), 1 << (lost - 1)
        kept += (drop > 0) & ((rest > half) | ((rest == half) & (kept & 1 == 1)))
    word = np.where(kept != 0, (exponent + bias - 1 << m_bits) + kept, 0)
    word = np.minimum(word, (1 << e_bits) - 1 << m_bits)
    return np.where((units < 0) & (word != 0), word | 1 << (e_bits + m_bits), word)
