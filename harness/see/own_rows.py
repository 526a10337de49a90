"""Calls of our own on the GPU of this machine: their times, beside what the model says of them.

A call's time is that of a CUDA graph whose calls each have tensors of their own, so that L2 has those of few of them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.timing.architecture import Architecture
from fmha.harness import account
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import parse_id
from fmha.harness.kernel_side.launch import launch_attention
from fmha.harness.see.call_time import model, tensors_of
from fmha.harness.see.modelled_call import Chosen, chosen, why_not
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.cuda import CudaDevice
from fmha.harness.worker.launch.run_attention import place

# Decode bound by memory, by L2 and by launches, and prefill bound by products, at the head_dims that are used most.
ROWS: Final = (
    "hd64_t1_sk8192_b16_h128_out-bf16",
    "hd128_t1_sk8192_b16_h128_out-bf16",
    "hd128_t1_sk131072_h16_out-bf16",
    "hd128_t1_sk4096_b64_h64_out-bf16",
    "hd128_t1_sk512_h128_out-bf16",
    "hd256_t1_sk8192_b16_h128_out-bf16",
    "hd64_t4096_sk4096_b64_out-bf16",
    "hd64_t4096_sk4096_b64_causal_out-bf16",
    "hd128_t4096_sk4096_b64_out-bf16",
    "hd128_t4096_sk4096_b64_causal_out-bf16",
)
_SETS_BYTES: Final = 400 << 20
_MOST_SETS: Final = 20
_REPLAYS: Final = 7
_BUILD_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class OwnTime:
    """Microseconds of a call."""

    name: str
    measured_us: float
    modelled_us: float
    within: float  # how far the farthest replay is from the median, as a part of that

    @property
    def off(self) -> float:
        """Of the model, relative to what was measured."""
        return self.modelled_us / self.measured_us - 1


def rows_of(gpu: Architecture) -> list[tuple[str, Chosen]]:
    """Those of ROWS that a kernel of ours runs there."""
    items = [parse_id(name) for name in ROWS]
    return [(item.id, chosen(item, gpu)) for item in items if why_not(item, gpu) is None]


def timed(root: Path, gpu: Architecture, say: Callable[[str], None] = lambda line: None) -> Iterator[OwnTime]:
    """Builds our kernels from the sources below `root`, times the rows and models them with the constants of `gpu`."""
    rows = rows_of(gpu)
    variants = tuple(dict.fromkeys(one.variant for _, one in rows))
    processes = len(os.sched_getaffinity(0))
    results = build_variants(root, variants, account.folder("builds"), _BUILD_SECONDS, processes, say)
    built = {result.variant.name: result for result in results}
    for name, one in rows:
        result = built[one.variant.name]
        if result.error:
            raise UserError(f"it does not build: {result.error.strip()}", where=one.variant.name)
        took = times_of(one, Path(result.cubin))
        median = statistics.median(took)
        within = max(abs(one / median - 1) for one in took)
        modelled = model(gpu.name, one.variant, Path(result.ptx), one.call, of=one.of).seconds()
        yield OwnTime(name, median * 1e6, modelled * 1e6, within)


def times_of(one: Chosen, artifact: Path) -> list[float]:
    """Seconds of the call, of each replay."""
    call = one.call
    planes, elements = call.planes, call.head_dim * 2
    rows, keys = planes.batch * planes.t * planes.heads, planes.batch * planes.s_k
    each = elements * (2 * rows + keys * (1 if call.shared_kv else 2))
    device = CudaDevice(wait=False)
    try:
        module = device.load(artifact)
        count = max(1, min(_MOST_SETS, -(-_SETS_BYTES // each)))
        others = {} if one.of is None else one.of.others
        sets = [_placed(device, one, others) for _ in range(count)]

        def calls() -> None:
            for addresses in sets:
                launch_attention(device, module, one.variant, call, addresses)

        replay = device.batch(calls)
        replay()  # it warms up
        return [replay() / count for _ in range(_REPLAYS)]
    finally:
        device.close()


def _placed(device: CudaDevice, one: Chosen, others: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """A call's tensors, and the count of row tiles that CTAs draw, which each launch leaves at zero."""
    if one.of is not None:
        return place(device, one.call, one.of.inputs, others)
    addresses = tensors_of(device, one.call)
    addresses["drawn"] = device.alloc(4, "drawn")
    device.upload(addresses["drawn"], np.zeros(1, np.uint32))
    return addresses
