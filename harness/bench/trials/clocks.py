"""Where the time of a CTA goes, by the stamps of builds with clocks (kernel/sm90/clocks.cuh)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.bench.shapes.launch_problem import BuiltKernel
from fmha.harness.worker.devices.cuda import CudaDevice

STAMPS = (
    "entered", "barriers_ready", "grid_before_done", "query_issued", "loads_ready", "first_key_issued",
    "consumers_met", "query_there", "first_scores", "first_softmax",
    "last_product", "stored", "merged",
)  # fmt: skip
CTAS, WORDS, NANOSECONDS, COMBINE = 1024, 32, 24, 28


def read(device: CudaDevice, kernel: BuiltKernel, run: Callable[[], Any], ctas: int) -> NDArray[np.uint64]:
    """The words [ctas, WORDS] of the last launch that `run` makes and waits for."""
    address, nbytes = device.symbol(kernel.module, "fmha_sm90_clocks")
    assert nbytes == CTAS * WORDS * 8
    device.upload(address, np.zeros((CTAS, WORDS), np.uint64))
    run()
    words = device.download(address, nbytes).view(np.uint64).reshape(CTAS, WORDS)
    return words[: min(ctas, CTAS - 1)]


def summary(words: NDArray[np.uint64]) -> dict[str, Any]:
    """Cycles from a CTA's entry to each stamp, the median and the 10th and 90th percentile over the CTAs; nanoseconds
    from the first CTA's entry to each one's entry and end. Stamps that a kernel does not make are left out."""
    cycles = {}
    for index, name in enumerate(STAMPS):
        made = words[:, index] != 0
        if made.any():
            cycles[name] = _spread((words[made, index] - words[made, 0]).astype(np.int64))
    start = words[:, NANOSECONDS].min()
    times = {
        name: _spread((words[:, NANOSECONDS + i] - start).astype(np.int64)) for i, name in enumerate(("entry", "end"))
    }
    combine = words[words[:, COMBINE] != 0, COMBINE : COMBINE + 3]
    if len(combine):
        names = ("combine_entry", "combine_waited", "combine_end")
        times |= {name: _spread((combine[:, i] - start).astype(np.int64)) for i, name in enumerate(names)}
    sms = len(np.unique(words[:, NANOSECONDS + 2]))
    return {"ctas": len(words), "multiprocessors": sms, "cycles": cycles, "nanoseconds": times}


def _spread(values: NDArray[np.int64]) -> list[int]:
    return [round(float(x)) for x in np.percentile(values, (50, 10, 90))]
