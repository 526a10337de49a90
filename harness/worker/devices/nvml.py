"""What NVML says of a GPU: clocks, power, what holds it back. It counts GPUs otherwise than CUDA: a UUID names one."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from statistics import median
from typing import Any, Final

SAMPLE_SECONDS: Final = 0.02
SM_CLOCK, MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
# Bits of nvmlDeviceGetCurrentClocksEventReasons that say that something holds a GPU back; idleness and the clocks that
# an application asked for do not.
THROTTLES: Final = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip


class Nvml:
    """A GPU as NVML knows it, by its UUID without "GPU-". Answers None where there is no NVML or it does not say."""

    def __init__(self, uuid: str) -> None:
        self._handle = ctypes.c_void_p()
        self._library: ctypes.CDLL | None = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        by_uuid = library.nvmlDeviceGetHandleByUUID
        if library.nvmlInit_v2() == 0 and by_uuid(f"GPU-{uuid}".encode(), ctypes.byref(self._handle)) == 0:
            self._library = library

    def clock(self, kind: int) -> float | None:
        """MHz."""
        value = ctypes.c_uint()
        return None if self._failed("nvmlDeviceGetClockInfo", kind, ctypes.byref(value)) else float(value.value)

    def watts(self) -> float | None:
        """What the GPU draws, watts; None where the driver does not say."""
        value = ctypes.c_uint()
        return None if self._failed("nvmlDeviceGetPowerUsage", ctypes.byref(value)) else value.value / 1000

    def throttles(self) -> frozenset[str]:
        """What holds the clock back, by NVML's names."""
        value = ctypes.c_ulonglong()
        if self._failed("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(value)):
            return frozenset()
        return frozenset(name for bit, name in THROTTLES.items() if value.value & bit)

    def _failed(self, name: str, *arguments: Any) -> bool:
        return self._library is None or bool(getattr(self._library, name)(self._handle, *arguments))


class Sampled:
    """What NVML says again and again while the body of a `with` runs."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml, self._ended = nvml, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._told: list[tuple[float | None, ...]] = []
        self.throttles: set[str] = set()

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self._told.append((self._nvml.clock(SM_CLOCK), self._nvml.clock(MEMORY_CLOCK), self._nvml.watts()))
            self.throttles |= self._nvml.throttles()
            if self._ended.wait(SAMPLE_SECONDS):
                return

    @property
    def sm(self) -> float | None:
        """The SMs' clock, in MHz: the median, as for the others."""
        return self._median(0)

    @property
    def memory(self) -> float | None:
        """The memory's clock, in MHz."""
        return self._median(1)

    @property
    def watts(self) -> float | None:
        """Median of the samples, watts; None without any."""
        return self._median(2)

    def _median(self, place: int) -> float | None:
        known = [value for told in self._told if (value := told[place]) is not None]
        return median(known) if known else None


def sm_clock(gpu: str = "") -> Callable[[], float | None]:
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
        failed = library.nvmlDeviceGetClockInfo(handle, SM_CLOCK, ctypes.byref(value))
        return None if failed else float(value.value)

    return read
