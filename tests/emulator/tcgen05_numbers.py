"""The tensor core's operands in NumPy, from the definitions: formats, canonical layouts, descriptors, data paths."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Place = TypeVar("Place", int, NDArray[np.int64])

# name -> (code in the instruction descriptor, exponent bits, mantissa bits, bias)
SMALL = {"e4m3": (0, 4, 3, 7), "e5m2": (1, 5, 2, 15), "e2m3": (3, 2, 3, 1), "e3m2": (4, 3, 2, 3), "e2m1": (5, 2, 1, 1)}
KINDS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}  # -> K
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "u8": 0, "s8": 1, "fp4": 1} | {name: row[0] for name, row in SMALL.items()}
D_CODES = {"f16": 0, "f32": 1, "s32": 2}


def small_float(codes: NDArray[np.integer], name: str) -> NDArray[np.float64]:
    """Values of finite codes."""
    _, e_bits, m_bits, bias = SMALL[name]
    codes = codes.astype(np.int64)
    m = codes & (2**m_bits - 1)
    e = codes >> m_bits & (2**e_bits - 1)
    sign = np.where(codes >> (e_bits + m_bits) & 1, -1.0, 1.0)
    return np.where(e == 0, sign * m * 2.0 ** (1 - bias - m_bits), sign * (1 + m / 2**m_bits) * 2.0 ** (e - bias))


def random_operand(rng: np.random.Generator, name: str, rows: int) -> tuple[Bytes, NDArray[np.float64]]:
    """(rows x 32 bytes as shared memory holds them, K-major; their values)."""
    if name in ("f16", "bf16", "tf32"):
        x = rng.uniform(-2, 2, (rows, 8 if name == "tf32" else 16)).astype(np.float32)
        if name == "f16":
            half = x.astype(np.float16)
            return half.view(np.uint8).reshape(rows, 32), half.astype(np.float64)
        if name == "bf16":
            top = (x.view(np.uint32) >> 16).astype(np.uint16)
            return top.view(np.uint8).reshape(rows, 32), (top.astype(np.uint32) << 16).view(np.float32).astype(
                np.float64
            )
        # Thirteen low bits that the tensor core ignores.
        cut = (x.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
        return x.view(np.uint8).reshape(rows, 32), cut.astype(np.float64)
    if name in ("u8", "s8"):
        raw = rng.integers(0, 256, (rows, 32), dtype=np.uint8)
        return raw, (raw.view(np.int8) if name == "s8" else raw).astype(np.float64)
    if name == "fp4":  # two e2m1 a byte
        codes = rng.integers(0, 16, (rows, 64))
        return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), small_float(codes, "e2m1")
    bits = 1 + sum(SMALL[name][1:3])
    codes = rng.integers(0, 2**bits, (rows, 32))
    if name == "e4m3":
        codes[(codes & 0x7F) == 0x7F] = 0  # NaN
    if name == "e5m2":
        codes[(codes & 0x7C) == 0x7C] = 0  # infinities and NaN
    return pack(codes, bits), small_float(codes, name)


def pack(codes: NDArray[np.integer], bits: int) -> Bytes:
    """32 codes a row, 16 to each 16-byte chunk, the rest of the chunk padding that must be ignored."""
    stream = (codes[:, :, None] >> np.arange(bits) & 1).reshape(len(codes), 2, 16 * bits)
    padded = np.ones((len(codes), 2, 128), np.uint8)
    padded[:, :, : 16 * bits] = stream
    return np.packbits(padded.reshape(len(codes), 256), axis=1, bitorder="little")


def containers(codes: NDArray[np.integer], name: str) -> Bytes:
    """One code a byte, as tensor memory holds 4-bit and 6-bit elements."""
    return (codes << (2 if name == "e2m1" else 0)).astype(np.uint8)


@dataclass(frozen=True)
class Layout:
    """A canonical layout: CuTe's Swizzle<bits, base, shift> over strides, in bytes (PTX ISA 9.7.16.3.3)."""

    code: int  # in the descriptor
    span: int  # bytes a row of the atom
    swizzle: tuple[int, int, int]
    mn_major: bool = False
    element: int = 1  # bytes
    leading: int = 0
    stride: int = 0
    k_offset: int = 0  # bytes along K inside the atom, K-major

    def address(self, mn: Place, k_byte: Place) -> Place:
        """Of one byte, or of as many as the arrays have."""
        if not self.mn_major:
            chunk = k_byte // 16 * (self.leading if self.code == 0 else 16)
            a = mn % 8 * self.span + mn // 8 * self.stride + chunk + k_byte % 16 + self.k_offset
        else:
            k, byte = divmod(k_byte, self.element)
            along = mn * self.element
            group = 4 if self.code == 1 else 8
            outer, inner = (self.stride, self.leading) if self.code == 0 else (self.leading, self.stride)
            a = along // self.span * outer + along % self.span + k % group * self.span + k // group * inner + byte
        bits, base, shift = self.swizzle
        return a ^ (a >> shift & ((1 << bits) - 1) << base)

    def place(self, rows: Bytes, size: int) -> bytes:
        image = np.zeros(size, np.uint8)
        image[self.address(*np.indices(rows.shape))] = rows
        return image.tobytes()

    def descriptor(self, start: int) -> int:
        fields = ((start + self.k_offset, 0), (self.leading, 16), (self.stride, 32))
        return sum((x >> 4 & 0x3FFF) << at for x, at in fields) | 1 << 46 | self.code << 61


def k_major(swizzle: int, k_offset: int = 0) -> Layout:
    """Rows of `swizzle` bytes one after the other, or cores of 8 x 16 bytes without one."""
    if swizzle == 0:
        return Layout(0, 16, (0, 4, 3), leading=128, stride=256)
    code, bits = {32: (6, 1), 64: (4, 2), 128: (2, 3)}[swizzle]
    return Layout(code, swizzle, (bits, 4, 3), stride=8 * swizzle, k_offset=k_offset)


def mn_major(swizzle: int, element: int, rows: int) -> Layout:
    """K rows of `swizzle` bytes of MN; `swizzle` 16 is none and 1 is 128 bytes with atoms of 32."""
    groups = 32 // element // 8 or 1
    if swizzle == 16:
        return Layout(0, 16, (0, 4, 3), True, element, leading=128, stride=128 * groups)
    if swizzle == 1:
        return Layout(1, 128, (2, 5, 2), True, element, leading=512 * 2, stride=512)
    code, bits = {32: (6, 1), 64: (4, 2), 128: (2, 3)}[swizzle]
    return Layout(code, swizzle, (bits, 4, 3), True, element, leading=8 * swizzle * groups, stride=8 * swizzle)


def instruction(kind: str, m: int, n: int, a: str, b: str, d: str = "f32", **fields: int) -> int:
    """The instruction descriptor; fields are negate_a, negate_b, a_mn, b_mn, saturate, shift, e8m0, id_a, id_b."""
    word = CODES[a] << 7 | CODES[b] << 10 | n >> 3 << 17
    for name, bit in (("negate_a", 13), ("negate_b", 14), ("a_mn", 15), ("b_mn", 16)):
        word |= fields.get(name, 0) << bit
    if kind.startswith("mx"):
        word |= m >> 7 << 27 | fields.get("e8m0", 1) << 23 | fields.get("id_a", 0) << 29 | fields.get("id_b", 0) << 4
    else:
        word |= D_CODES[d] << 4 | m >> 4 << 24 | fields.get("saturate", 0) << 3 | fields.get("shift", 0) << 30
    return word


@functools.cache
def d_cells(m: int, n: int, *, ws: bool = False, pair: bool = False, lane: int = 0) -> NDArray[np.int64]:
    """(cta, lane, column) of every element of D, [m, n, 3]: the figures of PTX ISA 9.7.16.10.5 one by one."""
    cells = np.zeros((m, n, 3), np.int64)
    for r in range(m):
        for c in range(n):
            if pair and m == 256:  # A
                cells[r, c] = (r // 128, r % 128, c)
            elif pair:  # B
                cells[r, c] = (r // 64, r % 64 + (64 if c >= n // 2 else 0), c % (n // 2))
            elif m == 128:  # D
                cells[r, c] = (0, r, c)
            elif m == 32:  # G
                cells[r, c] = (0, r + 32 * (c // (n // 4)), c % (n // 4))
            elif ws:  # E
                cells[r, c] = (0, r + 64 * (c // (n // 2)), c % (n // 2))
            else:  # F
                cells[r, c] = (0, 32 * (r // 16) + r % 16 + lane, c)
    cells.flags.writeable = False  # it is everybody's
    return cells


# Kind -> elements of a group that four bits of metadata describe, columns of metadata (PTX ISA 9.7.16.10.8).
GROUPS = {"f16": (4, 1), "tf32": (2, 1), "f8f6f4": (4, 2), "i8": (4, 2), "mxf8f6f4": (4, 2), "mxf4": (8, 2)}


def metadata_bits(kind: str) -> NDArray[np.int64]:
    """[lane of the row in D, group along K] -> lane << 16 | bit of its four bits of metadata."""
    _, columns = GROUPS[kind]
    out = np.zeros((128, 8 * columns), np.int64)
    for lane in range(128):
        for group in range(8 * columns):
            if columns == 2:
                out[lane, group] = lane << 16 | 4 * group
            else:  # rows eight apart share two lanes: each lane has half of K of both
                half, nibble = divmod(group, 4)
                out[lane, group] = (lane - lane // 8 % 2 * 8 + 8 * half) << 16 | 16 * (lane // 8 % 2) + 4 * nibble
    return out


def random_pattern(rng: np.random.Generator, kind: str, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(codes [rows, groups], where each stored element belongs along K [rows, stored])."""
    length, columns = GROUPS[kind]
    groups = 8 * columns
    if length == 2:
        second = rng.integers(0, 2, (rows, groups))
        return np.where(second, 0b1110, 0b0100), 2 * np.arange(groups) + second
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[rng.integers(0, 6, (rows, groups))]
    codes = pairs[..., 0] | pairs[..., 1] << 2
    if length == 8:
        pairs = (2 * pairs[..., None] + np.arange(2)).reshape(rows, groups, 4)
    return codes, (length * np.arange(groups)[:, None] + pairs).reshape(rows, -1)


def metadata_words(kind: str, codes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Codes of 128 lanes -> the columns of tensor memory that hold them."""
    words = np.zeros((128, GROUPS[kind][1]), np.uint32)
    for at, code in zip(metadata_bits(kind).ravel(), codes.ravel(), strict=True):
        lane, bit = at >> 16, at & 0xFFFF
        words[lane, bit // 32] |= np.uint32(code << bit % 32)
    return words
