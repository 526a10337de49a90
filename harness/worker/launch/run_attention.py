"""Runs one configuration on a device: upload, poison, launch, download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import Device, DeviceError, LaunchReport, LoadedModule, Roomy
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import STORED, Configuration
from fmha.harness.judge.oracle.inputs import Inputs, poison
from fmha.harness.judge.oracle.outputs import POISON, POISON_BF16, Outputs
from fmha.harness.kernel_side.choice import ARCH, Balance
from fmha.harness.kernel_side.launch import Call, contiguous, launch_attention
from fmha.harness.worker.launch.scatter import query_lengths, scattered, scattered_call, unpacked
from fmha.harness.worker.planner.sides import Launcher

STATISTICS: Final = STORED["all"]
# What a launch may write, by FmhaParams' names: outputs, what it leaves to the next one, and a count.
WRITTEN: Final = frozenset(("o", *STATISTICS, "partial_o", "partial_max", "partial_sum", "shares", "drawn"))


class CountLeftError(Exception):
    """The launch has not put back what CTAs count in: a graph's next launch of it would begin there."""


def run_attention(
    device: Device,
    module: LoadedModule,
    variant: Variant,
    configuration: Configuration,
    inputs: Inputs,
    launcher: Launcher = launch_attention,
) -> Outputs:
    """Runs `variant` over a configuration's `inputs`."""
    call = call_of(configuration, inputs, variant.arch)
    others = scattered(configuration, inputs)
    stored = configuration.stored
    return run_call(device, module, variant, call, inputs, launcher, configuration.before, others, stored)


def run_call(
    device: Device,
    module: LoadedModule,
    variant: Variant,
    call: Call,
    inputs: Inputs,
    launcher: Launcher = launch_attention,
    before: int = 0,
    others: Mapping[str, NDArray[Any]] | None = None,
    stored: Sequence[str] = STATISTICS,
) -> Outputs:
    """Runs `variant` over `inputs`; every element of every output holds poison before the launch. Of the statistics
    those that are `stored` have memory, and the others are null.

    `inputs` and outputs are those of the call's batch entries from the `before`th on. A device that can leaves the
    others out, and has no memory for them: a tensor may be larger than any memory. `others` are arrays in the place of
    inputs and beside them, of `scattered`. CountLeftError.
    """
    if not before:
        addresses = place(device, call, inputs, others, stored)
    elif isinstance(device, Roomy):
        addresses = _place_behind(device, call, inputs, before, stored)
        device.first_plane = before
    else:
        raise DeviceError(f"device {device.name} cannot have a tensor's end alone")
    report = launcher(device, module, variant, call, addresses)
    if "drawn" in addresses and not any(finding.severity == "error" for finding in report.findings):
        left = int(device.download(addresses["drawn"], 4).view(np.uint32)[0])
        if left:
            raise CountLeftError(f"the count of drawn row tiles was 0 before the launch and is {left} after it")
    return read_back(device, call, inputs, addresses, stored, report, before)


def read_back(
    device: Device,
    call: Call,
    inputs: Inputs,
    addresses: Mapping[str, int],
    stored: Sequence[str] = STATISTICS,
    report: LaunchReport | None = None,
    before: int = 0,
) -> Outputs:
    """What the outputs of a call hold, of the batch entries from the `before`th on."""
    rows = (call.batch - before, *call.rows[1:]) if call.total_q is None else call.rows

    def read(name: str, shape: tuple[int, ...], dtype: type[np.generic], missing: float = 0.0) -> NDArray[Any]:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        start = addresses[name] + nbytes // rows[0] * before
        values = device.download(start, nbytes).view(dtype).reshape(shape)
        return values if call.total_q is None else unpacked(values, query_lengths(inputs), call.t, missing)

    o = read("o", (*rows, call.head_dim), np.uint16 if call.output_bf16 else np.float32)
    missing = {"row_max": -np.inf, "row_sum": 0.0, "lse": -np.inf}  # of a query that an entry does not have
    statistics = {
        name: read(name, rows, np.float32, value) if name in stored else None for name, value in missing.items()
    }
    return Outputs(o, **statistics, report=report or LaunchReport())


def place(
    device: Device,
    call: Call,
    inputs: Inputs,
    others: Mapping[str, NDArray[Any]] | None = None,
    stored: Sequence[str] = STATISTICS,
) -> dict[str, int]:
    """Device addresses of `inputs`, of `others` in their place and beside them, of poisoned outputs and partial results
    and of a count that is 0, by FmhaParams' names."""
    strides = {"q": call.q_strides, "k": call.k_strides, "v": call.v_strides}
    addresses = {
        name: _upload(device, name, laid_out(array, strides.get(name), call.head_dim))
        for name, array in (operands(inputs) | dict(others or {})).items()
        if array.size
    }
    addresses |= {name: _upload(device, name, array) for name, array in _unwritten(call, stored).items()}
    addresses["drawn"] = _upload(device, "drawn", np.zeros(1, np.uint32))
    return addresses


def poison_again(device: Device, call: Call, addresses: Mapping[str, int], stored: Sequence[str] = STATISTICS) -> None:
    """Outputs and partial results hold what they held before the first launch."""
    for name, array in _unwritten(call, stored).items():
        device.upload(addresses[name], array)


def _unwritten(call: Call, stored: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What outputs and partial results hold before a launch."""
    partial = {name: np.full(count, POISON, np.uint32) for name, count in call.partial_elements.items()}
    return _poisoned(call, call.rows, stored) | partial


def _place_behind(device: Roomy, call: Call, inputs: Inputs, before: int, stored: Sequence[str]) -> dict[str, int]:
    """`place`, with so many batch entries before those that are there; in every split, of partial results. Without a
    count: CTAs that draw row tiles would come to those that are not there."""
    entries = call.batch - before
    arrays = dict(operands(inputs)) | _poisoned(call, (entries, *call.rows[1:]), stored)
    sink = {"sink": arrays.pop("sink")} if "sink" in arrays else {}  # a value a head: the batch has one
    addresses = {name: _upload(device, name, array) for name, array in sink.items()}
    for name, array in arrays.items():
        each = array.nbytes // entries
        addresses[name] = device.reserve(each * call.batch, name)
        _behind(device, addresses[name] + each * before, array, name)
    for name, count in call.partial_elements.items():
        split = count // call.splits * 4
        addresses[name] = device.reserve(count * 4, name)
        for number in range(call.splits):
            array = np.full(split // 4 // call.batch * entries, POISON, np.uint32)
            _behind(device, addresses[name] + split * (number + 1) - array.nbytes, array, name)
    return addresses


def _behind(device: Roomy, address: int, array: NDArray[Any], name: str) -> None:
    start = address // 256 * 256
    device.back(start, address - start + array.nbytes, name)
    device.upload(address, array)


def call_of(configuration: Configuration, inputs: Inputs, arch: str) -> Call:
    """The call that a configuration asks for of the kernels for `arch`."""
    item = configuration
    call = Call(
        head_dim=item.head_dim,
        batch=item.before + item.batch,
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
        kv_heads=item.kv_heads,
        balance=_balance(item, arch) if item.merge == "balanced" else None,
    )
    call = replace(call, **scattered_call(item, inputs))
    return replace(call, **_strides(item, call))


def _balance(item: Configuration, arch: str) -> Balance:
    """As many CTAs as the configuration has splits; on sm_100a one for each plane at least, and as many a head."""
    heads = item.kv_heads
    ctas = item.splits if arch == ARCH else heads * max(item.splits // heads, item.batch)
    return Balance(ctas=ctas, part_tiles=1)


def _strides(item: Configuration, call: Call) -> dict[str, Any]:
    """The strides of Call that a layout has. Head by head those of V are not those of K, where there are several."""
    rows = call.page_size or call.total_k or item.s_k
    if item.layout == "bshd":
        return {}
    if item.layout == "bhsd":
        spare = {"k_strides": 0, "v_strides": int(item.kv_heads > 1)}
        found = {name: contiguous(item.kv_heads, rows + more, item.head_dim) for name, more in spare.items()}
        return {name: (entry, row, head) for name, (entry, head, row) in found.items()}
    together = item.heads + 2 * item.kv_heads
    keys, queries = contiguous(rows, together, item.head_dim), call.total_q or item.t
    return {"q_strides": contiguous(queries, together, item.head_dim), "k_strides": keys, "v_strides": keys}


def laid_out(array: NDArray[Any], strides: Sequence[int] | None, head_dim: int) -> NDArray[Any]:
    """Memory that holds a tensor in `strides`, as Call has them, and poison in between."""
    if strides is None:
        return array
    whole = array.reshape(*array.shape[:2], -1, head_dim)
    extent = sum((size - 1) * stride for size, stride in zip(whole.shape, strides, strict=False)) + head_dim
    memory = poison((extent,))
    steps = [memory.itemsize * stride for stride in (*strides, 1)]
    np.lib.stride_tricks.as_strided(memory, whole.shape, steps)[...] = whole
    return memory


def operands(inputs: Inputs) -> dict[str, NDArray[Any]]:
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


def _poisoned(call: Call, rows: tuple[int, ...], stored: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What outputs of `rows`, as Call has them, hold before a launch."""
    o = (*rows, call.head_dim)
    found: dict[str, NDArray[Any]] = {
        "o": np.full(o, POISON_BF16, np.uint16) if call.output_bf16 else np.full(o, POISON, np.uint32)
    }
    return found | {name: np.full(rows, POISON, np.uint32) for name in stored}
