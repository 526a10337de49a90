"""The GPUs that a program may find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EmulatedGpu:
    """What a program finds when it asks; sizes in bytes, clocks in kHz. Of the H200 they are what one has answered, of
    the B200 what is published. `timing` is what the timing model calls it."""

    name: str
    arch: int
    multiprocessors: int
    memory: int
    l2: int
    bus_bits: int
    clock: int
    memory_clock: int
    timing: str


GPUS: Final[Mapping[str, EmulatedGpu]] = {
    "sm_100a": EmulatedGpu(
        "NVIDIA B200 (emulated)", 100, 148, 192 << 30, 126 << 20, 8192, 1_965_000, 3_996_000, "b200"
    ),
    "sm_90a": EmulatedGpu(
        "NVIDIA H200 (emulated)", 90, 132, 150109880320, 60 << 20, 6016, 1_980_000, 3_201_000, "h200"
    ),
}
