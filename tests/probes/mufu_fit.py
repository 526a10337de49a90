"""Fits the quadratics of core/numbers/mufu_tables.hpp to what an H200 returned: python -m tests.probes.mufu_fit FOLDER

FOLDER has the mufu-N.npz of mufu_gpu.py; the header is printed. A function's argument is cut into segments; l, 17 bits,
is its place in one. On each the result is

    truncated((C0 << c0_shift) + rounding + C1 l + (C2 << c2_shift) square(l))

in units of 2^-fraction. That form, how many segments there are, the shifts and the rounding were found by trial; what
is fitted are C0, C1 and C2, which must give every single result.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.probes.mufu_gpu import OCTAVE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
OFFSETS = 1 << 17  # values of l


@dataclass(frozen=True, slots=True)
class Form:
    name: str
    what: str
    c0_shift: int
    rounding: int
    c2_shift: int
    fraction: int
    dropped: int = 0  # low bits of the sum that silicon does not keep


FORMS = {
    "ex2": Form("kExp2", "2^x, x of [0, 1)", 13, 6114, 0, 38),
    "lg2": Form("kLog2", "log2(1 + x), x of [0, 1)", 12, 837, 1, 38, dropped=2),
    "rcp": Form("kReciprocal", "1 / (1 + x), x of [0, 1)", 14, 4046, 1, 40),
    "rsqrt_0": Form("kInverseRoot", "1 / sqrt(1 + x), x of [0, 1)", 14, 16383, 2, 40),
    "rsqrt_1": Form("kInverseRootOfDouble", "1 / sqrt(2 (1 + x)), x of [0, 1)", 14, 16383, 2, 40),
    "sqrt_0": Form("kRoot", "sqrt(1 + x), x of [0, 1)", 15, 32767, 1, 40),
    "sqrt_1": Form("kRootOfDouble", "sqrt(2 (1 + x)), x of [0, 1)", 14, 16383, 0, 39),
    "sin": Form("kSine", "sin(x pi / 2), x of [0, 1)", 12, 0, 0, 37),
    "tanh": Form(
        "kTanh", "tanh(x), x of [2^-8, 8): by octaves 1, 1, 1, 2, 2, 4, 4, 4, 8, 16 and 8 segments", 16, 0, 0, 40
    ),
}
TANH_SEGMENTS = (1, 1, 1, 2, 2, 4, 4, 4, 8, 16, 8)


def square(offset: Ints) -> Ints:
    """As in mufu.hpp, from its definition: the partial products of columns 19 and above, in units of 2^19."""
    total = np.zeros_like(offset)
    for i in range(17):
        for j in range(i + 1):
            column = 2 * i if i == j else i + j + 1
            if column >= 19:
                total += (offset >> i & 1) * (offset >> j & 1) << column
    return total >> 19


@dataclass(frozen=True, slots=True)
class Segment:
    """Results at some values of l: in units of 2^-fraction they lie in [low, low + width)."""

    offset: Ints
    low: Ints
    width: Ints


def fit(segment: Segment, form: Form, squares: Ints) -> tuple[int, int, int]:
    """C0, C1 and C2. ValueError where no three give all results."""
    offset, s = segment.offset, squares[segment.offset] << form.c2_shift
    some = np.unique(np.linspace(0, offset.size - 1, min(offset.size, 20000)).astype(np.int64))
    middle = segment.low[some] + segment.width[some] / 2
    scale = np.array([1.0, OFFSETS, float(s.max())])
    terms = np.stack([np.ones(some.size), offset[some], s[some]], 1) / scale
    guess = np.linalg.lstsq(terms, middle, rcond=None)[0] / scale
    for c2 in sorted(range(round(guess[2]) - 3, round(guess[2]) + 4), key=lambda c: abs(c - guess[2])):
        slope = round(np.polyfit(offset[some], middle - c2 * s[some], 1)[0])
        for c1 in range(slope - 3, slope + 4):
            rest = segment.low - c1 * offset - c2 * s
            least, most = int(rest.max()), int((rest + segment.width).min()) - 1
            c0 = -((form.rounding - least) >> form.c0_shift)
            if least <= most and (c0 << form.c0_shift) + form.rounding <= most:
                return c0, c1, c2
    raise ValueError(f"{form.name}: no quadratic gives all results of a segment")


class Results:
    def __init__(self, folder: Path) -> None:
        self._packed = {k: v for path in sorted(folder.glob("mufu-*.npz")) for k, v in np.load(path).items()}

    def bits(self, name: str) -> Ints:
        data = np.load(io.BytesIO(self._packed[name].tobytes()))
        return np.concatenate([[int(data["first"])], int(data["first"]) + np.cumsum(data["steps"].astype(np.int64))])

    def values(self, name: str) -> Floats:
        return self.bits(name).astype(np.uint32).view(np.float32).astype(np.float64)


def segments(values: Floats, form: Form, count: int, seen: NDArray[np.bool_] | None = None) -> list[Segment]:
    """`values`: of a whole octave or quadrant, evenly spaced; `seen`: which of them are known."""
    step = max(values.size // (count * OFFSETS), 1)
    if step > 1 and not np.all(values.reshape(-1, step) == values[::step, None]):
        raise ValueError(f"{form.name}: bits of the argument count that should not")
    unit = 2.0**form.fraction
    places = np.arange(values[::step].size)
    known = places[seen[::step]] if seen is not None else places
    value = values[::step][known]
    low = np.round(value * unit).astype(np.int64)
    ulp = np.exp2(np.floor(np.log2(np.maximum(value, 2.0**-60))) - 23)
    width = np.maximum(np.round(ulp * unit), 1 << form.dropped).astype(np.int64)
    size = values[::step].size // count
    shift = OFFSETS // size  # of an argument with fewer bits than l has
    cuts = np.searchsorted(known, np.arange(count + 1) * size)
    return [Segment((known[a:b] % size) * shift, low[a:b], width[a:b]) for a, b in pairwise(cuts)]


def quadrant(results: Results) -> tuple[Floats, NDArray[np.bool_]]:
    """sin(x pi / 2) at multiples of 2^-23, from those arguments of sin and cos that are truncated to one."""
    found = np.full(4 * OCTAVE, np.nan)
    for name, ahead in (("sin", 0), ("cos", OCTAVE)):
        for octave in range(-8, 3):
            x = np.arange((127 + octave) << 23, (128 + octave) << 23, dtype=np.uint32).view(np.float32)
            turns = x.astype(np.float64) * np.float64(np.uint32(0x3E22F983).view(np.float32))
            rounded = turns.astype(np.float32)
            down = np.where(rounded > turns, np.nextafter(rounded, np.float32(0)), rounded).astype(np.float64)
            found[(np.floor(down * 2.0**25).astype(np.int64) + ahead) % (4 * OCTAVE)] = np.abs(
                results.values(f"{name}_{octave}")
            )
    quarters = found.reshape(4, OCTAVE)
    merged = np.where(np.isnan(quarters[0]), quarters[2], quarters[0])
    mirrored = np.where(np.isnan(quarters[1]), quarters[3], quarters[1])[::-1]
    merged = np.where(np.isnan(merged), mirrored, merged)
    return np.nan_to_num(merged), ~np.isnan(merged)


def fitted(results: Results) -> dict[str, list[tuple[int, int, int]]]:
    squares = square(np.arange(OFFSETS))
    found: dict[str, list[tuple[int, int, int]]] = {}

    def add(name: str, parts: list[Segment]) -> None:
        found.setdefault(name, []).extend(fit(p, FORMS[name], squares) for p in parts)

    for name, form in FORMS.items():
        function, _, octave = name.partition("_")
        if name == "sin":
            values, seen = quadrant(results)
            seen[0] = False  # zero
            add(name, segments(values, form, 64, seen))
        elif name == "tanh":
            for n, count in enumerate(TANH_SEGMENTS):
                add(name, segments(results.values(f"tanh_{n - 8}"), form, count))
        else:
            values = results.values(f"{function}_{octave or 0}") / (2 if name == "ex2" else 1)  # of x + 1
            seen = np.ones(OCTAVE, bool)
            seen[0] = name not in ("lg2", "rcp", "rsqrt_0")  # whose result there is a case of its own
            add(name, segments(values, form, 128 if name == "rcp" else 64, seen))
    return found


def header(found: dict[str, list[tuple[int, int, int]]]) -> str:
    out = [
        "// Coefficients of the quadratics by which an H200 interpolates transcendental functions (mufu.hpp), fitted",
        "// by tests/probes/mufu_fit.py to what it returned for every argument in one period or octave of each.",
        "#pragma once", "", '#include "mufu.hpp"', "", "namespace ptxm::mufu {", "", "// clang-format off",
    ]  # fmt: skip
    for name, rows in found.items():
        form = FORMS[name]
        numbers = f"{form.c0_shift}, {form.rounding}, {form.c2_shift}, {form.fraction}"
        out += [f"// {form.what}.", f"constexpr Function<{len(rows)}> {form.name}{{{numbers}, {{"]
        line = "   "
        for row in rows:
            text = f" {{{row[0]}, {row[1]}, {row[2]}}},"
            if len(line) + len(text) > 119:
                out.append(line)
                line = "   "
            line += text
        out += [line.removesuffix(","), "}};", ""]
    return "\n".join([*out, "// clang-format on", "", "}  // namespace ptxm::mufu", ""])


if __name__ == "__main__":
    print(header(fitted(Results(Path(sys.argv[1])))), end="")
