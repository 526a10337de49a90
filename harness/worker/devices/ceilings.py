"""What a GPU does at most, measured beside times: boxes of one kind differ by several percent, and a time travels only
as a share of what its box can do. The CUDA driver's copy; torch's matrix product where torch is installed."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from fmha.harness.contract.device import Ceilings
from fmha.harness.worker.devices.nvml import Nvml, Sampled

COPY_BYTES: Final = 512 << 20
SIDE: Final = 8192  # of the product's matrices
SECONDS: Final = 0.25  # of load, for each of the two: a clock that power lowers takes its time
Timed = Callable[[], float]  # seconds of work, by the device's clock


def measured(copy: Timed, index: int, uuid: str) -> Ceilings:
    """Of visible GPU `index`; `copy` copies COPY_BYTES on it. Takes a second, and some more where torch is loaded."""
    nvml = Nvml(uuid)
    product = _product(index)
    with Sampled(nvml) as sampled:
        copied = 2 * COPY_BYTES / _steady(copy)
        products = None if product is None else 2 * SIDE**3 / _steady(product)
    return Ceilings(copied, products, sampled.sm, sampled.watts, tuple(sorted(sampled.throttles)))


def _steady(work: Timed) -> float:
    """Median seconds of what runs for SECONDS, the first time left out."""
    work()
    taken: list[float] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or not taken:
        taken.append(work())
    return median(taken)


def _product(index: int) -> Timed | None:
    if importlib.util.find_spec("torch") is None:
        return None
    torch: Any = importlib.import_module("torch")
    where = torch.device("cuda", index)
    a, b = (torch.randn(SIDE, SIDE, device=where, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def work() -> float:
        with torch.cuda.device(where):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.mm(a, b, out=out)
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e-3

    return work
