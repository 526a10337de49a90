"""The sm_90a kernels over one of a Problem: tensor maps, parameters, forward and combine, on any device.

Any shape and number of walkers, where `fmha.harness.kernel_side.launch` launches what the harness chose.
Imports no torch, so that compute-sanitizer and ncu start quickly and see our launches only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.bench.shapes.launch_shapes import BuildShape, combine_launch
from fmha.harness.bench.shapes.problem import Problem, map_shapes, pack
from fmha.harness.contract.device import Device, LaunchConfig, LoadedModule, TensorMapSpec
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.kernel_side.params import COMBINE_THREADS, MAPS

POISON: Final = np.uint32(0x7FEDBEEF)


@dataclass(frozen=True)
class BuiltKernel:
    """A module of a forward kernel and its combine kernels, and the shape it was built for."""

    module: LoadedModule
    shape: BuildShape


def launch(
    device: Device, kernel: BuiltKernel, p: Problem, addresses: Mapping[str, int], overlaps: bool = True
) -> list[FindingRecord]:
    """Forward and combine of `p` over device addresses by FmhaParams' names: inputs, o and what statistics and partials
    there are. `overlaps`: the forward kernel the grid before it; combine does in any case. The findings of both."""
    shape = kernel.shape
    maps = {
        name: device.encode_tensor_map(_tensor_map(addresses[name], dims, box))
        for name, (dims, box) in map_shapes(p, shape.rows, shape.keys).items()
        if name in addresses
    }
    pointers = {name: address for name, address in addresses.items() if name not in MAPS}
    config = LaunchConfig(shape.grid(p), (shape.threads, 1, 1), shape.shared_bytes, overlaps=overlaps)
    entry = f"fmha_fwd_sm90_hd{shape.head_dim}"
    packed = pack(p, maps, pointers)
    findings = list(device.launch(kernel.module, entry, config, packed).findings)
    if p.splits > 1:
        combine, grid = combine_launch(p)
        config = LaunchConfig(grid, (COMBINE_THREADS, 1, 1), overlaps=True)
        findings += device.launch(kernel.module, combine, config, packed).findings
    return findings


def _tensor_map(address: int, dims: Sequence[int], box: Sequence[int]) -> TensorMapSpec:
    """A bf16 map of a contiguous tensor, 128-byte swizzle."""
    strides = tuple(math.prod(dims[: i + 1]) * 2 for i in range(len(dims) - 1))
    return TensorMapSpec("bf16", address, tuple(dims), strides, tuple(box), (1,) * len(dims), "128B")


def output_sizes(p: Problem) -> dict[str, int]:
    """Bytes of every output and partial result."""
    rows = p.batch * p.t * p.heads
    sizes = {"o": rows * p.head_dim * (2 if p.bf16 else 4)}
    sizes |= dict.fromkeys(("row_max", "row_sum", "lse"), rows * 4)
    if p.splits > 1:
        sizes |= {"partial_o": p.splits * rows * p.head_dim * 4}
        sizes |= dict.fromkeys(("partial_max", "partial_sum"), p.splits * rows * 4)
    return sizes


def run_once(
    device: Device, kernel: BuiltKernel, p: Problem, tensors: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], list[FindingRecord]]:
    """Uploads, poisons the outputs, launches and waits; o and the statistics, and what was found. The memory is the
    device's until it is closed."""
    arrays = dict(tensors) | {name: np.full(nbytes // 4, POISON) for name, nbytes in output_sizes(p).items()}
    arrays["drawn"] = np.zeros(1, np.uint32)
    addresses = {}
    for name, data in arrays.items():
        addresses[name] = device.alloc(data.nbytes, name)
        device.upload(addresses[name], data)
    findings = launch(device, kernel, p, addresses)
    out = {}
    rows = (p.batch, p.t, p.heads)
    for name in ("o", "row_max", "row_sum", "lse"):
        raw = device.download(addresses[name], arrays[name].nbytes)
        dtype = np.uint16 if name == "o" and p.bf16 else np.float32
        out[name] = raw.view(dtype).reshape((*rows, p.head_dim) if name == "o" else rows)
    return out, findings
