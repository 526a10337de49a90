"""What a kernel must give: a float64 oracle and a bound from the formats' rounding.

`u` below is 2**-23, the error of a float32 operation that truncates: tensor cores may. A sum of K products in any order
is then off by at most (K + 4) u times the sum of the products' magnitudes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.emulator.thirdparty.formats import Array, round_up_error

U = 2.0**-23


@dataclass(frozen=True)
class Expected:
    format: str
    values: Array
    bound: Array  # absolute, elementwise; 0: bit for bit


@dataclass(frozen=True)
class Case:
    grid: tuple[int, int, int]
    arrays: Mapping[str, Array]  # device memory, bit patterns; outputs hold what they hold before
    expected: Mapping[str, Expected]
    scalars: Mapping[str, int | float] = field(default_factory=dict)


def rng_of(name: str) -> np.random.Generator:
    return np.random.default_rng([ord(c) for c in name])


def filled(shape: tuple[int, ...], storage: Any) -> Array:
    """Output memory that no right answer looks like."""
    memory: Array = np.full(int(np.prod(shape)) * np.dtype(storage).itemsize, 0xA5, np.uint8).view(storage)
    return memory.reshape(shape)


STORAGE: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i32": np.int32}


def output(out: str, values: Array, bound: Array | float) -> Expected:
    return Expected(
        out, values, np.broadcast_to(bound, values.shape) + (0 if out == "i32" else round_up_error(values, out))
    )


def product(a: Array, b: Array, out: str, extra: float = 0.0) -> Expected:
    """a @ b in float64; `extra` is a further relative error of a product."""
    magnitude = np.abs(a) @ np.abs(b)
    return output(out, a @ b, magnitude * ((a.shape[1] + 4) * U + extra))


def ceil(n: int, d: int) -> int:
    return -(-n // d)
