"""What the elements of a buffer are: by the names that the PTX ISA has, with ml_dtypes for those that NumPy lacks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Dtype:
    """`values` are NumPy's elements. They are stored as whole numbers of as many bits, of which an item of memory has
    `per_item`, the first in its low bits. `poison` is a pattern that nothing computes, where there is one: a NaN with a
    payload, or a number that nobody would expect."""

    name: str
    values: np.dtype[Any]
    poison: int
    per_item: int = 1

    @property
    def storage(self) -> np.dtype[Any]:
        """Of an item of memory."""
        return np.dtype(f"u{self.values.itemsize}")

    @property
    def sure(self) -> bool:
        """Whether an element that holds the poison cannot be right: small types have no pattern to spare for that."""
        return self.storage.itemsize >= 4 or (self.storage.itemsize == 2 and self.values.kind not in "iu")

    def shape(self, elements: tuple[int, ...]) -> tuple[int, ...]:
        """Of its items. ValueError where the last dimension is no whole number of items."""
        if self.per_item == 1:
            return elements
        if not elements or elements[-1] % self.per_item:
            raise ValueError(f"{self.name} has {self.per_item} elements a byte: the last of {elements} is no multiple")
        return (*elements[:-1], elements[-1] // self.per_item)

    def read(self, items: Array) -> NDArray[np.float64]:
        """What items of memory mean. Whole numbers of 64 bits are rounded to a float64."""
        bits = np.ascontiguousarray(items)
        if self.per_item == 2:
            bits = np.stack([bits & 0xF, bits >> 4], axis=-1).reshape(*bits.shape[:-1], -1)
        with np.errstate(invalid="ignore"):
            return bits.view(self.values).astype(np.float64)

    def store(self, values: Any, *, saturate: bool = False) -> Array:
        """Numbers as items of memory, rounded to the nearest, ties to even. Beyond the largest one is infinite or NaN,
        as the type has it, or with `saturate` the largest, as cvt.satfinite makes it."""
        wanted = np.asarray(values)
        if self.values.kind in "iu":
            stored = wanted.astype(self.values)
        else:
            numbers = wanted.astype(np.float64)
            if saturate:
                most = float(ml_dtypes.finfo(self.values).max)  # type: ignore[no-untyped-call]
                numbers = np.clip(numbers, -most, most)
            with np.errstate(over="ignore", invalid="ignore"):
                stored = numbers.astype(self.values)
        bits: Array = np.ascontiguousarray(stored).view(self.storage)
        if self.per_item == 2:
            self.shape(bits.shape)
            bits = np.bitwise_or(bits[..., 0::2], bits[..., 1::2] << np.uint8(4))
        return bits


_NAN2, _NAN4, _NAN8, _ODD = 0x7FED, 0x7FEDBEEF, 0x7FFDBEEFDEADBEEF, 0xA5
DTYPES: Final[Mapping[str, Dtype]] = {
    item.name: item
    for item in (
        Dtype("f64", np.dtype(np.float64), _NAN8),
        Dtype("f32", np.dtype(np.float32), _NAN4),
        Dtype("f16", np.dtype(np.float16), _NAN2),
        Dtype("bf16", np.dtype(ml_dtypes.bfloat16), _NAN2),
        Dtype("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), 0x7F),
        Dtype("e5m2", np.dtype(ml_dtypes.float8_e5m2), 0x7D),
        Dtype("ue8m0", np.dtype(ml_dtypes.float8_e8m0fnu), 0xFF),
        Dtype("e2m3", np.dtype(ml_dtypes.float6_e2m3fn), _ODD & 0x3F),
        Dtype("e3m2", np.dtype(ml_dtypes.float6_e3m2fn), _ODD & 0x3F),
        Dtype("e2m1x2", np.dtype(ml_dtypes.float4_e2m1fn), _ODD, 2),
        Dtype("i8", np.dtype(np.int8), _ODD),
        Dtype("u8", np.dtype(np.uint8), _ODD),
        Dtype("i16", np.dtype(np.int16), _NAN2),
        Dtype("u16", np.dtype(np.uint16), _NAN2),
        Dtype("i32", np.dtype(np.int32), _NAN4),
        Dtype("u32", np.dtype(np.uint32), _NAN4),
        Dtype("i64", np.dtype(np.int64), _NAN8),
        Dtype("u64", np.dtype(np.uint64), _NAN8),
    )
}
_MEANT: Final[Mapping[str, str]] = {str(item.values): item.name for item in DTYPES.values()} | {
    "half": "f16", "float": "f32", "double": "f64", "fp16": "f16", "fp32": "f32", "fp64": "f64", "fp8": "e4m3",
    "fp4": "e2m1x2", "e2m1": "e2m1x2", "e8m0": "ue8m0", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64",
}  # fmt: skip


def dtype_of(name: Any) -> Dtype:
    """ValueError, which names the one that is likely meant, for a word that is none."""
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    word = str(name).lower()
    meant = _MEANT.get(word) or next(iter(difflib.get_close_matches(word, DTYPES, 1)), "")
    hint = f"; {meant} is likely meant" if meant else ""
    raise ValueError(f"dtype {name!r:.40} is not one of {', '.join(DTYPES)}{hint}")


def to_dtype(values: Any, dtype: str, *, saturate: bool = False) -> Array:
    """Numbers as a buffer of `dtype` stores them: bit patterns, of e2m1x2 two to a byte. Rounded to the nearest, ties
    to even; what is too large becomes infinite or NaN, or with `saturate` the largest number."""
    return dtype_of(dtype).store(values, saturate=saturate)


def from_dtype(bits: Array, dtype: str) -> NDArray[np.float64]:
    """The values of bit patterns of `dtype`, as float64."""
    return dtype_of(dtype).read(bits)


# ml_dtypes' own types, by their names.
KINDS: Final = frozenset(
    name for name in dir(ml_dtypes) if name.startswith(("float", "bfloat", "int", "uint")) and name[-1:] != "o"
)


def plain(array: Any) -> tuple[Array, str]:
    """An array as it crosses to another process: of ml_dtypes' types the bit patterns, and the type's name, which is
    empty for NumPy's own."""
    made = np.asarray(array)
    if made.dtype.kind == "V" and made.dtype.fields is None and made.dtype.isbuiltin != 1:
        return np.ascontiguousarray(made).view(f"u{made.dtype.itemsize}"), str(made.dtype)
    return made, ""


def viewed(array: Array, kind: str) -> Array:
    """The array that `plain` had."""
    return array.view(np.dtype(getattr(ml_dtypes, kind))) if kind else array
