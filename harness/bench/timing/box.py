"""What the box is able to beside a timed run: rates of a copy and of a matrix product, clock, power, what throttles it.

Boxes of one kind differ by several percent, so that a time travels only as a share of what its box can do. Needs torch;
what NVML cannot be asked is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final

import torch

from fmha.harness.worker.devices.nvml import Nvml, Sampled

COPY_BYTES: Final = 1 << 30
SIDE: Final = 8192  # of the product's matrices
SECONDS: Final = 0.4  # under load, for each of the two: a clock that power lowers takes its time


@dataclass(frozen=True)
class Load:
    """The GPU under one kind of work: its rate, and the medians of what NVML said meanwhile."""

    rate: float  # TB/s read and written, or TFLOP/s
    sm_mhz: float | None
    memory_mhz: float | None
    watts: float | None
    throttled: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class GpuRates:
    """What the GPU itself is able to: rates of a copy and of a product."""

    gpu: str
    uuid: str
    copy: Load
    product: Load

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def measure(device: int = 0) -> GpuRates:
    """Takes about a second and 2 GiB."""
    properties = torch.cuda.get_device_properties(device)
    where = torch.device("cuda", device)
    nvml = Nvml(str(properties.uuid))
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=where).random_()
    copy = _load(partial(torch.empty_like(source).copy_, source), 2 * COPY_BYTES / 1e12, nvml)
    a, b = (torch.randn(SIDE, SIDE, device=where, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    product = _load(partial(torch.mm, a, b, out=out), 2 * SIDE**3 / 1e12, nvml)
    return GpuRates(properties.name, f"GPU-{properties.uuid}", copy, product)


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
    return Load(rate, sampled.sm, sampled.memory, sampled.watts, sorted(sampled.throttles))
