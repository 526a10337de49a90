"""Device(mma_sums="silicon"): D of tcgen05.mma to the bit, as tests/emulator/silicon_sums.py has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import silicon_sums as model
from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import B_AT, SIZE, halves, mma_text, registers, scale_columns
from tests.emulator.tcgen05_numbers import (
    KINDS,
    SMALL,
    containers,
    d_cells,
    instruction,
    k_major,
    metadata_words,
    pack,
    random_pattern,
)

Words = NDArray[np.int64]
K128 = k_major(128)
SPARSE, METADATA, SCALE_A, SCALE_B, A_COLUMN = 1 << 2, 480, 490, 500, 400
CHECKED = 250  # elements of D, of each case
ONE_BY_ONE = 20  # of them, by the rule as it is written; others at once where it has no infinity, NaN or scales

number = lru_cache(maxsize=1 << 16)(model.number)

# The largest exponent of a product, where operands are near the top of these ranges.
LARGEST = {"bf16": 14, "tf32": 14, "f16": 20, "e4m3": 14, "e5m2": 25, "e2m3": 3, "e3m2": 7, "e2m1": 4, "fp4": 4}


# Of bf16 and tf32, as they are stored.
EXPONENTS = {"edge": (120, 135), "tiny": (120, 135), "far": (120, 135), "low": (64, 72)}
FULL = {"bf16": 0x3FFF, "tf32": 0x3FFF_FFFF, "f16": 0x3FFF, "e4m3": 0x3F, "e5m2": 0x3F, "e2m3": 0xF, "e3m2": 0xF}

INFINITE = {"bf16": 0x7F80, "tf32": 0x7F80_0000, "f16": 0x7C00, "e4m3": 0x7F, "e5m2": 0x7C}  # or NaN, where none is


def is_special(words: Words, fmt: str) -> NDArray[np.bool_]:
    if fmt == "e4m3":
        return words & 0x7F == 0x7F
    if fmt not in ("f32", "tf32", "bf16", "f16", "e5m2"):
        return np.zeros(words.shape, bool)
    mask = {"f16": 0x7C00, "bf16": 0x7F80, "e5m2": 0x7C}.get(fmt, 0x7F80_0000)
    return words & mask == mask


def width(fmt: str) -> int:
    return 32 if fmt in ("tf32", "f32") else 1 + sum(model.FORMATS[fmt][:2])


def operand(rng: np.random.Generator, fmt: str, shape: tuple[int, ...], numbers: str) -> Words:
    """Words: `any`, with infinities and NaN; `finite`; `edge`, products' exponents up to 28 apart; `usual` ones."""
    words = rng.integers(0, 1 << width(fmt), shape)
    if numbers == "usual" and fmt in ("bf16", "tf32"):
        words = rng.normal(0, 1, shape).astype(np.float32).view(np.uint32).astype(np.int64) >> 32 - width(fmt)
    elif numbers == "usual" and fmt == "f16":
        words = rng.normal(0, 1, shape).astype(np.float16).view(np.uint16).astype(np.int64)
    elif numbers in EXPONENTS and fmt in ("bf16", "tf32"):
        at = 7 if fmt == "bf16" else 23
        exponents = rng.integers(*EXPONENTS[numbers], shape)
        if numbers == "far":
            exponents -= rng.choice([0, 0, 30, 45, 61, 62, 63, 64, 90], (*shape[:-1], 1))
        words = words & ~(0xFF << at) | exponents << at
    if numbers == "full":  # the largest of its binade, a row of one sign
        return np.where(rng.integers(0, 2, (*shape[:-1], 1)), FULL[fmt], FULL[fmt] | 1 << width(fmt) - 1) + 0 * words
    if numbers == "spotted":  # rows of A that are zero, or but for an infinity or NaN, which B multiplies with zero
        words = operand(rng, fmt, shape, "usual")
        if shape[0] == rig.LANES:
            words[::2] = 0
            words[::8, :, 5] = INFINITE[fmt]
        else:
            words[..., 5] = 0
        return words
    if numbers != "any":
        words[is_special(words, fmt)] = 0
        words[rng.integers(0, 16, shape) == 0] = 0
    return words


def accumulator(rng: np.random.Generator, d: str, shape: tuple[int, ...], numbers: str, largest: int) -> Words:
    words = rng.integers(0, 1 << width(d), shape)
    if d == "f32" and numbers in ("edge", "usual"):
        raw = rng.integers(largest - 32, largest + 44, shape) if numbers == "edge" else largest
        words = words & 0x807F_FFFF | np.clip(raw + 127, 0, 254) << 23
    if numbers == "full":
        return np.where(rng.integers(0, 2, shape), 0x3FFF_FFFF, 0xBFFF_FFFF)
    if numbers in ("low", "spotted"):
        words = words & 0x0FFF_FFFF
    if numbers == "tiny":
        words = np.where(rng.integers(0, 2, shape), words & 0x807F_FFFF, 0)
    if numbers != "any":
        words[is_special(words, d)] = 0
        words[rng.integers(0, 8, shape) == 0] &= 1 << width(d) - 1  # zero of either sign
    return words


def packed(words: Words, fmt: str) -> NDArray[np.uint8]:
    """Rows as shared memory holds them."""
    if fmt in SMALL:
        return np.hstack([pack(words[:, k : k + 32], width(fmt)) for k in range(0, words.shape[1], 32)])
    if fmt == "fp4":
        return (words[:, ::2] | words[:, 1::2] << 4).astype(np.uint8)
    kind = np.uint32 if fmt == "tf32" else np.uint16
    return np.ascontiguousarray(words.astype(kind)).view(np.uint8)


@dataclass(frozen=True)
class Case:
    kind: str
    a: str
    b: str
    numbers: str = "finite"
    d: str = "f32"
    n: int = 80
    m: int = 128
    steps: int = 3
    seed: int = 7
    ws: bool = False
    pair: bool = False
    a_tmem: bool = False
    sparse: bool = False
    scales: int = 0
    e8m0: bool = True
    size: str = ""  # .block32 and the like
    start: bool = True  # from what D holds
    lowered: int = 0  # scale-input-d
    fields: dict[str, int] = field(default_factory=dict)

    @property
    def k(self) -> int:
        return KINDS[self.kind]

    def modifiers(self) -> str:
        parts = [".sp"] * self.sparse + [".ws"] * self.ws + [f".cta_group::{1 + self.pair}.kind::{self.kind}"]
        return "".join(parts) + (f".block_scale{self.size}" if self.scales else "")

    def largest(self) -> int:
        return (LARGEST[self.a] + LARGEST[self.b]) // 2


@dataclass
class Drawn:
    a: Words  # [m, steps, k]
    b: Words  # [n, steps, k, or twice that]
    d: Words  # [m, n]
    along: Words  # the places along K of what a row of a sparse A stores [m, k]
    codes: Words
    scale_a: Words  # [m, scales]
    scale_b: Words


def scales(rng: np.random.Generator, case: Case, rows: int) -> Words:
    """Words [rows, scales]. `near` and `tiny`: blocks 20 or 40 binades apart, so that groups end below the window."""
    shape = (rows, case.scales)
    if not case.e8m0:
        return rng.integers(0, 128 if case.numbers == "any" else 127, shape)
    if case.numbers in ("near", "tiny"):
        top = 57 if case.numbers == "tiny" else 127
        return top - 20 * rng.integers(0, 2, shape) + rng.integers(-1, 2, shape)
    low, high = {"any": (0, 256), "usual": (125, 130)}.get(case.numbers, (115, 140))
    return rng.integers(low, high, shape)


def draw(case: Case) -> Drawn:
    rng = np.random.default_rng(case.seed)
    m, n, k = case.m, case.n, case.k
    a = operand(rng, case.a, (m, case.steps, k), case.numbers)
    b = operand(rng, case.b, (n, case.steps, k * (1 + case.sparse)), case.numbers)
    d = accumulator(rng, case.d, (m, n), case.numbers, case.largest())
    if case.sparse:
        codes, along = random_pattern(rng, "mxf4" if case.kind == "mxf4nvf4" else case.kind, 128)
    else:
        codes, along = np.zeros((0, 0), np.int64), np.tile(np.arange(k), (m, 1))
    scale_a, scale_b = (scales(rng, case, rows) for rows in (m, n))
    if case.numbers == "near" and case.e8m0:
        highest = (scale_a[:, None] + scale_b[None]).max(2) - 254
        d = d & 0x807F_FFFF | (highest + rng.integers(0, 6, d.shape) + 127) << 23
    return Drawn(a, b, d, along, codes, scale_a, scale_b)


def issue(case: Case) -> str:
    fields = dict(case.fields) | ({"e8m0": int(case.e8m0)} if case.scales else {})
    word = instruction(case.kind, case.m, case.n, case.a, case.b, case.d, **fields) | SPARSE * case.sparse
    places = [("%r11", SCALE_A), ("%r12", SCALE_B)] * bool(case.scales) + [("%r13", METADATA)] * case.sparse
    tail = "[%r11], [%r12], %p3" if case.scales else f"%p3, {case.lowered}" if case.lowered else "%p3"
    lines = [registers(*places)]
    for step in range(case.steps):
        a = A_COLUMN + 8 * step if case.a_tmem else K128.descriptor(rig.BASE + 32 * step)
        b = K128.descriptor(rig.BASE + B_AT + (64 if case.sparse else 32) * step)
        text = mma_text(
            case.modifiers(), 0, a, b, word, a_tmem=case.a_tmem, tail=tail, accumulate=case.start or step > 0
        )
        lines.append(text.replace("%rd2, %r10", "%rd2, [%r13], %r10") if case.sparse else text)
    return "\n".join(lines)


def run(case: Case, drawn: Drawn) -> NDArray[np.uint32]:
    """The words of D, [m, n]."""
    m, n = case.m, case.n
    cells = d_cells(m, n, ws=case.ws, pair=case.pair)
    tmem = np.zeros((1 + case.pair, 128, 512), np.uint32)
    tmem[cells[..., 0], cells[..., 1], cells[..., 2]] = drawn.d
    if case.scales:
        tmem[0, :, SCALE_A : SCALE_A + -(-m // 32)] = scale_columns(drawn.scale_a, 0)
        tmem[0, :, SCALE_B : SCALE_B + -(-n // 32)] = scale_columns(drawn.scale_b, 0)
    if case.sparse:
        words = metadata_words("mxf4" if case.kind == "mxf4nvf4" else case.kind, drawn.codes)
        tmem[0, :, METADATA : METADATA + words.shape[1]] = words
    a = np.hstack([packed(drawn.a[:, s], case.a) for s in range(case.steps)])
    b = np.hstack([packed(drawn.b[:, s], case.b) for s in range(case.steps)])
    if case.a_tmem:
        rows = containers(drawn.a.reshape(m, -1), case.a).view(np.uint32) if case.a in SMALL else a.view(np.uint32)
        tmem[0, :, A_COLUMN : A_COLUMN + 8 * case.steps] = rows
        a = np.zeros_like(a)
    shared = [
        K128.place(x, B_AT) + K128.place(y, SIZE - B_AT)
        for x, y in zip(halves(a, case.pair), halves(b, case.pair), strict=True)
    ]
    outcome = rig.run(issue(case), shared, tmem, pair=case.pair, mma_sums="silicon")
    assert case.pair or outcome.rules == []  # the rig's pairs start on a race
    out = outcome.tmem if case.pair else outcome.tmem[None]
    return out[cells[..., 0], cells[..., 1], cells[..., 2]]


def wanted(case: Case, drawn: Drawn, r: int, c: int) -> int:
    word = int(drawn.d[r, c]) if case.start else 0
    for step in range(case.steps):
        addend = number(word, case.d)
        if step == 0:
            addend = model.Term(addend.m, addend.e - case.lowered, addend.raw - case.lowered, addend.special)
        pairs = [
            (number(x, case.a), number(y, case.b))
            for x, y in zip(drawn.a[r, step].tolist(), drawn.b[c, step, drawn.along[r]].tolist(), strict=True)
        ]
        products = [model.times(x, y) for x, y in pairs]
        if sum(case.fields.get(f"negate_{x}", 0) for x in "ab") % 2:
            products = [model.times(model.Term(-1, 0, 0), product) for product in products]
        if case.scales:
            blocks = [
                model.times(model.scale(int(x), e8m0=case.e8m0), model.scale(int(y), e8m0=case.e8m0))
                for x, y in zip(drawn.scale_a[r], drawn.scale_b[c], strict=True)
            ]
            scales = [block for block in blocks for _ in range(case.k // case.scales)]
            products = [model.times(x, y) for x, y in zip(products, scales, strict=True)]
            if case.kind.startswith("mxf4"):
                word = model.four_bits(products, scales, addend, e8m0=case.e8m0)
                continue
        word = model.window(products, addend, case.d)
    return word


def wanted_at_once(case: Case, drawn: Drawn, rows: Words, columns: Words) -> tuple[Words, NDArray[np.bool_]]:
    """The words of these elements, and which of them have an infinity or NaN on the way."""
    words = drawn.d[rows, columns] if case.start else np.zeros(len(rows), np.int64)
    special = np.zeros(len(rows), np.bool_)
    sign = -1 if sum(case.fields.get(f"negate_{x}", 0) for x in "ab") % 2 else 1
    for step in range(case.steps):
        c = model.numbers(words, case.d)
        if step == 0:
            c = c._replace(e=c.e - case.lowered, raw=c.raw - case.lowered)
        a = model.numbers(drawn.a[rows, step], case.a)
        b = model.numbers(np.take_along_axis(drawn.b[columns, step], drawn.along[rows], 1), case.b)
        products = a.times(b)
        special |= products.special.any(1) | c.special
        words = model.windows(products._replace(m=sign * products.m), c, case.d)
    return words, special


def check(case: Case) -> None:
    drawn = draw(case)
    got = run(case, drawn)
    rng = np.random.default_rng(case.seed + 1)
    rows, columns = rng.integers(0, case.m, CHECKED), rng.integers(0, case.n, CHECKED)
    singly = np.arange(CHECKED) < ONE_BY_ONE
    want, special = np.zeros(CHECKED, np.int64), np.ones(CHECKED, np.bool_)
    if not case.scales:
        want, special = wanted_at_once(case, drawn, rows, columns)
    for at in np.flatnonzero(singly | special):
        want[at] = wanted(case, drawn, rows[at], columns[at])
    cells = zip(rows.tolist(), columns.tolist(), want.tolist(), strict=True)
    wrong = [(r, c, hex(got[r, c]), hex(w)) for r, c, w in cells if got[r, c] != w]
    assert not wrong, f"{len(wrong)} of {CHECKED}: {wrong[:4]}"


PLAIN = [
    ("f16", "bf16", "bf16"), ("f16", "f16", "f16"), ("f16", "f16", "bf16"), ("tf32", "tf32", "tf32"),
    ("f8f6f4", "e4m3", "e4m3"), ("f8f6f4", "e5m2", "e5m2"), ("f8f6f4", "e5m2", "e4m3"), ("f8f6f4", "e2m3", "e5m2"),
    ("f8f6f4", "e3m2", "e2m1"), ("f8f6f4", "e2m1", "e2m3"), ("f8f6f4", "e4m3", "e3m2"),
]  # fmt: skip
NUMBERS = ["any", "finite", "edge", "usual"]


@pytest.mark.parametrize(("kind", "a", "b"), PLAIN)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_kinds(kind: str, a: str, b: str, numbers: str) -> None:
    check(Case(kind, a, b, numbers))


@pytest.mark.parametrize(
    ("kind", "a", "b", "numbers"),
    [
        *((*PLAIN[k], numbers) for k in (0, 3) for numbers in ("far", "low", "spotted", "full")),
        *((*PLAIN[k], numbers) for k in (1, 4, 5) for numbers in ("spotted", "full")),
    ],
)
def test_numbers_that_vectors_leave_alone(kind: str, a: str, b: str, numbers: str) -> None:
    """Exponents far apart or far from one, infinities among zeros, sums past 2^31 units."""
    check(Case(kind, a, b, numbers))
    check(Case(kind, a, b, numbers, seed=8, steps=1))


@pytest.mark.parametrize(("kind", "a", "b"), [PLAIN[k] for k in (0, 1, 3, 4, 7, 9)])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_sparse_a(kind: str, a: str, b: str, numbers: str) -> None:
    check(Case(kind, a, b, numbers, steps=2, sparse=True))


@pytest.mark.parametrize(("kind", "a", "b"), [("f16", "f16", "f16"), *PLAIN[4:9]])
@pytest.mark.parametrize("numbers", ["any", "finite"])
@pytest.mark.parametrize("sparse", [False, True])
def test_an_f16_accumulator(kind: str, a: str, b: str, numbers: str, sparse: bool) -> None:
    check(Case(kind, a, b, numbers, d="f16", steps=2, sparse=sparse))


SCALED = [
    ("mxf8f6f4", "", 1, "e4m3", "e4m3", True), ("mxf8f6f4", "", 1, "e5m2", "e2m1", True),
    ("mxf8f6f4", "", 1, "e2m3", "e3m2", True), ("mxf8f6f4", "", 1, "e2m1", "e2m1", True),
    ("mxf4", ".block32", 2, "fp4", "fp4", True), ("mxf4nvf4", ".block32", 2, "fp4", "fp4", True),
    ("mxf4nvf4", ".block16", 4, "fp4", "fp4", True), ("mxf4nvf4", ".block16", 4, "fp4", "fp4", False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "size", "scales", "a", "b", "e8m0"), SCALED)
@pytest.mark.parametrize("numbers", [*NUMBERS, "near", "tiny"])
@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_with_scales(
    kind: str, size: str, scales: int, a: str, b: str, e8m0: bool, numbers: str, sparse: bool
) -> None:
    check(Case(kind, a, b, numbers, steps=1, sparse=sparse, scales=scales, e8m0=e8m0, size=size))


def test_d_as_large_as_the_largest_product_cuts_groups_by_itself() -> None:
    """4 x 4 of the largest scales is 2^20, and D takes it away again. 2^-17 of another group lies 37 bits below: it
    is cut off by D's own exponent, 20, where the scales' alone, 16, would leave it."""
    case = Case("mxf4nvf4", "fp4", "fp4", steps=1, scales=4, e8m0=False, size=".block16")
    drawn = draw(case)
    for operand, small in ((drawn.a, 1), (drawn.b, 2)):
        operand[:] = 0
        operand[:, 0, 0], operand[:, 0, 16] = 0b110, 0b010  # 4 and 1
        (drawn.scale_a if small == 1 else drawn.scale_b)[:, :2] = 0x78, small  # 2^8; 2^-9 or 2^-8
    for d, want in ((-(2.0**20), 0.0), (-(2.0**19), 2.0**19)):
        drawn.d[:] = np.float32(d).view(np.uint32)
        assert float(run(case, drawn)[0, 0].view(np.float32)) == want
        assert wanted(case, drawn, 0, 0) == int(np.float32(want).view(np.uint32))


SHAPES: list[Callable[[str], Case]] = [
    lambda x: Case("f16", "bf16", "bf16", x, m=64, n=8),
    lambda x: Case("f16", "f16", "f16", x, m=64, n=72),
    lambda x: Case("f16", "bf16", "bf16", x, n=256),
    lambda x: Case("f16", "bf16", "bf16", x, n=16),
    lambda x: Case("f8f6f4", "e4m3", "e4m3", x, n=176),
    lambda x: Case("f16", "bf16", "bf16", x, m=32, n=128, ws=True),
    lambda x: Case("tf32", "tf32", "tf32", x, m=64, n=64, ws=True),
    lambda x: Case("f8f6f4", "e5m2", "e5m2", x, m=128, n=64, ws=True),
    lambda x: Case("f16", "f16", "f16", x, m=128, n=96, pair=True),
    lambda x: Case("f8f6f4", "e4m3", "e5m2", x, m=256, n=160, pair=True),
    lambda x: Case("f16", "bf16", "bf16", x, a_tmem=True),
    lambda x: Case("f8f6f4", "e2m1", "e4m3", x, a_tmem=True),
    lambda x: Case("f16", "f16", "f16", x, start=False),
    lambda x: Case("f16", "bf16", "bf16", x, lowered=3, steps=1),
    lambda x: Case("tf32", "tf32", "tf32", x, lowered=15, steps=1),
    lambda x: Case("f16", "f16", "f16", x, fields={"negate_a": 1}),
    lambda x: Case("f16", "bf16", "bf16", x, fields={"negate_a": 1, "negate_b": 1}),
    lambda x: Case("f16", "bf16", "bf16", x, n=128, steps=4),
]


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("numbers", NUMBERS)
def test_shapes_and_options(shape: int, numbers: str) -> None:
    check(SHAPES[shape](numbers))


def test_sums_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="mma_sums 'exact' is not one of fast, silicon"):
        emulator.Device(mma_sums="exact")  # type: ignore[arg-type]
