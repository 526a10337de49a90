"""Layouts in CuTe's notation, found from what the machine did: from a table of offsets to the shape and strides that
give it. https://docs.nvidia.com/cutlass/latest/media/docs/cpp/cute/01_layout.html has the notation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Modes = tuple[tuple[int, int], ...]  # (extent, stride), fastest first

# Swizzle<B, M, S> of byte offsets: bits [M, M + B) are exchanged with bits [M + S, M + S + B).
SWIZZLES: Final = ((0, 4, 3), (1, 4, 3), (2, 4, 3), (3, 4, 3), (2, 5, 2), (1, 6, 1))


@dataclass(frozen=True, slots=True)
class Layout:
    """A matrix in shared or tensor memory: the modes of its rows and columns in elements, under a swizzle of bytes."""

    rows: Modes
    columns: Modes
    swizzle: tuple[int, int, int] = (0, 4, 3)

    def __str__(self) -> str:
        shape = f"({written(self.rows, 0)},{written(self.columns, 0)})"
        stride = f"({written(self.rows, 1)},{written(self.columns, 1)})"
        b, m, s = self.swizzle
        return f"S<{b},{m},{s}> o {shape}:{stride}" if b else f"{shape}:{stride}"

    def as_operand_a(self, k: int) -> str:
        """The same matrix tiled by MMAs of `k` columns, as CuTe's make_smem_layout_a prints it: ((M,K),1,steps)."""
        first, rest = split(self.columns, k)
        shape = f"(({written(self.rows, 0)},{written(first, 0)}),1,{written(rest, 0)})"
        stride = f"(({written(self.rows, 1)},{written(first, 1)}),0,{written(rest, 1)})"
        b, m, s = self.swizzle
        return f"S<{b},{m},{s}> o {shape}:{stride}" if b else f"{shape}:{stride}"


def written(modes: Modes, which: int) -> str:
    """Sizes (`which` 0) or strides (1) of modes, as CuTe prints them."""
    numbers = [str(mode[which]) for mode in modes] or ["1" if which == 0 else "0"]
    return numbers[0] if len(numbers) == 1 else f"({','.join(numbers)})"


def split(modes: Modes, extent: int) -> tuple[Modes, Modes]:
    """The modes of the first `extent` places, and the others."""
    first: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for size, stride in modes:
        if extent >= size:
            first.append((size, stride))
            extent //= size
        elif extent > 1:
            first.append((extent, stride))
            rest.append((size // extent, stride * extent))
            extent = 1
        else:
            rest.append((size, stride))
    return tuple(first), tuple(rest)


def modes_of(offsets: Sequence[int]) -> Modes | None:
    """The modes that give these offsets, the first of which is 0; None when no shape and strides do."""
    values = np.asarray(offsets, dtype=np.int64)
    if not len(values) or values[0]:
        return None
    modes: list[tuple[int, int]] = []
    while len(values) > 1:
        stride, extent = int(values[1]), 1
        while extent < len(values) and values[extent] == extent * stride:
            extent += 1
        while len(values) % extent:
            extent -= 1
        if extent < 2:
            return None
        blocks = values.reshape(-1, extent)
        if (blocks - blocks[:, :1] != np.arange(extent) * stride).any():
            return None
        modes.append((extent, stride))
        values = blocks[:, 0]
    return tuple(modes)


def layout_of(at: NDArray[np.int64], element_bytes: int) -> Layout | None:
    """The layout of a matrix whose element (row, column) lies at byte `at[row, column]`. None when there is none.

    A swizzle exchanges bits of the address itself, so `at` has to be absolute.
    """
    for swizzle in SWIZZLES:
        b, m, s = swizzle
        plain = at ^ ((at >> (m + s) & (1 << b) - 1) << m)
        plain = plain - plain[0, 0]
        if (plain % element_bytes).any():
            continue
        plain //= element_bytes
        if (plain != plain[:, :1] + plain[:1, :]).any():
            continue
        rows, columns = modes_of(plain[:, 0].tolist()), modes_of(plain[0].tolist())
        if rows is not None and columns is not None:
            return Layout(rows, columns, swizzle)
    return None


def thread_value(index: NDArray[np.int64]) -> str | None:
    """(threads, values) -> places, as `((thread modes),(value modes)):(...)`: a TV layout, as a TiledCopy has. `index`
    has, of each thread and value, the row plus the number of rows times the column."""
    index = index - index[0, 0]
    if (index != index[:, :1] + index[:1, :]).any():
        return None
    threads, values = modes_of(index[:, 0].tolist()), modes_of(index[0].tolist())
    if threads is None or values is None:
        return None
    return f"({written(threads, 0)},{written(values, 0)}):({written(threads, 1)},{written(values, 1)})"
