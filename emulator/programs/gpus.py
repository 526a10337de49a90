"""The GPUs that a program may find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a program finds when it asks; sizes in bytes, clocks in kHz."""

    name: str
    arch: int
    multiprocessors: int
    memory: int
    l2: int
    bus_bits: int
    clock: int
    memory_clock: int


GPUS: Final[Mapping[str, Gpu]] = {
    "sm_100a": Gpu("NVIDIA B200 (emulated)", 100, 148, 192 << 30, 126 << 20, 8192, 1_965_000, 3_996_000),
    "sm_90a": Gpu("NVIDIA H200 (emulated)", 90, 132, 141 << 30, 50 << 20, 6144, 1_980_000, 3_201_000),
}
