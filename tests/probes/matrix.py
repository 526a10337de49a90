"""Cases of matrix.cu. Layouts are probed with small whole numbers, whose sums are exact in any order; sums with
products of very different sizes, which show how a tensor core aligns and truncates them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Arg, Array, Case, In, Kind, Out, hashed, hashed32

_LDMATRIX = ("x1", "x2", "x4", "x1_trans", "x2_trans", "x4_trans")
_MMA = {  # name: (element type, bits, A, B and C words a lane)
    "m16n8k16_bf16": ("bf16", 4, 2, 4), "m16n8k16_f16": ("f16", 4, 2, 4), "m16n8k16_f16_f16": ("f16", 4, 2, 2),
    "m16n8k8_bf16": ("bf16", 2, 1, 4), "m16n8k8_f16": ("f16", 2, 1, 4), "m16n8k8_tf32": ("tf32", 4, 2, 4),
    "m16n8k4_tf32": ("tf32", 2, 1, 4), "m16n8k32_e4m3": ("e4m3", 4, 2, 4), "m16n8k32_e5m2": ("e5m2", 4, 2, 4),
    "m16n8k8_f16_f16": ("f16", 2, 1, 2), "m16n8k16_e4m3": ("e4m3", 2, 1, 4), "m16n8k32_e4m3_f16": ("e4m3", 4, 2, 2),
    "m16n8k32_s8": ("s8", 4, 2, 4), "m16n8k32_u8_s8_sat": ("s8", 4, 2, 4), "m16n8k16_s8": ("s8", 2, 1, 4),
}  # fmt: skip
_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1}
SUM_TILES = 24


def bf16(x: Array) -> Array:
    bits: Array = (x.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return bits


def whole(dtype: str, words: int, salt: int) -> Array:
    """Hashed whole numbers -3..3 in the format, as 32-bit words."""
    n = words * 4 // _BYTES[dtype]
    v = (hashed32(n, salt) % np.uint32(7)).astype(np.int32) - 3
    if dtype == "bf16":
        return bf16(v).view(np.uint32)
    if dtype == "f16":
        return v.astype(np.float16).view(np.uint32)
    if dtype == "tf32":
        return v.astype(np.float32).view(np.uint32)
    if dtype == "s8":
        return (hashed32(n, salt) & np.uint32(0xFF)).astype(np.uint8).view(np.uint32)
    codes: list[int] = (
        [0xC4, 0xC0, 0xB8, 0, 0x38, 0x40, 0x44] if dtype == "e4m3" else [0xC2, 0xC0, 0xBC, 0, 0x3C, 0x40, 0x42]
    )
    words_of: Array = np.array(codes, np.uint8)[v + 3].view(np.uint32)
    return words_of


def wide(dtype: str, n: int, salt: int, narrow: bool = False) -> Array:
    """Hashed values of full mantissa over exponents -7..6, as elements (bf16, tf32: -14..13; 8 bits: -6..5).

    `narrow`: -4..3, of which sums of 32 products stay finite in f16.
    """
    h = hashed(n, salt)
    sign = (h >> np.uint64(63)).astype(np.uint32)
    spread, mantissa_bits = {"bf16": (28, 7), "tf32": (28, 10), "f16": (14, 10), "e4m3": (12, 3), "e5m2": (12, 2)}[
        dtype
    ]
    spread = 8 if narrow else spread
    exponent = (h % np.uint64(spread)).astype(np.int32) - spread // 2
    mantissa = ((h >> np.uint64(20)) & np.uint64(2**mantissa_bits - 1)).astype(np.uint32)
    if dtype in ("bf16", "tf32"):
        bits = (
            sign << np.uint32(31)
            | (exponent + 127).astype(np.uint32) << np.uint32(23)
            | mantissa << np.uint32(23 - mantissa_bits)
        )
        if dtype == "bf16":
            bits = (bits >> np.uint32(16)).astype(np.uint16)
        return np.asarray(bits)
    if dtype == "f16":
        return (sign << np.uint32(15) | (exponent + 15).astype(np.uint32) << np.uint32(10) | mantissa).astype(np.uint16)
    bias = {"e4m3": 7, "e5m2": 15}[dtype]
    magnitude = (exponent + bias).astype(np.uint32) << np.uint32(mantissa_bits) | mantissa
    return (sign << np.uint32(7) | magnitude).astype(np.uint8)


_SPECIAL = {  # infinities, NaN, the largest, the smallest normal and denormals; 8 bits: what there is of them
    "bf16": [0x7F80, 0xFF80, 0x7FC1, 0x7F7F, 0xFF7F, 0x0080, 0x007F, 0x8001],
    "f16": [0x7C00, 0xFC00, 0x7E01, 0x7BFF, 0xFBFF, 0x0400, 0x03FF, 0x8001],
    "tf32": [0x7F800000, 0xFF800000, 0x7FC02000, 0x7F7FE000, 0xFF7FE000, 0x00800000, 0x007FE000, 0x80002000],
    "e4m3": [0x7F, 0xFF, 0x7E, 0xFE, 0x08, 0x07, 0x01, 0x81],
    "e5m2": [0x7C, 0xFC, 0x7D, 0x7B, 0xFB, 0x04, 0x03, 0x81],
    "f32": [0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x007FFFFF, 0x80000001],
}


def special(dtype: str, values: Array, salt: int) -> Array:
    """`values` with one in 64 replaced by an infinity, a NaN, a denormal, ..."""
    h = hashed(values.size, salt)
    codes = np.array(_SPECIAL[dtype], values.dtype)
    return np.where(h % np.uint64(64) == 0, codes[(h >> np.uint64(32)) % np.uint64(codes.size)], values)


def denormal(dtype: str, n: int, salt: int) -> Array:
    """Hashed denormals of the format, as elements: half of few bits, whose leading one lies far below the first."""
    h = hashed(n, salt)
    size, mantissa_bits = _BYTES[dtype], {"bf16": 7, "tf32": 23, "f16": 10, "e4m3": 3, "e5m2": 2}[dtype]
    dropped = np.where(h >> np.uint64(62) & np.uint64(1), h >> np.uint64(40) & np.uint64(7), np.uint64(0))
    mantissa = (h & np.uint64(2**mantissa_bits - 1)) >> dropped % np.uint64(mantissa_bits)
    bits = h >> np.uint64(63) << np.uint64(8 * size - 1) | mantissa
    return np.asarray(bits.astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[size]))


def f16(n: int, salt: int) -> Array:
    """Accumulators of f16: a third zero, the others of exponents -7..6; as 32-bit words."""
    values = np.where(hashed32(n, salt) % np.uint32(3) == 0, np.uint16(0), wide("f16", n, salt))
    words: Array = values.astype(np.uint16).view(np.uint32)
    return words


def _f32(n: int, salt: int) -> Array:
    """Accumulators: a third zero, the others of any size from 2^-20 to 2^20."""
    h = hashed(n, salt)
    exponent = (np.uint64(107) + (h >> np.uint64(40)) % np.uint64(41)).astype(np.uint32)
    bits = (h & np.uint64(0x807FFFFF)).astype(np.uint32) | exponent << np.uint32(23)
    return np.where(h % np.uint64(3) == 0, np.uint32(0), bits).astype(np.uint32)


def _fragments() -> Iterator[Case]:
    smem = hashed32(1024, 51).view(np.uint8)
    orders = {"rows": np.arange(32, dtype=np.uint32) * 16, "scattered": (np.arange(32, dtype=np.uint32) * 11 % 64) * 48}
    for form in _LDMATRIX:
        n = int(form[1])
        for order, offsets in orders.items():
            args: tuple[Arg, ...] = (In(smem), 4096, In(offsets), Out(np.zeros(32 * n, np.uint32)))
            yield Case(f"matrix/ldmatrix_{form}/{order}", "matrix", f"ldmatrix_{form}", args, shared=4096)
            values = hashed32(32 * n, 52)
            args = (In(smem), 4096, In(offsets), In(values), Out(np.zeros(4096, np.uint8)))
            yield Case(f"matrix/stmatrix_{form}/{order}", "matrix", f"stmatrix_{form}", args, shared=4096)


def _mma() -> Iterator[Case]:
    tiles = 4
    for salt, (name, (dtype, na, nb, nc)) in enumerate(_MMA.items()):
        a, b = whole(dtype, tiles * 32 * na, 60 + salt), whole(dtype, tiles * 32 * nb, 80 + salt)
        if dtype == "s8":
            c = hashed32(tiles * 32 * nc, 99) | np.uint32(0x7FFF0000) & np.uint32(
                0 if "sat" not in name else 0xFFFFFFFF
            )
        elif nc == 2:
            c = whole("f16", tiles * 32 * nc, 99)
        else:
            c = whole("tf32", tiles * 32 * nc, 99)
        args = (In(a), In(b), In(c), Out(np.zeros(tiles * 32 * nc, np.uint32)))
        yield Case(f"matrix/mma_{name}", "matrix", f"mma_{name}", args, grid=(tiles, 1, 1))


def _mma_sums() -> Iterator[Case]:
    for name, (dtype, na, nb, nc) in _MMA.items():
        if dtype == "s8":
            continue
        lanes, per, half = SUM_TILES * 32, 4 // _BYTES[dtype], nc == 2
        a = wide(dtype, lanes * na * per, 101, half)
        b = wide(dtype, lanes * nb * per, 102, half)
        c = f16(lanes * nc * 2, 103) if half else _f32(lanes * nc, 103)
        nan = "f16" if half else "f32"
        out = Out(np.zeros(lanes * nc, np.uint32))
        for group, x, y, z in (
            ("sum", a, b, c),
            ("special", special(dtype, a, 104), special(dtype, b, 105), c if half else special("f32", c, 106)),
            ("small", denormal(dtype, a.size, 107), b, np.zeros_like(c)),
        ):
            args = (In(x.view(np.uint32)), In(y.view(np.uint32)), In(z), out)
            yield Case(
                f"matrix/{group}_mma_{name}", "matrix", f"mma_{name}", args, "accumulate", nan, (SUM_TILES, 1, 1)
            )


_SPARSE = {  # name: (element type, words a lane of A, B and C, selectors)
    "m16n8k32_bf16": ("bf16", 4, 4, 4, (0, 1)), "m16n8k32_f16_f16": ("f16", 4, 4, 2, (0,)),
    "m16n8k16_bf16": ("bf16", 2, 2, 4, (0, 1, 2, 3)), "m16n8k16_tf32": ("tf32", 4, 4, 4, (0, 1)),
    "m16n8k8_tf32": ("tf32", 2, 2, 4, (0, 3)), "m16n8k64_e4m3": ("e4m3", 4, 4, 4, (0,)),
    "m16n8k64_s8": ("s8", 4, 4, 4, (0,)), "m16n8k32_s8": ("s8", 2, 2, 4, (0, 1)),
}  # fmt: skip


def _metadata(dtype: str, words: int, salt: int) -> Array:
    """Hashed metadata: four bits a chunk, two of four elements in rising order, or one of two for tf32."""
    codes = np.array([0x4, 0xE] if dtype == "tf32" else [0x4, 0x8, 0x9, 0xC, 0xD, 0xE], np.uint32)
    chosen = codes[hashed32(8 * words, salt) % np.uint32(codes.size)].reshape(words, 8)
    packed: Array = np.bitwise_or.reduce(chosen << (4 * np.arange(8, dtype=np.uint32)), axis=1)
    return packed


def _sparse() -> Iterator[Case]:
    for salt, (name, (dtype, na, nb, nc, selectors)) in enumerate(_SPARSE.items()):
        for selector in selectors:
            tiles, entry, half = 4, f"sp_{name}_{selector}", nc == 2
            metadata = In(_metadata(dtype, tiles * 32, 200 + salt))
            out = Out(np.zeros(tiles * 32 * nc, np.uint32))
            a, b = whole(dtype, tiles * 32 * na, 210 + salt), whole(dtype, tiles * 32 * nb, 230 + salt)
            c = whole("f16" if half else "s8" if dtype == "s8" else "tf32", tiles * 32 * nc, 250)
            yield Case(f"matrix/{entry}", "matrix", entry, (In(a), In(b), In(c), metadata, out), grid=(tiles, 1, 1))
            if dtype == "s8" or selector:
                continue
            lanes, per = SUM_TILES * 32, 4 // _BYTES[dtype]
            a = wide(dtype, lanes * na * per, 251, half).view(np.uint32)
            b = wide(dtype, lanes * nb * per, 252, half).view(np.uint32)
            c = f16(lanes * nc * 2, 253) if half else _f32(lanes * nc, 253)
            args = (In(a), In(b), In(c), In(_metadata(dtype, lanes, 254)), Out(np.zeros(lanes * nc, np.uint32)))
            nan = "f16" if half else "f32"
            yield Case(f"matrix/sum_{entry}", "matrix", entry, args, "accumulate", nan, (SUM_TILES, 1, 1))


def descriptor(leading: int, stride: int, swizzle: str) -> bytes:
    """A wgmma matrix descriptor without its address (PTX ISA 9.7.15.5.1.2.2); byte offsets."""
    code = {"none": 0, "128B": 1, "64B": 2, "32B": 3}[swizzle]
    return (leading >> 4 << 16 | stride >> 4 << 32 | code << 62).to_bytes(8, "little")


def _wgmma_case(
    name: str,
    entry: str,
    words: int,
    a: bytes,
    b: bytes,
    smem: Array,
    d: Array,
    fragments: Array,
    kind: Kind = "exact",
    nan: str = "f32",
) -> Case:
    """`words`: of D, a thread. B lies behind the first half of `smem`."""
    size = smem.nbytes
    args = (In(smem), size, size // 2, a, b, In(d), In(fragments), Out(np.zeros(128 * words, np.uint32)))
    return Case(f"matrix/{name}", "matrix", entry, args, kind, nan, block=(128, 1, 1), shared=size)


def _wgmma() -> Iterator[Case]:
    smem, d, fragments = whole("bf16", 8192, 111), whole("tf32", 128 * 32, 112), whole("bf16", 512, 113)
    for swizzle, row in (("none", 16), ("32B", 32), ("64B", 64), ("128B", 128)):
        atom = 8 * row
        if swizzle == "none":  # core matrices of 8x8: leading and stride offsets say where the next ones lie
            k_major = [descriptor(128, 256, swizzle), descriptor(1024, 128, swizzle)]
        else:
            k_major = [descriptor(16, atom, swizzle), descriptor(16, 2 * atom, swizzle)]
        mn_major = [descriptor(2048, atom, swizzle), descriptor(atom, 2048, swizzle)]
        both = {"k": k_major, "m": mn_major, "n": mn_major}
        for entry in ("kk", "mk", "kn", "mn"):
            for i, (a, b) in enumerate(zip(both[entry[0]], both[entry[1]], strict=True)):
                name = f"wgmma_bf16_{entry}/{swizzle}_{i}"
                yield _wgmma_case(name, f"wgmma_bf16_{entry}", 32, a, b, smem, d, fragments)
        for entry in ("rs_k", "rs_n"):
            for i, b in enumerate(both[entry[-1]]):
                name = f"wgmma_bf16_{entry}/{swizzle}_{i}"
                yield _wgmma_case(name, f"wgmma_bf16_{entry}", 32, b, b, smem, d, fragments)
    swizzled = descriptor(16, 1024, "128B")
    for entry, dtype in (
        ("bf16_overwrite", "bf16"),
        ("bf16_negated", "bf16"),
        ("tf32", "tf32"),
        ("e4m3", "e4m3"),
        ("s8", "s8"),
    ):
        values = whole(dtype, 8192, 114)
        accumulator = hashed32(128 * 32, 115) if dtype == "s8" else d
        yield _wgmma_case(f"wgmma_{entry}", f"wgmma_{entry}", 32, swizzled, swizzled, values, accumulator, fragments)


def _wgmma_sums() -> Iterator[Case]:
    plain, unused = descriptor(128, 256, "none"), np.zeros(512, np.uint32)
    for dtype in ("bf16", "f16", "tf32", "e4m3", "e5m2"):
        entry = f"wgmma_sum_{dtype}"
        for i in range(4):
            values, d = wide(dtype, 4096 // _BYTES[dtype], 120 + i), _f32(512, 130 + i)
            half = values.size // 2  # where B begins
            small = np.concatenate([denormal(dtype, half, 151 + i), values[half:]])
            for group, x, y in (
                ("sum", values, d),
                ("special", special(dtype, values, 140 + i), special("f32", d, 150)),
                ("small", small, np.zeros_like(d)),
            ):
                name = f"{group}_wgmma_{dtype}/{i}"
                yield _wgmma_case(name, entry, 4, plain, plain, x.view(np.uint32), y, unused, "accumulate")
    for dtype in ("f16", "e4m3"):
        for i in range(4):
            values, d = wide(dtype, 4096 // _BYTES[dtype], 160 + i, True).view(np.uint32), f16(512, 170 + i)
            name = f"sum_wgmma_{dtype}_f16/{i}"
            yield _wgmma_case(name, f"wgmma_half_{dtype}", 2, plain, plain, values, d, unused, "accumulate", "f16")


def _wgmma_sparse() -> Iterator[Case]:
    a, b = descriptor(128, 256, "none"), descriptor(128, 512, "none")
    for salt, (dtype, selectors) in enumerate(
        (("bf16", (0, 1)), ("f16", (0,)), ("tf32", (0, 1)), ("e4m3", (0,)), ("s8", (0,)))
    ):
        for selector in selectors:
            entry, metadata = f"wgmma_sp_{dtype}_{selector}", _metadata(dtype, 128, 180 + salt)
            d = hashed32(512, 182) if dtype == "s8" else whole("tf32", 512, 182)
            yield _wgmma_case(entry, entry, 4, a, b, whole(dtype, 1024, 181 + salt), d, metadata)
            if dtype != "s8" and not selector:
                values = wide(dtype, 4096 // _BYTES[dtype], 190).view(np.uint32)
                yield _wgmma_case(f"sum_{entry}", entry, 4, a, b, values, _f32(512, 191), metadata, "accumulate")


def cases() -> Iterator[Case]:
    yield from _fragments()
    yield from _mma()
    yield from _mma_sums()
    yield from _sparse()
    yield from _wgmma()
    yield from _wgmma_sums()
    yield from _wgmma_sparse()
