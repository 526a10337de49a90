"""Tensor maps: each rule has a value just inside and one just outside.

The verdicts are the driver's own, which was given the same arguments on an H200; for the types and swizzles that came
with Blackwell, and for other swizzles than 32B with interleave 32B, they are the documentation's.
"""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.emulator.tensormap import MAGIC, STRUCT, decode, encode_tiled
from fmha.emulator.tensormap_rules import (
    DTYPES,
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    TensorMapError,
    TensorMapFields,
)

# bf16 tiles of 128 rows x 64, as our kernel's
PLAIN: dict[str, Any] = {
    "dtype": "bf16",
    "address": 1 << 20,
    "global_dim": [64, 1000, 3],
    "global_strides": [128, 128000],
    "box_dim": [64, 128, 1],
    "element_strides": [1, 1, 1],
}
BYTES = {**PLAIN, "dtype": "u8", "box_dim": [64, 1, 1]}
FLOATS = {**PLAIN, "dtype": "f32", "box_dim": [4, 8, 8]}
INTERLEAVED = {**FLOATS, "interleave": "32B", "swizzle": "32B"}
PACKED = {
    "dtype": "16u4_align16b",
    "address": 1 << 20,
    "global_dim": [256, 64, 2],
    "global_strides": [128, 8192],
    "box_dim": [128, 8, 1],
}
PACKED8 = {**PACKED, "dtype": "16u4_align8b"}
PACKED6 = {**PACKED, "dtype": "16u6_align16b", "global_strides": [192, 12288]}


def one_of_rank(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "dtype": "f32",
        "address": 256,
        "global_dim": [64] * rank,
        "global_strides": [256] * (rank - 1),
        "box_dim": [4] * rank,
        **changes,
    }


# (what the rule is about, arguments just inside, arguments just outside, what the message must name)
RULES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("dtype", PLAIN, {**PLAIN, "dtype": "e4m3"}, "dtype is 'e4m3'"),
    ("interleave name", PLAIN, {**PLAIN, "interleave": "64B"}, "interleave is '64B'"),
    ("swizzle name", PLAIN, {**PLAIN, "swizzle": "256B"}, "swizzle is '256B'"),
    ("L2 name", {**PLAIN, "l2_promotion": "256B"}, {**PLAIN, "l2_promotion": "512B"}, "l2_promotion is '512B'"),
    ("fill name", PLAIN, {**PLAIN, "oob_fill": "zero"}, "oob_fill is 'zero'"),
    ("rank 0", one_of_rank(1), one_of_rank(0, global_strides=[]), "rank is 0"),
    ("rank 5", one_of_rank(5), one_of_rank(6), "rank is 6"),
    ("interleaved rank", one_of_rank(3, interleave="16B"), one_of_rank(2, interleave="16B"), "rank is 2"),
    ("strides' count", PLAIN, {**PLAIN, "global_strides": [128]}, "global_strides is [128]"),
    ("box's count", PLAIN, {**PLAIN, "box_dim": [64, 128]}, "box_dim is [64, 128]"),
    ("steps' count", PLAIN, {**PLAIN, "element_strides": [1]}, "element_strides is [1]"),
    ("rank's own argument", {**PLAIN, "rank": 3}, {**PLAIN, "rank": 2}, "global_dim is [64, 1000, 3]"),
    ("address", {**PLAIN, "address": 16}, {**PLAIN, "address": 8}, "address is 0x8: must be 16-byte aligned"),
    ("address 57", {**PLAIN, "address": (1 << 57) - 16}, {**PLAIN, "address": 1 << 57}, "address is 0x2"),
    ("address interleaved", {**INTERLEAVED, "address": 32}, {**INTERLEAVED, "address": 16}, "32-byte aligned"),
    ("address packed", {**PACKED, "address": 32}, {**PACKED, "address": 16}, "32-byte aligned for 16u4_align16b"),
    ("address packed 6", {**PACKED6, "address": 32}, {**PACKED6, "address": 16}, "32-byte aligned"),
    ("address packed 8", {**PACKED8, "address": 16}, {**PACKED8, "address": 8}, "16-byte aligned"),
    ("dim 0", {**PLAIN, "global_dim": [64, 1, 3]}, {**PLAIN, "global_dim": [64, 0, 3]}, "global_dim[1] is 0"),
    ("dim 2^32", {**PLAIN, "global_dim": [1 << 32, 1, 3]}, {**PLAIN, "global_dim": [(1 << 32) + 1, 1, 3]}, "2^32"),
    ("dim packed", PACKED, {**PACKED, "global_dim": [192, 64, 2]}, "global_dim[0] is 192: must be a multiple of 128"),
    ("dim packed 6", PACKED6, {**PACKED6, "global_dim": [192, 64, 2]}, "global_dim[0] is 192"),
    ("dim packed 8", {**PACKED8, "global_dim": [2, 64, 2]}, {**PACKED8, "global_dim": [3, 64, 2]}, "multiple of 2"),
    ("stride", {**PLAIN, "global_strides": [16, 0]}, {**PLAIN, "global_strides": [8, 0]}, "global_strides[0] is 8"),
    (
        "stride 2^40",
        {**PLAIN, "global_strides": [128, (1 << 40) - 16]},
        {**PLAIN, "global_strides": [128, 1 << 40]},
        "global_strides[1] is 1099511627776: must be less than 2^40",
    ),
    ("stride < 0", PLAIN, {**PLAIN, "global_strides": [128, -16]}, "global_strides[1] is -16"),
    (
        "stride interleaved",
        {**INTERLEAVED, "global_strides": [32, 64]},
        {**INTERLEAVED, "global_strides": [16, 64]},
        "multiple of 32 bytes for interleave 32B",
    ),
    (
        "stride 16B",
        {**INTERLEAVED, "interleave": "16B", "global_strides": [16, 16]},
        {**INTERLEAVED, "global_strides": [16, 16]},
        "of 32",
    ),
    ("stride packed", {**PACKED, "global_strides": [32, 32]}, {**PACKED, "global_strides": [48, 32]}, "of 32"),
    ("stride packed 6", {**PACKED6, "global_strides": [32, 32]}, {**PACKED6, "global_strides": [48, 32]}, "of 32"),
    ("stride packed 8", {**PACKED8, "global_strides": [48, 16]}, {**PACKED8, "global_strides": [40, 16]}, "of 16"),
    ("box 0", {**PLAIN, "box_dim": [64, 1, 1]}, {**PLAIN, "box_dim": [64, 0, 1]}, "box_dim[1] is 0"),
    ("box 256", {**PLAIN, "box_dim": [64, 256, 1]}, {**PLAIN, "box_dim": [64, 257, 1]}, "box_dim[1] is 257"),
    ("inner box 256", {**PLAIN, "box_dim": [256, 1, 1]}, {**PLAIN, "box_dim": [264, 1, 1]}, "box_dim[0] is 264"),
    ("row", {**PLAIN, "box_dim": [8, 1, 1]}, {**PLAIN, "box_dim": [12, 1, 1]}, "box_dim[0] is 12: must make rows of a"),
    ("row of bytes", {**BYTES, "box_dim": [16, 1, 1]}, {**BYTES, "box_dim": [17, 1, 1]}, "not 17 bytes"),
    (
        "row of f64",
        {**BYTES, "dtype": "f64", "box_dim": [2, 1, 1]},
        {**BYTES, "dtype": "f64", "box_dim": [1, 1, 1]},
        "8 by",
    ),
    ("row of u4", {**PACKED8, "box_dim": [32, 1, 1]}, {**PACKED8, "box_dim": [48, 1, 1]}, "not 24 bytes"),
    ("row interleaved", INTERLEAVED, {**INTERLEAVED, "box_dim": [2, 8, 8]}, "not 8 bytes"),
    ("row packed", PACKED, {**PACKED, "box_dim": [64, 8, 1]}, "box_dim[0] is 64: must be 128"),
    ("row packed 6", PACKED6, {**PACKED6, "box_dim": [256, 8, 1]}, "box_dim[0] is 256: must be 128"),
    (
        "box bytes",
        {**BYTES, "box_dim": [64, 64, 57]},
        {**BYTES, "box_dim": [80, 139, 21]},
        "at most 233472 bytes, not 233520",
    ),
    (
        "box bytes with steps",  # 39 / 8 counts as 4 rows, although 5 are loaded
        {**BYTES, "box_dim": [256, 228, 39], "element_strides": [1, 1, 8]},
        {**BYTES, "box_dim": [256, 228, 40], "element_strides": [1, 1, 8]},
        "box_dim is [256, 228, 40]: must make boxes of at most 233472 bytes, not 291840",
    ),
    ("step 0", PLAIN, {**PLAIN, "element_strides": [1, 0, 1]}, "element_strides[1] is 0"),
    (
        "step 8",
        {**PLAIN, "element_strides": [8, 8, 8]},
        {**PLAIN, "element_strides": [1, 1, 9]},
        "element_strides[2] is 9",
    ),
    ("inner step", {**PLAIN, "element_strides": [2, 1, 1]}, {**PLAIN, "element_strides": [9, 1, 1]}, "strides[0] is 9"),
    (
        "32B swizzle",
        {**PLAIN, "box_dim": [16, 8, 1], "swizzle": "32B"},
        {**PLAIN, "box_dim": [24, 8, 1], "swizzle": "32B"},
        "box_dim[0] is 24: must make rows of at most 32 bytes, not 48, with swizzle 32B",
    ),
    (
        "64B swizzle",
        {**PLAIN, "box_dim": [32, 8, 1], "swizzle": "64B"},
        {**PLAIN, "box_dim": [40, 8, 1], "swizzle": "64B"},
        "at most 64 bytes, not 80",
    ),
    ("128B swizzle", {**PLAIN, "swizzle": "128B"}, {**PLAIN, "box_dim": [72, 8, 1], "swizzle": "128B"}, "not 144"),
    (
        "128B swizzle with 32B atoms",
        {**PLAIN, "swizzle": "128B_atom_32B"},
        {**PLAIN, "box_dim": [72, 8, 1], "swizzle": "128B_atom_32B"},
        "at most 128 bytes, not 144",
    ),
    (
        "128B swizzle with flips",
        {**PLAIN, "swizzle": "128B_atom_32B_flip_8B"},
        {**PLAIN, "box_dim": [72, 8, 1], "swizzle": "128B_atom_32B_flip_8B"},
        "at most 128 bytes, not 144",
    ),
    (
        "128B swizzle with 64B atoms",
        {**PLAIN, "swizzle": "128B_atom_64B"},
        {**PLAIN, "box_dim": [72, 8, 1], "swizzle": "128B_atom_64B"},
        "at most 128 bytes, not 144",
    ),
    (
        "no limit on a row without a swizzle or with an interleave",
        {**FLOATS, "box_dim": [256, 1, 1], "interleave": "16B", "swizzle": "128B"},
        {**FLOATS, "box_dim": [256, 1, 1], "swizzle": "128B"},
        "at most 128 bytes, not 1024",
    ),
    ("swizzle interleaved", INTERLEAVED, {**INTERLEAVED, "swizzle": "64B"}, "swizzle is '64B': must be 32B"),
    ("swizzle 16B", {**INTERLEAVED, "interleave": "16B", "swizzle": "none"}, {**INTERLEAVED, "swizzle": "none"}, "32B"),
    ("swizzle packed", {**PACKED, "swizzle": "128B"}, {**PACKED, "swizzle": "64B"}, "64 bytes, not 128"),
    (
        "swizzle packed 4",
        {**PACKED, "swizzle": "128B_atom_32B"},
        {**PACKED, "swizzle": "128B_atom_64B"},
        "one of none,",
    ),
    (
        "swizzle packed 6",
        {**PACKED6, "swizzle": "128B_atom_64B"},
        {**PACKED6, "swizzle": "128B_atom_32B_flip_8B"},
        "one of none, 128B, 128B_atom_32B, 128B_atom_64B for 16u6_align16b",
    ),
    ("swizzle packed 8", {**PACKED8, "swizzle": "64B"}, {**PACKED8, "swizzle": "32B"}, "at most 32 bytes, not 64"),
    ("interleave packed 6", PACKED6, {**PACKED6, "interleave": "16B"}, "interleave is '16B': must be none"),
    ("fill", {**PLAIN, "oob_fill": "nan"}, {**BYTES, "oob_fill": "nan"}, "needs a floating-point type, not u8"),
    (
        "fill tf32",
        {**FLOATS, "dtype": "tf32_ftz", "oob_fill": "nan"},
        {**FLOATS, "dtype": "s32", "oob_fill": "nan"},
        "s32",
    ),
    ("fill packed", PACKED, {**PACKED, "oob_fill": "nan"}, "needs a floating-point type"),
]


@pytest.mark.parametrize(
    ("inside", "outside", "message"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES]
)
def test_rule(inside: dict[str, Any], outside: dict[str, Any], message: str) -> None:
    assert len(encode_tiled(**inside)) == 128
    with pytest.raises(TensorMapError) as caught:
        encode_tiled(**outside)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"address": 0},
        {"global_strides": [0, 0]},
        {"global_strides": [128, 16]},
        {"global_strides": [16, 16]},
        {"global_dim": [1, 1, 1]},
        {"global_dim": [1 << 32, 1 << 32, 1 << 32]},
        {"box_dim": [64, 256, 7]},
        {"box_dim": [256, 1, 1]},
    ],
)
def test_what_looks_odd_but_the_driver_takes(changes: dict[str, Any]) -> None:
    arguments = {**PLAIN, **changes}
    tensor = decode(encode_tiled(**arguments))
    assert [getattr(tensor, key) for key in changes] == [
        tuple(v) if isinstance(v, list) else v for v in changes.values()
    ]


def test_the_bytes_are_as_documented() -> None:
    data = encode_tiled(
        dtype="f16",
        address=0x123456789ABCD0,
        global_dim=[8, 1 << 32, 5],
        global_strides=[0x123450, 0xFFFFFFFFF0],
        box_dim=[8, 256, 3],
        element_strides=[1, 2, 8],
        interleave="16B",
        swizzle="64B",
        l2_promotion="256B",
        oob_fill="nan",
    )
    assert struct.unpack_from("<Q", data) == (0x123456789ABCD0,)
    assert data[8:10] == b"TM"
    assert list(data[10:12]) == [6 | 1 << 4 | 1 << 6, 2 | 3 << 3 | 3 << 6]
    assert struct.unpack_from("<I", data, 12) == (zlib.crc32(data[:12] + data[16:64]),)
    assert struct.unpack_from("<5I", data, 16) == (7, 0xFFFFFFFF, 4, 0, 0)
    assert data[36:56] == (0x123450).to_bytes(5, "little") + (0xFFFFFFFFF0).to_bytes(5, "little") + bytes(10)
    assert list(data[56:61]) == [7, 255, 2, 0, 0]
    assert struct.unpack_from("<H", data, 61) == (1 << 3 | 7 << 6,)
    assert data[63] == 0b111
    assert data[64:] == bytes(64)
    assert (STRUCT.size, len(data)) == (64, 128)
    assert STRUCT.unpack(data[:64])[1] == MAGIC


def test_the_codes_are_those_of_the_driver_s_enumerations() -> None:
    assert [code for code, _ in DTYPES.values()] == list(range(16))
    assert [bits for _, bits in DTYPES.values()] == [8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6]
    assert (len(INTERLEAVES), len(SWIZZLES), len(L2_PROMOTIONS), len(OOB_FILLS)) == (3, 7, 4, 2)


def test_element_strides_default_to_ones() -> None:
    arguments = {key: value for key, value in PLAIN.items() if key != "element_strides"}
    assert encode_tiled(**arguments) == encode_tiled(**PLAIN)


def test_properties() -> None:
    tensor = decode(encode_tiled(**PLAIN))
    assert (tensor.rank, tensor.element_bits, tensor.inner_box_bytes) == (3, 16, 128)
    packed = decode(encode_tiled(**PACKED))
    assert (packed.element_bits, packed.inner_box_bytes) == (4, 128)  # 64 bytes, spread over 128
    assert decode(encode_tiled(**PACKED8)).inner_box_bytes == 64


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "length is 0"),
        (bytes(127), "length is 127"),
        (bytes(128), "magic is 0x0"),
        (b"\xff" * 128, "no tensor map"),
    ],
)
def test_other_bytes_are_no_tensor_map(data: bytes, message: str) -> None:
    with pytest.raises(TensorMapError, match=message):
        decode(data)


@given(st.integers(0, 63), st.integers(1, 255))
def test_a_changed_byte_is_noticed(position: int, change: int) -> None:
    data = bytearray(encode_tiled(**PLAIN))
    if position == 10:
        change = change & ~0x20 or 1
    data[position] ^= change
    with pytest.raises(TensorMapError, match=r"checksum|magic"):
        decode(bytes(data))


def test_the_bit_that_cutlass_clears_says_nothing() -> None:
    """CUTLASS, copy_traits_sm90_tma.hpp: bit 21 of the second word, of small tensors."""
    data = encode_tiled(**PLAIN)
    second = int.from_bytes(data[8:16], "little")
    for changed in (second & ~(1 << 21), second | 1 << 21):
        assert decode(data[:8] + changed.to_bytes(8, "little") + data[16:]) == decode(data)


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly valid: each argument from values on both sides of its rules."""
    rank = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(list(DTYPES)))

    def several(count: int, *values: int) -> list[int]:
        return draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))

    return {
        "dtype": dtype,
        "address": draw(st.sampled_from([0, 16, 32, 4096, 1 << 40, (1 << 57) - 32, 8, 1 << 57, -16])),
        "global_dim": several(rank, 128, 256, 1 << 32, 1, 2, 3, 0, (1 << 32) + 1),
        "global_strides": several(rank - 1, 32, 64, 16, 0, (1 << 40) - 32, 1 << 40, 8),
        "box_dim": several(rank, 128, 16, 32, 64, 1, 8, 256, 0, 257, 12),
        "element_strides": several(rank, 1, 1, 1, 2, 8, 0, 9),
        "interleave": draw(st.sampled_from(INTERLEAVES)),
        "swizzle": draw(st.sampled_from(SWIZZLES)),
        "l2_promotion": draw(st.sampled_from(L2_PROMOTIONS)),
        "oob_fill": draw(st.sampled_from(OOB_FILLS)),
    }


@given(arguments())
def test_what_is_encoded_decodes_to_itself(given_arguments: dict[str, Any]) -> None:
    try:
        data = encode_tiled(**given_arguments)
    except TensorMapError as error:
        first = str(error).split()[0].split("[")[0]
        assert first in {*given_arguments, "rank"}
        return
    expected = {key: tuple(value) if isinstance(value, list) else value for key, value in given_arguments.items()}
    assert decode(data) == TensorMapFields(**expected)
