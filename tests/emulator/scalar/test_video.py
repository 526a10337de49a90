"""Video instructions against the pseudo-code of PTX ISA 9.7.18, in Python's integers.

Saturation of whole words follows an H100 where it and the pseudo-code part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fmha.emulator import PtxError
from tests.emulator.lanes import run_lanes

COUNT = 165
WORD = (1 << 32) - 1
Model = Callable[[int, int, int], int]
Form = tuple[str, Model]


def _operands(salt: int) -> list[np.ndarray]:
    rng = np.random.default_rng(salt)
    edges = [
        0,
        1,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x7FFFFFFF,
        0x80000000,
        WORD,
        0x80808080,
        0x7FFF8000,
        31,
        33,
    ]
    a, b, c = (rng.integers(0, 1 << 32, COUNT, dtype=np.uint64) for _ in range(3))
    pairs = np.array(list(itertools.product(edges, edges[::2])), np.uint64)
    a[: len(pairs)], b[: len(pairs)] = pairs.T
    b[-40:] = rng.integers(0, 40, 40)  # counts of shifts
    return [x.astype(np.uint32) for x in (a, b, c)]


def _all_agree(forms: Sequence[Form], salt: int) -> None:
    """Every form in one kernel; its sources are %a, %b and %c."""
    inputs = _operands(salt)
    text = " @%active ".join(form.replace("%d", f"%d{n}") for n, (form, _) in enumerate(forms))
    *results, active = run_lanes(text, inputs, [32] * len(forms))
    for (form, model), got in zip(forms, results, strict=True):
        for value, lane in zip(got.tolist(), active.tolist(), strict=True):
            a, b, c = (int(x[lane]) for x in inputs)
            assert value == model(a, b, c) & WORD, f"{form} of {a:#x}, {b:#x}, {c:#x}: {value:#x}"


def _extend(x: int, width: int, type_name: str) -> int:
    x &= (1 << width) - 1
    return x - (1 << width) if type_name[0] == "s" and x >> (width - 1) else x


def _clamp(x: int, width: int, type_name: str) -> int:
    low, high = (0, (1 << width) - 1) if type_name[0] == "u" else (-(1 << width - 1), (1 << width - 1) - 1)
    return min(max(x, low), high)


def _saturated(op: str, x: int, width: int, to: str) -> int:
    """The pseudo-code says _clamp(x, width, to). An H100 does so for a whole .s32 only, apart from shifts."""
    if op in ("shl", "shr"):
        return _clamp(x, 32, to)  # the pseudo-code: to the part's range
    if width < 32:
        return _clamp(x % (1 << 64), width, to)  # the pseudo-code: x with its sign
    return max(x, 0) if to == "u32" else _clamp(x, 32, to)  # the pseudo-code: at most 2**32 - 1


def _place(part: str) -> tuple[int, int]:
    width = {"": 32, "b": 8, "h": 16}[part[:1]]
    return int(part[1:] or 0) * width, width


def _part(x: int, part: str, type_name: str) -> int:
    at, width = _place(part)
    return _extend(x >> at, width, type_name)


_COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}
_TYPES = ("u32", "s32")
_PARTS = ("", "b0", "b1", "b2", "b3", "h0", "h1")


def _dotted(name: str, part: str) -> str:
    return f"{name}.{part}" if part else name


def _scalar(op: str, types: tuple[str, ...], parts: tuple[str, ...], sat: bool, added: bool, mode: str = "") -> Form:
    to, first, second = types
    merge, of_a, of_b = parts

    def model(a: int, b: int, c: int) -> int:
        x, y = _part(a, of_a, first), _part(b, of_b, second)
        if op == "set":
            t = int(_COMPARE[mode](x, y))
        elif op in ("shl", "shr"):
            n = y & 31 if mode == "wrap" else min(y, 32)
            t = _extend(x << n if op == "shl" else x >> n, 34, "s")
        else:
            t = _ARITHMETIC[op](x, y)
        if sat:
            t = _saturated(op, t, _place(merge)[1], to)
        if added:
            return t + c
        at, width = _place(merge)
        kept = ((1 << width) - 1) << at
        return (t << at & kept) | (c & ~kept)

    names = types[1:] if op == "set" else types
    form = ".".join((f"v{op}", *names)) + ".sat" * sat + f".{mode}" * bool(mode) + ".add" * added
    third = ", %c" if added or merge else ""
    return f"{form} {_dotted('%d', merge)}, {_dotted('%a', of_a)}, {_dotted('%b', of_b)}{third};", model


@pytest.mark.parametrize("op", ["add", "sub", "absdiff", "min", "max", "shl", "shr", "set"])
def test_words_and_their_parts(op: str) -> None:
    rng = np.random.default_rng(len(op) + ord(op[-1]))
    modes = ("wrap", "clamp") if op in ("shl", "shr") else tuple(_COMPARE) if op == "set" else ("",)
    forms = []
    for types in itertools.product(_TYPES, repeat=3):
        if (op in ("shl", "shr") and types[2] != "u32") or (op == "set" and types[0] != "u32"):
            continue
        for sat, ending in itertools.product((False, True) if op != "set" else (False,), ("", "add", "merge")):
            merge = str(rng.choice(_PARTS[1:])) if ending == "merge" else ""
            parts = (merge, *map(str, rng.choice(_PARTS, 2)))
            forms.append(_scalar(op, types, parts, sat, ending == "add", str(rng.choice(modes))))
            forms.append(_scalar(op, types, (merge, "", ""), sat, ending == "add", str(rng.choice(modes))))
    _all_agree(forms, len(forms))


def _lanes(op: str, types: tuple[str, ...], lanes: int, rng: np.random.Generator, sat: bool, added: bool) -> Form:
    to, first, second = types
    width, letter = 32 // lanes, "h" if lanes == 2 else "b"
    of_a, of_b = (rng.integers(0, 2 * lanes, lanes).tolist() for _ in range(2))
    mask = sorted(rng.choice(lanes, rng.integers(1, lanes + 1), replace=False).tolist(), reverse=True)
    if rng.random() < 0.3:
        of_a, of_b, mask = list(range(lanes)), list(range(lanes, 2 * lanes)), list(range(lanes))[::-1]
        suffix = ("", "", "")
    else:
        suffix = tuple(letter + "".join(map(str, x)) for x in (mask, of_a[::-1], of_b[::-1]))
    compare = str(rng.choice(list(_COMPARE)))

    def model(a: int, b: int, c: int) -> int:
        both = a | b << 32
        total = c
        for lane in mask:
            x, y = (_extend(both >> s[lane] * width, width, t) for s, t in ((of_a, first), (of_b, second)))
            t = int(_COMPARE[compare](x, y)) if op == "set" else _ARITHMETIC[op](x, y)
            t = _clamp(t, width, to) if sat else t
            if added:
                total += t
            else:
                kept = ((1 << width) - 1) << lane * width
                total = total & ~kept | t << lane * width & kept
        return total

    names = types[1:] if op == "set" else types
    form = ".".join((f"v{op}{lanes}", *names)) + ".sat" * sat + f".{compare}" * (op == "set") + ".add" * added
    d, a, b = (_dotted(name, part) for name, part in zip(("%d", "%a", "%b"), suffix, strict=True))
    return f"{form} {d}, {a}, {b}, %c;", model


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("op", ["add", "sub", "avrg", "absdiff", "min", "max", "set"])
def test_lanes_at_once(op: str, lanes: int) -> None:
    rng = np.random.default_rng(lanes * len(op) + ord(op[-1]))
    forms = []
    for types in itertools.product(_TYPES, repeat=3):
        if op == "set" and types[0] != "u32":
            continue
        for sat, added in ((False, False), (True, False), (False, True)):
            if not (sat and op == "set"):
                forms += [_lanes(op, types, lanes, rng, sat, added) for _ in range(2)]
    _all_agree(forms, lanes)


def _mad(types: tuple[str, ...], parts: tuple[str, str], signs: str, sat: bool, shift: int, plus_one: bool) -> Form:
    _, first, second = types

    def model(a: int, b: int, c: int) -> int:
        product = _part(a, parts[0], first) * _part(b, parts[1], second)
        product = -product if signs[0] != signs[1] else product
        addend = _extend(c, 32, "s")
        total = product + (-addend if signs[2] == "-" else addend) + plus_one >> shift
        return _clamp(total, 32, "s") if sat else total

    form = "vmad." + ".".join(types) + ".po" * plus_one + ".sat" * sat + f".shr{shift}" * bool(shift)
    a, b = (sign.strip() + _dotted(x, part) for sign, x, part in zip(signs, ("%a", "%b"), parts, strict=False))
    return f"{form} %d, {a}, {b}, {signs[2].strip()}%c;", model


def test_multiply_add() -> None:
    forms = []
    for types, parts in (
        (("u32", "u32", "u32"), ("", "")),
        (("s32", "u32", "s32"), ("b1", "")),
        (("s32", "s32", "s32"), ("h0", "b3")),
        (("s32", "s32", "s32"), ("", "")),
        (("s32", "s32", "u32"), ("", "h1")),
    ):
        plain = types[0] == "u32"
        for sat, shift in ((False, 0), (True, 0), (False, 7), (True, 15)):
            if plain and (sat or shift):
                continue
            forms += [_mad(types, parts, signs, sat, shift, False) for signs in ("   ", "-  ", " - ", "-- ", "  -")]
            forms.append(_mad(types, parts, "   ", sat, shift, True))
    _all_agree(forms, 9)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("vadd.u32.u32.u32.min %d, %a, %b, %c;", "not what PTX says"),
        ("vmad.u32.u32.u32.shr7 %d, %a, %b, %c;", "not what PTX says"),
        ("vmad.s32.u32.s32.sat %d, %a, %b, %c;", "not what PTX says"),
        ("vadd.u32.u32.u32 %d.h1, %a, %b;", "third source"),
        ("vadd.u32.u32.u32 %d, %a.h2, %b;", "no part of a word"),
        ("vadd2.u32.u32.u32 %d, %a.h40, %b, %c;", "components of vector registers"),
        ("vadd4.u32.u32.u32 %d.b02, %a, %b, %c;", "no mask of 4 lanes"),
        ("vadd4.u32.u32.u32 %d, %a.h10, %b, %c;", "does not select 4 of 8"),
        ("vadd2.u32.u32.u32.sat.add %d, %a, %b, %c;", "does not go with .add"),
        ("vsub.u32.u32.u32 %d, -%a, %b;", "vmad alone"),
        ("vmad.s32.s32.s32 %d, -%a, %b, -%c;", "not both"),
        ("vmad.u32.u32.u32.po %d, %a, %b, -%c;", ".po does not go"),
        ("add.u32 %d, %a.b0, %b;", "a source operand"),
        ("add.u32 %d, -%a, %b;", "a source operand"),
    ],
)
def test_what_is_refused(form: str, complaint: str) -> None:
    with pytest.raises(PtxError, match=complaint):
        run_lanes(form.replace("%d", "%d0"), _operands(1), [32])
