"""Cases of matrix.cu. Layouts are probed with small whole numbers, whose sums are exact in any order; sums with
products of very different sizes, which show how a tensor core aligns and truncates them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Arg, Array, Case, In, Out, hashed, hashed32

_LDMATRIX = ("x1", "x2", "x4", "x1_trans", "x2_trans", "x4_trans")
_MMA = {  # name: (element type, bits, A, B and C words a lane)
    "m16n8k16_bf16": ("bf16", 4, 2, 4), "m16n8k16_f16": ("f16", 4, 2, 4), "m16n8k16_f16_f16": ("f16", 4, 2, 2),
    "m16n8k8_bf16": ("bf16", 2, 1, 4), "m16n8k8_f16": ("f16", 2, 1, 4), "m16n8k8_tf32": ("tf32", 4, 2, 4),
    "m16n8k4_tf32": ("tf32", 2, 1, 4), "m16n8k32_e4m3": ("e4m3", 4, 2, 4), "m16n8k32_e5m2": ("e5m2", 4, 2, 4),
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


def wide(dtype: str, n: int, salt: int) -> Array:
    """Hashed values of full mantissa over `dtype`'s exponents 2^-6..2^6 (bf16, tf32: 2^-14..2^13), as elements."""
    h = hashed(n, salt)
    sign = (h >> np.uint64(63)).astype(np.uint32)
    spread, mantissa_bits = {"bf16": (28, 7), "tf32": (28, 10), "f16": (14, 10), "e4m3": (12, 3)}[dtype]
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
    return (sign << np.uint32(7) | (exponent + 7).astype(np.uint32) << np.uint32(3) | mantissa).astype(np.uint8)


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
    for name in ("m16n8k16_bf16", "m16n8k16_f16", "m16n8k8_bf16", "m16n8k8_tf32", "m16n8k32_e4m3"):
        dtype, na, nb, nc = _MMA[name]
        lanes, per = SUM_TILES * 32, 4 // _BYTES[dtype]
        a, b = wide(dtype, lanes * na * per, 101).view(np.uint32), wide(dtype, lanes * nb * per, 102).view(np.uint32)
        args = (In(a), In(b), In(_f32(lanes * nc, 103)), Out(np.zeros(lanes * nc, np.uint32)))
        yield Case(f"matrix/sum_mma_{name}", "matrix", f"mma_{name}", args, "accumulate", "f32", grid=(SUM_TILES, 1, 1))


def descriptor(leading: int, stride: int, swizzle: str) -> bytes:
    """A wgmma matrix descriptor without its address (PTX ISA 9.7.15.5.1.2.2); byte offsets."""
    code = {"none": 0, "128B": 1, "64B": 2, "32B": 3}[swizzle]
    return (leading >> 4 << 16 | stride >> 4 << 32 | code << 62).to_bytes(8, "little")


def _wgmma_case(
    name: str,
    entry: str,
    dtype: str,
    n: int,
    a: bytes,
    b: bytes,
    smem: Array,
    d: Array,
    fragments: Array,
    kind: str = "exact",
) -> Case:
    size = smem.nbytes
    args = (In(smem), size, size // 2, a, b, In(d), In(fragments), Out(np.zeros(128 * n, np.uint32)))
    return Case(f"matrix/{name}", "matrix", entry, args, kind, "f32", block=(128, 1, 1), shared=size)  # type: ignore[arg-type]


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
                yield _wgmma_case(name, f"wgmma_bf16_{entry}", "bf16", 32, a, b, smem, d, fragments)
        for entry in ("rs_k", "rs_n"):
            for i, b in enumerate(both[entry[-1]]):
                name = f"wgmma_bf16_{entry}/{swizzle}_{i}"
                yield _wgmma_case(name, f"wgmma_bf16_{entry}", "bf16", 32, b, b, smem, d, fragments)
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
        yield _wgmma_case(
            f"wgmma_{entry}", f"wgmma_{entry}", dtype, 32, swizzled, swizzled, values, accumulator, fragments
        )


def _wgmma_sums() -> Iterator[Case]:
    plain = descriptor(128, 256, "none")
    for dtype in ("bf16", "f16", "tf32", "e4m3"):
        for i in range(4):
            values = wide(dtype, 4096 // _BYTES[dtype], 120 + i).view(np.uint32)
            accumulators = _f32(512, 130 + i)
            unused = np.zeros(4, np.uint32)
            yield _wgmma_case(
                f"sum_wgmma_{dtype}/{i}",
                f"wgmma_sum_{dtype}",
                dtype,
                4,
                plain,
                plain,
                values,
                accumulators,
                np.resize(unused, 512),
                "accumulate",
            )


def cases() -> Iterator[Case]:
    yield from _fragments()
    yield from _mma()
    yield from _mma_sums()
    yield from _wgmma()
    yield from _wgmma_sums()
