"""Runs one configuration on a device: upload, poison, launch, download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.worker.apart import Launcher
from fmha.harness.worker.bf16 import from_bf16
from fmha.harness.worker.configuration import Configuration
from fmha.harness.worker.devices.base import Device, LaunchReport, LoadedModule
from fmha.harness.worker.inputs import Inputs
from fmha.harness.worker.launch import Call, launch_attention
from fmha.harness.worker.protocol import Variant
from fmha.harness.worker.variants import merges_in_cluster

# Quiet NaNs with a payload: arithmetic on a GPU yields 0x7fffffff, so these bits mean that nobody wrote here.
POISON: Final = 0x7FEDBEEF
POISON_BF16: Final = 0x7FED


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the device left: o [batch, t, heads, head_dim] float32, or bf16 bits; the rest [batch, t, heads] float32."""

    o: NDArray[Any]
    row_max: NDArray[np.float32]
    row_sum: NDArray[np.float32]
    lse: NDArray[np.float32]
    report: LaunchReport

    @property
    def o_values(self) -> NDArray[np.float64]:
        return from_bf16(self.o) if self.o.dtype == np.uint16 else self.o.astype(np.float64)


def run_attention(
    device: Device,
    module: LoadedModule,
    variant: Variant,
    configuration: Configuration,
    inputs: Inputs,
    launcher: Launcher = launch_attention,
) -> Outputs:
    """Runs `variant` over a configuration's `inputs`."""
    return run_call(device, module, variant, call_of(configuration, inputs, variant.arch), inputs, launcher)


def run_call(
    device: Device,
    module: LoadedModule,
    variant: Variant,
    call: Call,
    inputs: Inputs,
    launcher: Launcher = launch_attention,
) -> Outputs:
    """Runs `variant` over `inputs`; every element of every output holds poison before the launch."""
    rows = (call.batch, call.t, call.heads)
    addresses = place(device, call, inputs)
    report = launcher(device, module, variant, call, addresses)
    return Outputs(
        _download(device, addresses["o"], (*rows, call.head_dim), np.uint16 if call.output_bf16 else np.float32),
        _download(device, addresses["row_max"], rows, np.float32),
        _download(device, addresses["row_sum"], rows, np.float32),
        _download(device, addresses["lse"], rows, np.float32),
        report,
    )


def place(device: Device, call: Call, inputs: Inputs) -> dict[str, int]:
    """Device addresses of `inputs` and of poisoned outputs and partial results, by FmhaParams' names."""
    rows = (call.batch, call.t, call.heads)
    addresses = {name: _upload(device, name, array) for name, array in operands(inputs).items()}
    addresses["o"] = _poisoned(device, "o", (*rows, call.head_dim), bf16=call.output_bf16)
    for name in ("row_max", "row_sum", "lse"):
        addresses[name] = _poisoned(device, name, rows)
    for name, count in call.partial_elements.items():
        addresses[name] = _poisoned(device, name, (count,))
    return addresses


def call_of(configuration: Configuration, inputs: Inputs, arch: str) -> Call:
    """The call that a configuration asks for of the kernels for `arch`."""
    item = configuration
    return Call(
        head_dim=item.head_dim,
        batch=item.batch,
        t=item.t,
        heads=item.heads,
        s_k=item.s_k,
        s_sparse=item.s_sparse,
        topk=item.topk,
        shared_kv=item.kv == "shared",
        window_left=inputs.window_left,
        window_right=inputs.window_right,
        scale=inputs.scale,
        normalise=item.output != "unnormalised",
        output_bf16=item.output == "bf16",
        splits=item.splits,
        in_cluster=merges_in_cluster(item, arch),
    )


def operands(inputs: Inputs) -> Mapping[str, NDArray[Any]]:
    """The arrays of `inputs` that are there, by FmhaParams' names."""
    sparse = inputs.sparse
    named: dict[str, NDArray[Any] | None] = {
        "q": inputs.q,
        "k": inputs.k,
        "v": inputs.v,
        "kv_lens": inputs.kv_lens,
        "query_offsets": inputs.query_offsets,
        "sink": inputs.sink,
    }
    if sparse is not None:
        named |= {"sparse_k": sparse.k, "sparse_v": sparse.v}
        named |= {"sparse_indices": sparse.indices, "sparse_lens": sparse.lens}
    return {name: array for name, array in named.items() if array is not None and array.size}


def _upload(device: Device, name: str, data: NDArray[Any]) -> int:
    address = device.alloc(data.nbytes, name)
    device.upload(address, data)
    return address


def _poisoned(device: Device, name: str, shape: tuple[int, ...], *, bf16: bool = False) -> int:
    words = np.full(shape, POISON_BF16, np.uint16) if bf16 else np.full(shape, POISON, np.uint32)
    return _upload(device, name, words)


def _download(device: Device, address: int, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return device.download(address, nbytes).view(dtype).reshape(shape)
