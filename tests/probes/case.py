"""What a probe is: a kernel, its arguments and the way its results are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Dim3 = tuple[int, int, int]
# Both bit for bit. accumulate: sums of a tensor core, whose order and rounding PTX leaves open; how far apart they are
# is reported.
Kind = Literal["exact", "accumulate"]


@dataclass(frozen=True, slots=True)
class In:
    data: Array


@dataclass(frozen=True, slots=True)
class Out:
    """A buffer read back; `data` is what it holds before the launch."""

    data: Array


@dataclass(frozen=True, slots=True)
class Im2col:
    """What cuTensorMapEncodeIm2col takes in place of a box; corners W first."""

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor map, passed by value, over a buffer of its own. `out`: the buffer is read back."""

    data: Array
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, of dimensions 1 and up
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    oob: str = "none"
    out: bool = False
    im2col: Im2col | None = None  # `box` is empty then


Arg = In | Out | Tensor | int | bytes  # int: u32


@dataclass(frozen=True, slots=True)
class Case:
    name: str  # "group/what"
    source: str  # stem of the .cu
    entry: str
    args: tuple[Arg, ...]
    kind: Kind = "exact"
    nan: str | None = None  # f32, f16, bf16, f64, f16x2, bf16x2: NaNs of this format count as equal
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (32, 1, 1)
    shared: int = 0
    cluster: Dim3 = (1, 1, 1)
    cooperative: bool = False
    dense: tuple[Arg, ...] = field(default=())  # arguments of a denser run, compared but not checked in


def outputs(arguments: tuple[Arg, ...]) -> list[int]:
    return [i for i, a in enumerate(arguments) if isinstance(a, Out) or (isinstance(a, Tensor) and a.out)]


def hashed(n: int, salt: int) -> NDArray[np.uint64]:
    """n numbers of 64 bits from an integer formula (splitmix64): the same on every machine and NumPy version."""
    with np.errstate(over="ignore"):
        x = (np.arange(n, dtype=np.uint64) + np.uint64(salt * 1_000_003 + 1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def hashed32(n: int, salt: int) -> NDArray[np.uint32]:
    return (hashed(n, salt) >> np.uint64(32)).astype(np.uint32)
