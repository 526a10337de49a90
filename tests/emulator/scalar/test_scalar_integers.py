"""Integer instructions against Python's integers (PTX ISA 9.7.1, 9.7.2, 9.7.7-9.7.9)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.clusterlab import run
from tests.emulator.lanes import check, run_lanes

COUNT = 300


def _values(width: int, count: int, limit: int | None = None):
    rng = np.random.default_rng(width + count)
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[width]
    sizes = [0, 1, 2, (1 << width - 1) - 1, 1 << width - 1, (1 << width) - 1, (1 << width) - 2]
    edges = np.array(sizes, dtype=np.uint64)  # as a list they would pass through float64
    out = []
    for k in range(count):
        x = rng.integers(0, limit or 1 << width, COUNT, dtype=np.uint64)
        if limit is None:
            x[: len(edges) ** 2] = np.repeat(edges, len(edges)) if k % 2 else np.tile(edges, len(edges))
        out.append(x.astype(dtype))
    return out


def _signed(x: int, width: int) -> int:
    return x - (1 << width) if x >> (width - 1) & 1 else x


def _read(type_name: str):
    width = int(type_name[1:])
    return (lambda x: _signed(x, width)) if type_name[0] == "s" else (lambda x: x)


def _sum(x: int, y: int, carry: int, width: int) -> tuple[int, int]:
    """The sum of two words and a carry, and its carry."""
    total = (x & (1 << width) - 1) + (y & (1 << width) - 1) + carry
    return total & (1 << width) - 1, total >> width


def _step(op: str, type_name: str, a: int, b: int, c: int, flag: int) -> tuple[int, int]:
    """What ptxas makes of one instruction of a chain: its result and CC.CF. A subtraction is a + ~b + CF."""
    width, to = int(type_name[1:]), _read(type_name)
    carry = flag if op.split(".")[0] in ("addc", "subc", "madc") else 0
    if op.startswith("add"):
        return _sum(a, b, carry, width)
    if op.startswith("sub"):
        return _sum(a, ~b, flag if op.startswith("subc") else 1, width)
    product = to(a) * to(b)
    return _sum(product >> width if ".hi" in op else product, c, carry, width)


_MADS = ("mad.lo", "mad.hi")
_FIRST = ("add.cc", "sub.cc", *(f"{mad}.cc" for mad in _MADS))
_NEXT = ("addc", "subc", *(mad.replace("mad", "madc") for mad in _MADS))
_CHAINS = [(first, middle, last) for first in _FIRST for middle in ("", *(f"{x}.cc" for x in _NEXT)) for last in _NEXT]


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize(("first", "middle", "last"), _CHAINS)
def test_carry_chains(type_name: str, first: str, middle: str, last: str) -> None:
    """Every instruction that sets CC.CF, then every one that takes it; with one between them that does both. The flag
    of a subtraction is the carry of a + ~b + 1, and goes into an addition as it is."""
    width, r = int(type_name[1:]), "%a, %b, %c, %d"
    operands = {op: r.split(", ")[: 3 if "mad" in op else 2] for op in (first, middle, last)}

    def text(op, to, turn):
        return f"{op}.{type_name} {to}, {', '.join(operands[op][turn:] + operands[op][:turn])};" if op else ""

    setup = f".reg .b{width} %x, %y; {text(first, '%x', 0)} {text(middle, '%y', 1)}"

    def chain(*values: int) -> int:
        flag = 0
        for op, turn in ((first, 0), (middle, 1), (last, 0)):
            if op:
                chosen = [values["abcd".index(x[1])] for x in operands[op][turn:] + operands[op][:turn]]
                result, flag = _step(op, type_name, *([*chosen, 0])[:3], flag)
        return result

    check(text(last, "%d0", 0), _values(width, 4), width, chain, setup)


def test_the_carry_out_of_addc_chains_on() -> None:
    inputs = _values(32, 4)
    setup = ".reg .b32 %x; add.cc.u32 %x, %a, %b; addc.cc.u32 %x, %c, %d;"
    carry = lambda a, b, c, d: c + d + (a + b >> 32) >> 32  # noqa: E731
    check("addc.u32 %d0, 0, 0;", inputs, 32, carry, setup)


def test_lanes_that_an_addition_leaves_out_keep_their_carry() -> None:
    """Of every lane the first addition carries; the second, which does not, is of half of them."""
    body = """setp.lt.u32 %p1, %tid, 16; mov.u32 %r1, 0xFFFFFFFF; mov.u32 %r2, 1;
    add.cc.u32 %r3, %r1, %r2; @%p1 add.cc.u32 %r3, %r2, %r2; addc.u32 %r4, 0, 0;
    mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r4;"""
    done = run(body, {"out": np.zeros(32, np.uint32)}).clean()
    assert done.arrays["out"].tolist() == 16 * [0] + 16 * [1]


@pytest.mark.parametrize("type_name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_sum_of_absolute_differences(type_name: str) -> None:
    width, to = int(type_name[1:]), _read(type_name)
    mask = (1 << width) - 1
    expected = lambda a, b, c: c + abs(to(a) - to(b)) & mask  # noqa: E731
    check(f"sad.{type_name} %d0, %a, %b, %c;", _values(width, 3), width, expected)


@pytest.mark.parametrize("type_name", ["u32", "s32"])
@pytest.mark.parametrize("part", ["lo", "hi"])
def test_24_bit_products(type_name: str, part: str) -> None:
    def product(a: int, b: int) -> int:
        x, y = (_signed(v & 0xFFFFFF, 24) if type_name == "s32" else v & 0xFFFFFF for v in (a, b))
        return (x * y >> 16 if part == "hi" else x * y) & 0xFFFFFFFF

    inputs = _values(32, 3)
    check(f"mul24.{part}.{type_name} %d0, %a, %b;", inputs[:2], 32, product)
    check(f"mad24.{part}.{type_name} %d0, %a, %b, %c;", inputs, 32, lambda a, b, c: product(a, b) + c & 0xFFFFFFFF)


@pytest.mark.parametrize("x", ["u32", "s32"])
@pytest.mark.parametrize("y", ["u32", "s32"])
def test_dot_products(x: str, y: str) -> None:
    def parts(v: int, width: int, n: int, signed: bool, first: int = 0) -> list[int]:
        raw = [v >> width * (first + k) & (1 << width) - 1 for k in range(n)]
        return [_signed(p, width) if signed else p for p in raw]

    def dot(a: list[int], b: list[int], c: int) -> int:
        return c + sum(p * q for p, q in zip(a, b, strict=True)) & 0xFFFFFFFF

    sx, sy = x == "s32", y == "s32"
    inputs = _values(32, 3)
    four = lambda a, b, c: dot(parts(a, 8, 4, sx), parts(b, 8, 4, sy), c)  # noqa: E731
    check(f"dp4a.{x}.{y} %d0, %a, %b, %c;", inputs, 32, four)
    for part, first in (("lo", 0), ("hi", 2)):
        two = lambda a, b, c, f=first: dot(parts(a, 16, 2, sx), parts(b, 8, 2, sy, f), c)  # noqa: E731
        check(f"dp2a.{part}.{x}.{y} %d0, %a, %b, %c;", inputs, 32, two)


@pytest.mark.parametrize("type_name", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("shift", ["", ".shiftamt"])
def test_bfind(type_name: str, shift: str) -> None:
    width = int(type_name[1:])

    def expected(a: int) -> int:
        x = ~a & (1 << width) - 1 if type_name[0] == "s" and a >> width - 1 else a
        top = x.bit_length() - 1
        return 0xFFFFFFFF if top < 0 else width - 1 - top if shift else top

    inputs = [_values(width, 1)[0] >> np.arange(COUNT).astype(f"u{width // 8}") % width]
    check(f"bfind{shift}.{type_name} %d0, %a;", inputs, 32, expected)


def test_bit_reversal_and_counts() -> None:
    for width in (32, 64):
        inputs = _values(width, 1)
        check(f"brev.b{width} %d0, %a;", inputs, width, lambda a, w=width: int(f"{a:0{w}b}"[::-1], 2))
        check(f"popc.b{width} %d0, %a;", inputs, 32, int.bit_count)
        check(f"clz.b{width} %d0, %a;", inputs, 32, lambda a, w=width: w - a.bit_length())


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_masks_and_extensions(mode: str) -> None:
    limit = (lambda n: min(n, 32)) if mode == "clamp" else (lambda n: n & 31)
    inputs = [_values(32, 1, 40)[0], _values(32, 2, 40)[1]]
    mask = lambda a, b: ((1 << limit(b)) - 1 << limit(a)) & 0xFFFFFFFF  # noqa: E731
    check(f"bmsk.{mode}.b32 %d0, %a, %b;", inputs, 32, mask)
    inputs = [_values(32, 1)[0], inputs[1]]
    check(f"szext.{mode}.u32 %d0, %a, %b;", inputs, 32, lambda a, b: a & (1 << limit(b)) - 1)

    def signed(a: int, b: int) -> int:
        n = limit(b)
        return _signed(a & (1 << n) - 1, n) & 0xFFFFFFFF if n else 0

    check(f"szext.{mode}.s32 %d0, %a, %b;", inputs, 32, signed)


def test_find_nth_set() -> None:
    def expected(mask: int, base: int, offset: int) -> int:
        offset = _signed(offset, 32)
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        places = range(base, 32) if offset > 0 else range(base, -1, -1)
        found = [n for n in places if mask >> n & 1]
        return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF

    rng = np.random.default_rng(1)
    offsets = rng.integers(-6, 7, COUNT).astype(np.int32).view(np.uint32)
    inputs = [_values(32, 1)[0], rng.integers(0, 32, COUNT).astype(np.uint32), offsets]
    check("fns.b32 %d0, %a, %b, %c;", inputs, 32, expected)


@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_permutes(mode: str) -> None:
    table = {
        "f4e": ("0123", "1234", "2345", "3456"),
        "b4e": ("0765", "1076", "2107", "3210"),
        "rc8": ("0000", "1111", "2222", "3333"),
        "ecl": ("0123", "1123", "2223", "3333"),
        "ecr": ("0000", "0111", "0122", "0123"),
        "rc16": ("0101", "2323", "0101", "2323"),
    }  # PTX ISA, prmt: source bytes of result bytes 0 to 3

    def expected(a: int, b: int, c: int) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        if mode:
            return int.from_bytes(bytes(source[int(n)] for n in table[mode][c & 3]), "little")
        out = []
        for k in range(4):
            nibble = c >> 4 * k & 15
            byte = source[nibble & 7]
            out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    check(f"prmt.b32{'.' if mode else ''}{mode} %d0, %a, %b, %c;", _values(32, 3), 32, expected)


def test_bit_field_insert_of_64_bits() -> None:
    inputs = [*_values(64, 2), _values(32, 1, 80)[0], _values(32, 2, 80)[1]]

    def expected(a: int, b: int, position: int, length: int) -> int:
        field = ((1 << length) - 1 << position) & 0xFFFF_FFFF_FFFF_FFFF
        return b & ~field | (a << position) & field

    check("bfi.b64 %d0, %a, %b, %c, %d;", inputs, 64, expected)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_select_by_sign(width: int) -> None:
    values = _values(width, 2)
    inputs = [*values, _values(32, 1)[0]]
    check(f"slct.b{width}.s32 %d0, %a, %b, %c;", inputs, width, lambda a, b, c: b if c >> 31 else a)
    positive = lambda c: c == 0x80000000 or c <= 0x7F800000  # noqa: E731
    check(f"slct.b{width}.f32 %d0, %a, %b, %c;", inputs, width, lambda a, b, c: a if positive(c) else b)


def test_relu_and_pairs_of_integers() -> None:
    inputs = _values(32, 2)
    for op, pick in (("min", min), ("max", max)):
        single = lambda a, b, p=pick: max(p(_signed(a, 32), _signed(b, 32)), 0)  # noqa: E731
        check(f"{op}.relu.s32 %d0, %a, %b;", inputs, 32, single)

        def pairs(a: int, b: int, p=pick) -> int:
            low, high = (max(p(_signed(a >> s & 0xFFFF, 16), _signed(b >> s & 0xFFFF, 16)), 0) for s in (0, 16))
            return high << 16 | low

        check(f"{op}.relu.s16x2 %d0, %a, %b;", inputs, 32, pairs)
    halves = lambda a, b: (a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16  # noqa: E731
    check("add.u16x2 %d0, %a, %b;", inputs, 32, halves)


def test_packing_bytes_and_words() -> None:
    bytes_ = _values(16, 4, 256)
    check(
        "mov.b32 %d0, {%x0, %x1, %x2, %x3};",
        bytes_,
        32,
        lambda a, b, c, d: d << 24 | c << 16 | b << 8 | a,
        ".reg .b8 %x<4>; cvt.u8.u16 %x0, %a; cvt.u8.u16 %x1, %b; cvt.u8.u16 %x2, %c; cvt.u8.u16 %x3, %d;",
    )
    words = _values(64, 2)
    setup = ".reg .b128 %q; mov.b128 %q, {%a, %b};"
    low, high, active = run_lanes("mov.b128 {%d0, %d1}, %q;", words, [64, 64], setup)
    np.testing.assert_array_equal(low, words[0][active])
    np.testing.assert_array_equal(high, words[1][active])


@pytest.mark.parametrize(
    ("kind", "bits", "signed"), [("u8", 8, False), ("s8", 8, True), ("s16", 16, True), ("u4", 4, False)]
)
def test_packing_with_saturation(kind: str, bits: int, signed: bool) -> None:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    inputs = [x // np.uint32(1 << 22) if k < 2 and bits < 16 else x for k, x in enumerate(_values(32, 3))]
    inputs[0][::3] = (-inputs[0][::3].astype(np.int32)).view(np.uint32)

    def expected(a: int, b: int, c: int = 0) -> int:
        x, y = (min(max(_signed(v, 32), low), high) & (1 << bits) - 1 for v in (a, b))
        return (c << 2 * bits | x << bits | y) & 0xFFFFFFFF

    third = bits < 16
    instruction = f"cvt.pack.sat.{kind}.s32{'.b32' if third else ''} %d0, %a, %b{', %c' if third else ''};"
    check(instruction, inputs if third else inputs[:2], 32, expected)


@pytest.mark.parametrize("operation", ["and", "or"])
@pytest.mark.parametrize("negated", ["", "!"])
def test_lop3_with_a_predicate(operation: str, negated: str) -> None:
    """p = (d != 0) BoolOp q (PTX ISA 9.7.8.6); the table here is (a ^ b) & c, rarely zero but for chosen inputs."""
    a, b, c = _values(32, 3)
    a[::3] = b[::3]
    q = "setp.lt.s32 %q, %a, 0;"
    declared = ".reg .pred %q; " + q
    instruction = f"lop3.{operation}.b32 %d0|%p1, %a, %b, %c, 0x28, {negated}%q;"
    result, predicate, lanes = run_lanes(instruction, [a, b, c], [32, 1], declared)
    x, y, z = (v[lanes] for v in (a, b, c))
    value = (x ^ y) & z
    other = (x >> 31 == 1) != bool(negated)
    np.testing.assert_array_equal(result, value)
    np.testing.assert_array_equal(predicate, (value != 0) & other if operation == "and" else (value != 0) | other)
    (alone, _) = run_lanes(instruction.replace("%d0|%p1", "_|%p0"), [a, b, c], [1], declared)
    np.testing.assert_array_equal(alone, predicate)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_cnot(width: int) -> None:
    check(f"cnot.b{width} %d0, %a;", _values(width, 1), width, lambda a: int(a == 0))
    check(f"cnot.b{width} %d0, %a;", [np.zeros(40, _values(width, 1)[0].dtype)], width, lambda a: 1)


# Of two words as predicates: p where a > b, q where a is odd.
_NEGATED = {
    "selp.b32 %z, %a, %b, !%p;": lambda a, b, p, q: b if p else a,
    "selp.f32 %f, 0f3F800000, 0f00000000, !%p; mov.b32 %z, %f;": lambda a, b, p, q: 0 if p else 0x3F800000,
    **{
        f"{op}.pred %r, {n}%p, {m}%q; selp.b32 %z, 1, 0, %r;": lambda a, b, p, q, f=f, n=n, m=m: int(
            f(p ^ (n == "!"), q ^ (m == "!"))
        )
        for op, f in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y))
        for n in ("", "!")
        for m in ("", "!")
    },
    "mov.pred %r, !%p; selp.b32 %z, 1, 0, %r;": lambda a, b, p, q: int(not p),
    "not.pred %r, !%p; selp.b32 %z, 1, 0, %r;": lambda a, b, p, q: int(p),
    "setp.lt.and.u32 %r, %a, %b, !%q; selp.b32 %z, 1, 0, %r;": lambda a, b, p, q: int(a < b and not q),
    "set.lt.xor.u32.u32 %z, %a, %b, !%q;": lambda a, b, p, q: 0xFFFFFFFF * ((a < b) ^ (not q)),
    "lop3.or.b32 %z|%r, %a, %b, 0, 0xC0, !%q; selp.b32 %z, 1, 0, %r;": lambda a, b, p, q: int(a & b != 0 or not q),
}


@pytest.mark.parametrize("instruction", _NEGATED)
def test_negated_predicates_wherever_ptxas_takes_them(instruction: str) -> None:
    a, b = _values(32, 2)
    body = f"""
    .reg .b32 %a, %b, %z, %odd; .reg .pred %p, %q, %r; .reg .f32 %f; .reg .b64 %at;
    mad.lo.u32 %r1, %cta, 100, %tid; mul.wide.u32 %at, %r1, 4;
    add.u64 %d1, %at, %first; ld.global.u32 %a, [%d1]; add.u64 %d1, %at, %second; ld.global.u32 %b, [%d1];
    setp.gt.u32 %p, %a, %b; and.b32 %odd, %a, 1; setp.ne.u32 %q, %odd, 0;
    {instruction}
    add.u64 %d1, %at, %out; st.global.u32 [%d1], %z;
    """
    arrays = {"first": a, "second": b, "out": np.zeros(COUNT, np.uint32)}
    got = run(body, arrays, grid=COUNT // 100, block=100).clean().arrays["out"]
    define = _NEGATED[instruction]
    want = [define(int(x), int(y), int(x) > int(y), bool(x & 1)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, np.uint32))
