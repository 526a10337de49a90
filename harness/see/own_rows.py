"""Calls of our own on the GPU of this machine: their times, beside what the model says of them.

A call's time is that of a CUDA graph whose calls each have tensors of their own, so that L2 has those of few of them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fmha.emulator.timing.architecture import Architecture
from fmha.harness import account
from fmha.harness.contract.device import Device
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.kernel_side.launch import Call, launch_attention
from fmha.harness.see.call_time import model, tensors_of
from fmha.harness.see.choice import chosen
from fmha.harness.worker.compilers.build import build_variants
from fmha.harness.worker.devices.cuda import CudaDevice

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
class Timed:
    """Microseconds of a call."""

    name: str
    measured_us: float
    modelled_us: float
    within: float  # how far the farthest replay is from the median, as a part of that

    @property
    def off(self) -> float:
        """Of the model, relative to what was measured."""
        return self.modelled_us / self.measured_us - 1


def rows_of(gpu: Architecture) -> list[tuple[Configuration, Call, Variant]]:
    """Those of ROWS that a kernel of ours runs there."""
    found = []
    for name in ROWS:
        item = parse_id(name)
        try:
            found.append((item, *chosen(item, gpu)))
        except UserError:
            continue
    return found


def timed(root: Path, gpu: Architecture, say: Callable[[str], None] = lambda line: None) -> Iterator[Timed]:
    """Builds our kernels from the sources below `root`, times the rows and models them with the constants of `gpu`."""
    rows = rows_of(gpu)
    variants = tuple(dict.fromkeys(variant for *_, variant in rows))
    processes = len(os.sched_getaffinity(0))
    results = build_variants(root, variants, account.folder("builds"), _BUILD_SECONDS, processes, say)
    built = {result.variant.name: result for result in results}
    for item, call, variant in rows:
        result = built[variant.name]
        if result.error:
            raise UserError(f"it does not build: {result.error.strip()}", where=variant.name)
        took = times_of(variant, Path(result.cubin), call)
        median = statistics.median(took)
        within = max(abs(one / median - 1) for one in took)
        modelled = model(gpu.name, variant, Path(result.ptx), call).seconds()
        yield Timed(item.id, median * 1e6, modelled * 1e6, within)


def times_of(variant: Variant, artifact: Path, call: Call) -> list[float]:
    """Seconds of the call, of each replay."""
    planes, elements = call.planes, call.head_dim * 2
    rows, keys = planes.batch * planes.t * planes.heads, planes.batch * planes.s_k
    each = elements * (2 * rows + keys * (1 if call.shared_kv else 2))
    device = CudaDevice(wait=False)
    try:
        module = device.load(artifact)
        count = max(1, min(_MOST_SETS, -(-_SETS_BYTES // each)))
        sets = [tensors_of(device, call) | drawn(device) for _ in range(count)]

        def calls() -> None:
            for addresses in sets:
                launch_attention(device, module, variant, call, addresses)

        replay = device.batch(calls)
        replay()  # it warms up
        return [replay() / count for _ in range(_REPLAYS)]
    finally:
        device.close()


def drawn(device: Device) -> dict[str, int]:
    """The count of row tiles that CTAs draw, which each launch leaves at zero."""
    address = device.alloc(4, "drawn")
    device.upload(address, np.zeros(1, np.uint32))
    return {"drawn": address}
