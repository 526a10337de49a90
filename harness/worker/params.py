"""The Python side of the kernel's C ABI: mirrors of kernel/include/fmha_params.h and fmha_launch.h.

tests/worker/test_params.py compiles both headers and compares every figure with the ones here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

TENSOR_MAP_BYTES: Final = 128
PARAMS_BYTES: Final = 448  # sizeof(FmhaParams); its alignment of 64 comes from the tensor maps

# Field, offset in bytes, struct format. Little-endian, as every GPU and every host here is.
LAYOUT: Final[tuple[tuple[str, int, str], ...]] = (
    ("q", 0, "128s"),
    ("k", 128, "128s"),
    ("v", 256, "128s"),
    ("o", 384, "Q"),
    ("row_max", 392, "Q"),
    ("row_sum", 400, "Q"),
    ("lse", 408, "Q"),
    ("t", 416, "i"),
    ("s_k", 420, "i"),
    ("scale", 424, "f"),
    ("reserved", 428, "i"),
)

THREADS_PER_CTA: Final = 192
ROWS_PER_CTA: Final = 128
KEYS_PER_TILE: Final = 128
KV_STAGES: Final = 2
SHARED_ALIGNMENT: Final = 1024
SHARED_CONTROL_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class FmhaParams:
    """One launch's parameters. q, k, v: 128 opaque bytes each; o, row_max, row_sum, lse: device addresses."""

    q: bytes
    k: bytes
    v: bytes
    o: int
    row_max: int
    row_sum: int
    lse: int
    t: int
    s_k: int
    scale: float
    reserved: int = 0

    def pack(self) -> bytes:
        """The PARAMS_BYTES bytes of the struct; padding is zero."""
        for name in ("q", "k", "v"):
            if len(getattr(self, name)) != TENSOR_MAP_BYTES:
                raise ValueError(f"{name}: a tensor map has {TENSOR_MAP_BYTES} bytes, not {len(getattr(self, name))}")
        packed = bytearray(PARAMS_BYTES)
        for name, offset, kind in LAYOUT:
            struct.pack_into(f"<{kind}", packed, offset, getattr(self, name))
        return bytes(packed)


def dynamic_shared_bytes(head_dim: int) -> int:
    """fmha_dynamic_shared_bytes of fmha_launch.h: Q and two rings in bf16, control words, room to align by hand."""
    rows = ROWS_PER_CTA + 2 * KV_STAGES * KEYS_PER_TILE
    return SHARED_ALIGNMENT + rows * head_dim * 2 + SHARED_CONTROL_BYTES
