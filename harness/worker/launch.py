"""Runs one configuration on a device: upload, poison, launch, download. Written once for every device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.worker.devices.base import Device, LaunchReport, LoadedModule, TensorMapSpec
from harness.worker.inputs import Inputs
from harness.worker.params import FmhaParams, query_blocks
from harness.worker.protocol import Configuration, Variant

# A quiet NaN with a payload: arithmetic on a GPU yields 0x7fffffff, so these bits mean that nobody wrote here.
POISON: Final = 0x7FEDBEEF
BOX_ELEMENTS: Final = 64  # 128 bytes of bf16: one row of the swizzle pattern


@dataclass(frozen=True, slots=True)
class Outputs:
    """o [batch, t, head_dim], un-normalised; row_max, row_sum and lse [batch, t]; float32, as the device left them."""

    o: NDArray[np.float32]
    row_max: NDArray[np.float32]
    row_sum: NDArray[np.float32]
    lse: NDArray[np.float32]
    report: LaunchReport


def run_attention(
    device: Device, module: LoadedModule, variant: Variant, configuration: Configuration, inputs: Inputs
) -> Outputs:
    """Runs `variant` over `inputs`; every output element holds POISON before the launch."""
    rows = (configuration.batch, configuration.t)
    shape = variant.shape
    params = FmhaParams(
        q=_upload(device, "q", inputs.q, shape.rows),
        k=_upload(device, "k", inputs.k, shape.keys),
        v=_upload(device, "v", inputs.v, shape.keys),
        o=_poisoned(device, "o", (*rows, configuration.head_dim)),
        row_max=_poisoned(device, "row_max", rows),
        row_sum=_poisoned(device, "row_sum", rows),
        lse=_poisoned(device, "lse", rows),
        batch=configuration.batch,
        t=configuration.t,
        s_k=configuration.s_k,
        scale=inputs.scale,
        head_dim=configuration.head_dim,
    )
    report = device.launch(
        module,
        variant.entry,
        grid=(query_blocks(shape, params.t, params.heads, params.topk), params.splits, params.batch),
        block=(shape.threads, 1, 1),
        shared_bytes=shape.shared_bytes,
        params=params.pack(),
    )
    return Outputs(
        o=_download(device, params.o, (*rows, configuration.head_dim)),
        row_max=_download(device, params.row_max, rows),
        row_sum=_download(device, params.row_sum, rows),
        lse=_download(device, params.lse, rows),
        report=report,
    )


def tensor_map(address: int, shape: tuple[int, ...], box_rows: int) -> TensorMapSpec:
    """The map of a contiguous bf16 tensor [batch, rows, head_dim] as kernel/include/fmha_params.h wants it."""
    batch, rows, head_dim = shape
    return TensorMapSpec(
        dtype="bf16",
        address=address,
        global_dim=(head_dim, rows, batch),
        global_strides=(head_dim * 2, rows * head_dim * 2),
        box_dim=(BOX_ELEMENTS, box_rows, 1),
        element_strides=(1, 1, 1),
        swizzle="128B",
    )


def _upload(device: Device, name: str, data: NDArray[np.uint16], box_rows: int) -> bytes:
    address = device.alloc(data.nbytes, name)
    device.upload(address, data)
    return device.encode_tensor_map(tensor_map(address, data.shape, box_rows))


def _poisoned(device: Device, name: str, shape: tuple[int, ...]) -> int:
    words = np.full(shape, POISON, dtype=np.uint32)
    address = device.alloc(words.nbytes, name)
    device.upload(address, words)
    return address


def _download(device: Device, address: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return device.download(address, int(np.prod(shape)) * 4).view(np.float32).reshape(shape)
