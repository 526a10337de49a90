"""Host arrays of launch.yaml's buffers: files, fills, and comparison. bf16 is uint16 bit patterns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.emulate.launch_document import BufferSection
from fmha.harness.errors import UserError
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16

_DTYPES = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32,
    "u64": np.uint64, "s64": np.int64, "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def storage(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a buffer's bytes."""
    return np.dtype(_DTYPES[dtype])


def initial(section: BufferSection, folder: Path) -> NDArray[Any] | None:
    """What the buffer holds before the launch, or None for memory that nobody wrote."""
    if section.file is not None:
        return stored(load(folder / section.file), section.dtype, section.shape, section.file)
    if section.fill == "poison":
        return np.full(nbytes(section), 0xFF, np.uint8)
    numbers = _numbers(section)
    return None if numbers is None else stored(numbers, section.dtype, section.shape, "")


def nbytes(section: BufferSection) -> int:
    """Of the buffer, however large: a product of NumPy's would wrap at 2^63."""
    return math.prod(section.shape) * storage(section.dtype).itemsize


def _numbers(section: BufferSection) -> NDArray[np.float64] | None:
    generator = np.random.Generator(np.random.PCG64(section.seed))
    if section.value is not None:
        return np.full(section.shape, section.value)
    match section.fill:
        case "zeros":
            return np.zeros(section.shape)
        case "ones":
            return np.ones(section.shape)
        case "arange":
            return np.arange(np.prod(section.shape), dtype=np.float64).reshape(section.shape)
        case "normal":
            return generator.standard_normal(section.shape)
        case "uniform":
            return generator.random(section.shape)
        case _:
            return None


def load(path: Path) -> NDArray[Any]:
    """A .npy file. Raises UserError when it is not one."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"cannot be read as .npy: {reason}", where=str(path)) from error
    if not isinstance(array, np.ndarray):
        raise UserError("is an archive of several arrays; one .npy array is wanted", where=str(path))
    if array.dtype.kind not in "biuf":
        raise UserError(f"holds elements of type {array.dtype}; numbers are wanted", where=str(path))
    return array


def stored(array: NDArray[Any], dtype: str, shape: list[int], name: str) -> NDArray[Any]:
    """An array as a buffer of `dtype` stores it. Floats become bf16 by rounding; uint16 is taken as bf16 bits."""
    if list(array.shape) != shape:
        raise UserError(f"has shape {list(array.shape)}, the buffer {shape}", where=name)
    if dtype == "bf16" and array.dtype != np.uint16:
        return round_to_bf16(array.astype(np.float64))
    return np.ascontiguousarray(array.astype(storage(dtype)))


def numbers(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """A stored array as float64 values."""
    return from_bf16(array) if dtype == "bf16" else array.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element that differs by more than it may."""

    index: tuple[int, ...]
    got: float
    wanted: float

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.index))}] is {self.got:.9g} instead of {self.wanted:.9g}"


def worst(
    got: NDArray[Any], wanted: NDArray[Any], dtype: str, rtol: float, atol: float
) -> tuple[int, float, Mismatch | None]:
    """(elements outside `atol + rtol * |wanted|`, largest difference, the first that differs most of those outside).

    NaN and infinity agree only with themselves, and differ more from anything else than numbers do.
    """
    g, w = numbers(got, dtype), numbers(wanted, dtype)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(g - w))
        close = same | (difference <= atol + rtol * np.abs(w))
    largest = float(np.max(difference, initial=0.0))
    if close.all():
        return 0, largest, None
    place = np.unravel_index(np.argmax(np.where(close, -1.0, np.nan_to_num(difference, nan=np.inf))), close.shape)
    index = tuple(int(at) for at in place)
    return int(np.count_nonzero(~close)), largest, Mismatch(index, float(g[index]), float(w[index]))
