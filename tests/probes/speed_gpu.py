"""Times one build against itself, and against slower ones, on a GPU: python -m tests.probes.speed_gpu CUBIN OUT.json

Needs NumPy and libcuda only. `python -m tests.probes.speed_verdicts` judges the file that it writes.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fmha.harness.worker.devices.nvml import sm_clock
from fmha.harness.worker.launch.interleave import interleave
from tests.probes.run_gpu import Driver

ITERATIONS = 20_000
SLOWER = (0.0, 0.01, 0.03, 0.10)
REPEATS = 20
ROUNDS = 40
LAUNCHES = 10  # a batch
BLOCKS, THREADS = 528, 256


class Probe:
    """One loaded copy of the kernel; calling it times a batch of launches with events."""

    def __init__(self, driver: Driver, cubin: bytes, data: int, iterations: int) -> None:
        self._driver = driver
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(module), cubin)
        driver.call("cuModuleGetFunction", ctypes.byref(self._function), module, b"speed_probe")
        self._data, self._iterations = ctypes.c_uint64(data), ctypes.c_uint32(iterations)
        self._arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._data), ctypes.addressof(self._iterations))
        self._events = (ctypes.c_void_p(), ctypes.c_void_p())
        for event in self._events:
            driver.call("cuEventCreate", ctypes.byref(event), 0)

    def __call__(self) -> float:
        driver, (start, end) = self._driver, self._events
        driver.call("cuEventRecord", start, None)
        for _ in range(LAUNCHES):
            driver.call("cuLaunchKernel", self._function, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, self._arguments, None)
        driver.call("cuEventRecord", end, None)
        driver.call("cuEventSynchronize", end)
        milliseconds = ctypes.c_float()
        driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e-3 / LAUNCHES


def main() -> None:
    cubin, out = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
    driver = Driver()
    data = driver.upload(np.zeros(BLOCKS * THREADS, np.float32))
    clock = sm_clock()
    found = []
    for slower in SLOWER:
        for repeat in range(REPEATS):
            base: Callable[[], float] = Probe(driver, cubin, data, ITERATIONS)
            new = Probe(driver, cubin, data, round(ITERATIONS * (1 + slower)))
            rounds = interleave(base, new, ROUNDS, clock, seed=repeat)
            found.append(
                {
                    "slower": slower,
                    "base": rounds.base,
                    "new": rounds.new,
                    "base_clock": rounds.base_clock,
                    "new_clock": rounds.new_clock,
                }
            )
        print(slower, np.median(found[-1]["base"]), np.median(found[-1]["new"]), flush=True)
    out.write_text(json.dumps({"gpu": name(driver), "runs": found}) + "\n")


def name(driver: Driver) -> str:
    text = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", text, 256, 0)
    return text.value.decode()


if __name__ == "__main__":
    main()
