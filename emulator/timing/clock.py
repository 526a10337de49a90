"""The clock that multiprocessors have under a load."""

from __future__ import annotations

from fmha.emulator.timing.architecture import Architecture


def clock(gpu: Architecture, tensor: float, from_memory: float) -> float:
    """MHz, with the tensor cores busy for a part of the time and so many bytes a cycle from and to memory. Power goes
    with the cube of the clock, for the voltage follows it, and beside that with what memory moves in a second."""
    most = gpu.clock_mhz.value
    always, memory = gpu.power_always.value, gpu.power_memory.value

    def power(mhz: float) -> float:  # of the limit
        rate = from_memory / gpu.times["hbm_bytes"].value * mhz / most
        work = always + (1 - always) * tensor
        return work * (mhz / gpu.power_clock_mhz.value) ** 3 + memory * min(1.0, rate)

    if power(most) <= 1:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) > 1 else (middle, high)
    return low
