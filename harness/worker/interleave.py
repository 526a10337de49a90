"""Times two builds beside each other, round by round, so that what drifts is the same for both."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import dataclass, field

Side = Callable[[], float]  # runs one batch of launches; seconds a launch
Clock = Callable[[], float | None]  # MHz, now

_SM_CLOCK = 1  # NVML_CLOCK_SM


@dataclass(slots=True)
class Rounds:
    """One value a round. Clocks are empty where they cannot be read."""

    base: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    base_clock: list[float] = field(default_factory=list)
    new_clock: list[float] = field(default_factory=list)


def interleave(base: Side, new: Side, rounds: int, clock: Clock, seed: int) -> Rounds:
    """Run both sides once a round, in random order: neither always comes second, onto a warmer chip and fuller caches.

    The first round warms up and is not kept.
    """
    found = Rounds()
    generator = random.Random(seed)
    sides = ((base, found.base, found.base_clock), (new, found.new, found.new_clock))
    for number in range(rounds + 1):
        for run, seconds, clocks in generator.sample(sides, 2):
            taken, mhz = run(), clock()
            if number > 0:
                seconds.append(taken)
                clocks += [] if mhz is None else [mhz]
    return found


def sm_clock(gpu: str = "") -> Clock:
    """Reads the SM clock of a GPU, named by its UUID, else NVML's first; one that always answers None where there is no
    NVML or no such GPU."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return lambda: None
    handle, value = ctypes.c_void_p(), ctypes.c_uint()
    if library.nvmlInit_v2() != 0:
        return lambda: None
    if gpu:
        missing = library.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle))
    else:
        missing = library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    if missing:
        return lambda: None

    def read() -> float | None:
        failed = library.nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(value))
        return None if failed else float(value.value)

    return read
