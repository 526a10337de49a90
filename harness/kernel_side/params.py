"""The Python side of the kernel's C ABI: what kernel/include/fmha_params.h and fmha_launch.h say, and how it is packed.

Fields, their offsets, constants and the rules by which fmha_launch.h shapes a launch are read from the headers by
abi.py; tests/kernel_side/test_params.py compiles them and compares every figure.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fmha.harness.contract.protocol import LaunchShape, PPath
from fmha.harness.kernel_side.abi import (
    LAUNCH_HEADER,
    MAP,
    PARAMS_HEADER,
    POINTER,
    SM90_TABLE,
    constants_of,
    functions_of,
    header,
    layout_of,
)

_PARAMS: Final = header(PARAMS_HEADER).read_text(encoding="utf-8")
_LAUNCH: Final = header(LAUNCH_HEADER).read_text(encoding="utf-8")
_CONSTANTS: Final = constants_of(_PARAMS) | constants_of(_LAUNCH)

COMBINE_THREADS: Final = _CONSTANTS["CombineThreads"]
COMBINE_ROWS: Final = COMBINE_THREADS // 32  # a warp each
SHARED_ALIGNMENT: Final = _CONSTANTS["SharedAlignment"]

# FmhaParams::flags
NORMALISE: Final = _CONSTANTS["Normalise"]
OUTPUT_BF16: Final = _CONSTANTS["OutputBf16"]
SHARED_KV: Final = _CONSTANTS["SharedKv"]
PARTIAL_F16: Final = _CONSTANTS["PartialF16"]
BY_HEAD: Final = _CONSTANTS["ByHead"]
SCATTERED: Final = _CONSTANTS["Scattered"]
UNLIMITED: Final = _CONSTANTS["Unlimited"]  # window_left, window_right


def partial_f16(head_dim: int, output_bf16: bool) -> bool:
    """Whether partial results are f16 and a scale, 11 bits of a row's largest element, where the result keeps 8 of
    each. At 64 they are too few for it to pay."""
    return output_bf16 and head_dim > 64


def flags_of(
    *,
    normalise: bool,
    output_bf16: bool,
    shared_kv: bool,
    partial_f16: bool,
    by_head: bool = False,
    scattered: bool = False,
) -> int:
    """FmhaParams::flags."""
    chosen = normalise * NORMALISE | output_bf16 * OUTPUT_BF16 | shared_kv * SHARED_KV
    return chosen | partial_f16 * PARTIAL_F16 | by_head * BY_HEAD | scattered * SCATTERED


# Each field of FmhaParams, where it is and how it is packed; sizeof(FmhaParams).
LAYOUT, PARAMS_BYTES = layout_of(_PARAMS)
TENSOR_MAP_BYTES: Final = struct.calcsize(MAP)
MAPS: Final = tuple(name for name, _, kind in LAYOUT if kind == MAP)
NUMBERS: Final = tuple(name for name, _, kind in LAYOUT if kind not in (MAP, POINTER))
# The pointers in their order, and where each is.
POINTERS: Final = tuple(name for name, _, kind in LAYOUT if kind == POINTER)
POINTER_OFFSETS: Final = tuple(offset for _, offset, kind in LAYOUT if kind == POINTER)
MAP_OFFSETS: Final = tuple(offset for _, offset, kind in LAYOUT if kind == MAP)


def divisor(number: int) -> tuple[int, int]:
    """By what n / number multiplies and shifts: n * multiplier >> 31 >> shift, exact for n from 0 to 2^31 - 1.

    Granlund and Montgomery, "Division by Invariant Integers using Multiplication" (1994), theorem 4.2, with N = 31.
    """
    shift = (number - 1).bit_length()
    return -(-(1 << 31 + shift) // number), shift


# What a divisor's multiplier and shift are computed of.
_DIVISORS: Final = ("heads", "kv_heads")
_COMPUTED: Final = frozenset(f"{name}_{part}" for name in _DIVISORS for part in ("multiplier", "shift"))
_REQUIRED: Final = frozenset(("q", "o", "batch", "t", "s_k", "scale", "head_dim"))
# What a launch may leave out: null, 0 and maps that it does not read, but for these.
_NOT_ZERO: Final[Mapping[str, int]] = {
    "heads": 1,
    "kv_heads": 1,
    "splits": 1,
    "window_left": UNLIMITED,
    "window_right": UNLIMITED,
}
_DEFAULTS: Final[Mapping[str, bytes | float]] = {
    name: bytes(TENSOR_MAP_BYTES) if kind == MAP else _NOT_ZERO.get(name, 0)
    for name, _, kind in LAYOUT
    if name not in _COMPUTED
}


class FmhaParams:
    """One launch's parameters by their names in fmha_params.h: 128 opaque bytes a tensor map, a device address a
    pointer, a number. A field that the header gets is one here, which a launch may leave out."""

    __slots__ = ("_values",)

    def __init__(self, **values: bytes | float) -> None:
        if unknown := values.keys() - _DEFAULTS.keys():
            raise TypeError(f"FmhaParams of {PARAMS_HEADER} has no {', '.join(sorted(unknown))} to be given")
        if missing := _REQUIRED - values.keys():
            raise TypeError(f"every launch has {', '.join(sorted(missing))}")
        self._values = {**_DEFAULTS, **values}

    def pack(self) -> bytes:
        """The PARAMS_BYTES bytes of the struct; padding is zero."""
        values: dict[str, Any] = dict(self._values)
        for name in MAPS:
            if len(values[name]) != TENSOR_MAP_BYTES:
                raise ValueError(f"{name}: a tensor map has {TENSOR_MAP_BYTES} bytes, not {len(values[name])}")
        packed = bytearray(PARAMS_BYTES)
        for name in _DIVISORS:
            values |= zip((f"{name}_multiplier", f"{name}_shift"), divisor(values[name]), strict=True)
        for name, offset, kind in LAYOUT:
            struct.pack_into(f"<{kind}", packed, offset, values[name])
        return bytes(packed)


# What fmha_launch.h computes, by the names there.
_COMPUTES: Final = functions_of(_LAUNCH, _CONSTANTS)
sm100_ctas_per_sm: Final[Callable[[int, int], int]] = _COMPUTES["fmha_sm100_ctas_per_sm"]
query_blocks: Final[Callable[[LaunchShape, int, int, int], int]] = _COMPUTES["fmha_query_blocks"]  # grid.x


def sm100_shape(head_dim: int, p_path: PPath, asked: int = 0) -> LaunchShape:
    """Of the kernel of six warps; of the rows that are asked for, or 0 for the head_dim's own."""
    return LaunchShape(*_COMPUTES["fmha_sm100_shape"](head_dim, p_path == "smem", asked))


def sm100_prefill_shape(head_dim: int) -> LaunchShape:
    """Of the kernel for many rows."""
    return LaunchShape(*_COMPUTES["fmha_sm100_prefill_shape"](head_dim))


def sm100_pair_shape(head_dim: int, rows: int) -> LaunchShape:
    """Of the kernel of CTA pairs; `rows` are those of a CTA."""
    return LaunchShape(*_COMPUTES["fmha_sm100_pair_shape"](head_dim, rows))


# Head_dims and query rows of the variants of fewer rows than a head_dim's own.
SM100_FEW_ROWS: Final = ((64, 64), (64, 32), (128, 64), (128, 32), (256, 64))
# Head_dims, and query rows of one of its CTAs, of the kernel of CTA pairs.
SM100_PAIRS: Final = ((256, 128), (256, 64), (512, 64))


@dataclass(frozen=True, slots=True)
class Sm90Launch:
    """FmhaSm90Launch of kernel/sm90/launch.h, which says what each figure is."""

    rows: int
    keys: int
    row_groups: int
    column_groups: int
    boxes_per_unit: int
    slots: int
    dense_slots: int
    overlap: bool
    dense_overlap: bool
    registers: int
    heads_registers: int
    ctas_per_sm: int

    @property
    def threads(self) -> int:
        """fmha_sm90_threads."""
        return 128 * (self.row_groups * self.column_groups + 1)

    def slots_of(self, kind: str) -> int:
        """fmha_sm90_slots: of the ring of a kernel of SM90_KINDS."""
        return self.dense_slots if kind == "dense" else self.slots

    def overlap_of(self, kind: str) -> bool:
        """fmha_sm90_overlap: of a kernel of SM90_KINDS."""
        return self.dense_overlap if kind == "dense" else self.overlap

    def registers_of(self, kind: str) -> int:
        """Of a consumer thread of a kernel of SM90_KINDS for one K/V head."""
        return self.heads_registers if kind == "whole" else self.registers

    def shared_bytes(self, head_dim: int, kind: str) -> int:
        """fmha_sm90_shared_bytes: Q, the ring, what two warpgroups of columns exchange, and the rest."""
        exchange = 256 * self.keys + 64 * 16 if self.column_groups == 2 else 0
        ring = self.slots_of(kind) * self.boxes_per_unit * self.keys * 128
        return SHARED_ALIGNMENT + self.rows * head_dim * 2 + ring + exchange + 512


_SHAPE: Final = re.compile(r"^    SHAPE\((\d+), (\d+), (.*?)\)", re.MULTILINE)
_FIGURE: Final = re.compile(r"\.(\w+) = (\w+)")


def _sm90_shapes(text: str) -> dict[tuple[int, int], Sm90Launch]:
    found = {}
    for head_dim, asked, row in _SHAPE.findall(text):
        figures: dict[str, Any] = {name: json.loads(value) for name, value in _FIGURE.findall(row)}
        found[int(head_dim), int(asked)] = Sm90Launch(**figures)
    return found


# By head_dim and FMHA_ROWS, 0 for a head_dim's own.
SM90_SHAPES: Final = _sm90_shapes(header(SM90_TABLE).read_text(encoding="utf-8"))
SM90_KERNELS: Final = tuple(SM90_SHAPES)
SM90_KINDS: Final = ("whole", "dense", "plain")  # FmhaSm90Kind: what a kernel knows


def sm90_launch(head_dim: int, rows: int = 0) -> Sm90Launch:
    """fmha_sm90_launch: the shape of `rows`, or the head_dim's own where there is none."""
    return SM90_SHAPES.get((head_dim, rows), SM90_SHAPES[head_dim, 0])


def sm90_shape(head_dim: int, rows: int = 0, kind: str = "whole") -> LaunchShape:
    """The part of `sm90_launch` that every architecture has, of a kernel of SM90_KINDS."""
    launch = sm90_launch(head_dim, rows)
    shared_bytes = launch.shared_bytes(head_dim, kind)
    return LaunchShape(launch.rows, launch.keys, launch.slots_of(kind), launch.threads, shared_bytes)
