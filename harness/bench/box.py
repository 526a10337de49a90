"""What the box is able to beside a timed run: rates of a copy and of a matrix product, clock, power, what throttles it.

Boxes of one kind differ by several percent, so that a time travels only as a share of what its box can do. Needs torch;
what NVML cannot be asked is left out.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

import torch

COPY_BYTES: Final = 1 << 30
SIDE: Final = 8192  # of the product's matrices
SECONDS: Final = 0.4  # under load, for each of the two: a clock that power lowers takes its time
SAMPLE_SECONDS: Final = 0.02
SM_CLOCK, MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
# Bits of nvmlDeviceGetCurrentClocksEventReasons that say that something holds a GPU back; idleness and the clocks that
# an application asked for do not.
THROTTLES: Final = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake",
}  # fmt: skip


@dataclass(frozen=True)
class Load:
    """The GPU under one kind of work: its rate, and the medians of what NVML said meanwhile."""

    rate: float  # TB/s read and written, or TFLOP/s
    sm_mhz: float | None
    memory_mhz: float | None
    watts: float | None
    throttled: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Box:
    gpu: str
    uuid: str
    copy: Load
    product: Load

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)


def measure(device: int = 0) -> Box:
    """Takes about a second and 2 GiB."""
    properties = torch.cuda.get_device_properties(device)
    where = torch.device("cuda", device)
    nvml = Nvml(str(properties.uuid))
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=where).random_()
    copy = _load(partial(torch.empty_like(source).copy_, source), 2 * COPY_BYTES / 1e12, nvml)
    a, b = (torch.randn(SIDE, SIDE, device=where, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    product = _load(partial(torch.mm, a, b, out=out), 2 * SIDE**3 / 1e12, nvml)
    return Box(properties.name, f"GPU-{properties.uuid}", copy, product)


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
        value = ctypes.c_uint()
        return None if self._failed("nvmlDeviceGetPowerUsage", ctypes.byref(value)) else value.value / 1000

    def throttles(self) -> frozenset[str]:
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
        self.sm: list[float | None] = []
        self.memory: list[float | None] = []
        self.watts: list[float | None] = []
        self.throttles: set[str] = set()

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.sm.append(self._nvml.clock(SM_CLOCK))
            self.memory.append(self._nvml.clock(MEMORY_CLOCK))
            self.watts.append(self._nvml.watts())
            self.throttles |= self._nvml.throttles()
            if self._ended.wait(SAMPLE_SECONDS):
                return


def _load(work: Callable[[], object], amount: float, nvml: Nvml) -> Load:
    """`amount` is that of one call."""
    work()
    torch.cuda.synchronize()
    times = []
    with Sampled(nvml) as sampled:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(9)]
            events[0].record()
            for event in events[1:]:
                work()
                event.record()
            torch.cuda.synchronize()
            times += [a.elapsed_time(b) / 1e3 for a, b in pairwise(events)]
    rate = amount / median(times)
    return Load(rate, _median(sampled.sm), _median(sampled.memory), _median(sampled.watts), sorted(sampled.throttles))


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
