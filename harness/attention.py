"""`attention`: the kernels as a function of torch tensors. docs/semantics.md says what it computes; docs/attention.md
shows its use."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fmha.harness import project
from fmha.harness.arguments import Arguments, Sparse, Window, check
from fmha.harness.errors import InfrastructureError
from fmha.harness.worker.build import build_variants
from fmha.harness.worker.choice import splits_of
from fmha.harness.worker.configuration import UNLIMITED, Configuration, PathChoice
from fmha.harness.worker.devices.base import Device
from fmha.harness.worker.devices.cuda import CudaDevice, architecture
from fmha.harness.worker.launch import Call, choose_splits, launch_attention
from fmha.harness.worker.protocol import FindingRecord, Variant
from fmha.harness.worker.variants import variant_for

__all__ = ["AttentionResult", "Sparse", "attention", "merge"]

BUILD_SECONDS = 600.0
EMULATED = "sm_100a"
MOST_SPLITS = 65535  # CUDA's largest grid.y
Place = Literal["emulator", "cuda"]


@dataclass(frozen=True, slots=True)
class AttentionResult:
    """o [batch, t, heads, head_dim]; row_max, row_sum and lse [batch, t, heads] float32, in natural-log units.

    `normalised` says what o is: o_norm, sink included, or o_un. The sink is in no other output. `findings` are hazards,
    which only the emulator sees.
    """

    o: torch.Tensor
    row_max: torch.Tensor
    row_sum: torch.Tensor
    lse: torch.Tensor
    normalised: bool
    findings: tuple[FindingRecord, ...] = ()


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: Window | None = None,
    kv_lens: torch.Tensor | None = None,
    query_offsets: torch.Tensor | None = None,
    sparse: Sparse | None = None,
    sink: torch.Tensor | None = None,
    normalise: bool = True,
    output_dtype: torch.dtype = torch.float32,
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: Place | None = None,
) -> AttentionResult:
    """Attention of every head of q over one K/V head. Independent K/V heads are folded into the batch by the caller.

    q [batch, t, heads, head_dim] and k, v [batch, s_k, head_dim] are bf16 and contiguous; v is left out when V is K.
    `scale` defaults to 1/sqrt(head_dim). `window` is the number of keys that a query sees, its own the last; or a pair
    of how many before and after its own, None for all. The last query is aligned with the last key unless
    query_offsets [batch] int32 gives the position of the first. kv_lens [batch] int32, sink [heads] float32.
    `normalise=False` leaves o un-normalised, as `merge` wants it. `splits` defaults to a number chosen from the sizes
    and the GPU; a result depends on it in its last bits. `p_path` forces how P reaches the second product.

    Tensors on a GPU run there, on torch's current stream, without waiting; tensors on the CPU run on the emulator,
    `device` only says which is expected. Raises TypeError and ValueError for wrong arguments, NotImplementedError where
    no kernel does it, InfrastructureError where the kernel cannot be built, and DeviceError.
    """
    arguments = check(
        q, k, v,
        scale=scale, causal=causal, window=window, kv_lens=kv_lens, query_offsets=query_offsets, sparse=sparse,
        sink=sink, normalise=normalise, output_dtype=output_dtype,
    )  # fmt: skip
    place: Place = "cuda" if q.is_cuda else "emulator"
    if device not in (None, place):
        raise ValueError(f"device: expected {place!r}, where the tensors run, got {device!r}")
    if splits is not None and not 1 <= splits <= MOST_SPLITS:
        raise ValueError(f"splits: expected 1 to {MOST_SPLITS}, got {splits}")
    arch = architecture() if place == "cuda" else EMULATED
    if arguments.call.window_left is None or arguments.call.window_right is None:  # else the window, not s_k, decides
        splits = splits or splits_of(arch, arguments.call)
    variant = _variant(arguments, splits or 1, p_path, arch)
    run = _on_gpu if place == "cuda" else _on_emulator
    return run(arguments, variant, splits)


def merge(
    a: AttentionResult, b: AttentionResult, sink: torch.Tensor | None = None, *, normalise: bool = True
) -> AttentionResult:
    """The attention over both key sets, from un-normalised results over disjoint ones: a window and a sparse list, say.

    Exact but for rounding: computed in float64, returned in a's dtypes. The sink [heads] enters the denominator last.
    Rows that see no key on one side are the other's; on both, they are 0 with row_max = lse = -inf. ValueError for
    results that are normalised or do not fit each other.
    """
    for name, result in (("a", a), ("b", b)):
        if result.normalised:
            raise ValueError(f"{name}: expected an un-normalised result, got a normalised one; use normalise=False")
    if a.o.shape != b.o.shape:
        raise ValueError(f"b: expected shape {list(a.o.shape)}, that of a, got {list(b.o.shape)}")
    if sink is not None and sink.shape != a.o.shape[2:3]:
        raise ValueError(f"sink: expected shape {list(a.o.shape[2:3])}, got {list(sink.shape)}")
    row_max = torch.maximum(a.row_max.double(), b.row_max.double())
    shift = torch.where(row_max.isneginf(), 0.0, row_max)
    weight_a, weight_b = ((side.row_max.double() - shift).exp() for side in (a, b))
    row_sum = a.row_sum.double() * weight_a + b.row_sum.double() * weight_b
    o = a.o.double() * weight_a[..., None] + b.o.double() * weight_b[..., None]
    if normalise:
        divisor = row_sum if sink is None else row_sum + (sink.double() - shift).exp()
        o = o / torch.where(row_sum == 0, 1.0, divisor)[..., None]
    dtype = a.row_max.dtype
    lse = (row_max + row_sum.log()).to(dtype)
    return AttentionResult(
        o.to(a.o.dtype), row_max.to(dtype), row_sum.to(dtype), lse, normalise, a.findings + b.findings
    )


def _variant(arguments: Arguments, splits: int, p_path: PathChoice, arch: str) -> Variant:
    call, tensors = arguments.call, arguments.tensors
    left, right = (UNLIMITED if side is None else side for side in (call.window_left, call.window_right))
    chosen = variant_for(
        Configuration(
            head_dim=call.head_dim,
            t=call.t,
            s_k=call.s_k,
            batch=call.batch,
            mask="none" if left == right == UNLIMITED else "band",
            left=left,
            right=right,
            heads=call.heads,
            kv="shared" if call.shared_kv else "separate",
            kv_lens="ragged" if "kv_lens" in tensors else "full",
            topk=call.topk,
            s_sparse=call.s_sparse,
            sink="finite" if "sink" in tensors else "none",
            output="bf16" if call.output_bf16 else "fp32" if call.normalise else "unnormalised",
            splits=splits,
            p_path=p_path,
        ),
        arch,
    )
    if isinstance(chosen, str):
        raise NotImplementedError(chosen)
    return chosen


def _on_gpu(arguments: Arguments, variant: Variant, splits: int | None) -> AttentionResult:
    where = arguments.tensors["q"].device
    with torch.cuda.device(where):
        device = CudaDevice(stream=torch.cuda.current_stream(where).cuda_stream, wait=False)

        def new(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, torch.Tensor]:
            tensor = torch.empty(shape, dtype=dtype, device=where)
            return tensor.data_ptr(), tensor

        addresses = {name: tensor.data_ptr() for name, tensor in arguments.tensors.items()}
        return _run(device, variant, arguments.call, splits, addresses, new, lambda _, tensor: tensor)


def _on_emulator(arguments: Arguments, variant: Variant, splits: int | None) -> AttentionResult:
    from fmha.harness.worker.devices.emulator import EmulatorDevice  # not wanted where there is a GPU

    device = EmulatorDevice(seed=0, schedule="realistic")
    addresses = {}
    for name, tensor in arguments.tensors.items():
        array = _array(tensor.detach())
        addresses[name] = device.alloc(array.nbytes, name)
        device.upload(addresses[name], array)

    def new(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, torch.Tensor]:
        tensor = torch.empty(shape, dtype=dtype)
        return device.alloc(tensor.nbytes, name), tensor

    def fetch(address: int, tensor: torch.Tensor) -> torch.Tensor:
        data = torch.from_numpy(device.download(address, tensor.nbytes).copy())
        return data.view(tensor.dtype).reshape(tensor.shape)

    return _run(device, variant, arguments.call, splits, addresses, new, fetch)


def _run(
    device: Device,
    variant: Variant,
    call: Call,
    splits: int | None,
    addresses: Mapping[str, int],
    new: Callable[[str, tuple[int, ...], torch.dtype], tuple[int, torch.Tensor]],
    fetch: Callable[[int, torch.Tensor], torch.Tensor],
) -> AttentionResult:
    """Allocates outputs and partial results by `new`, launches, and reads the outputs by `fetch`."""
    if splits is None:
        splits = choose_splits(variant, call, device.multiprocessors) if variant.combine else 1
    call = dataclasses.replace(call, splits=splits)
    rows = (call.batch, call.t, call.heads)
    o_dtype = torch.bfloat16 if call.output_bf16 else torch.float32
    outputs = {"o": new("o", (*rows, call.head_dim), o_dtype)}
    outputs |= {name: new(name, rows, torch.float32) for name in ("row_max", "row_sum", "lse")}
    scratch = {name: new(name, (count,), torch.float32) for name, count in call.partial_elements.items()}
    pointers = {name: address for name, (address, _) in (outputs | scratch).items()}
    module = device.load(_artifact(variant, device.artifact))
    report = launch_attention(device, module, variant, call, {**addresses, **pointers})
    return AttentionResult(
        **{name: fetch(*output) for name, output in outputs.items()},
        normalised=call.normalise,
        findings=report.findings,
    )


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


@functools.cache
def _artifact(variant: Variant, kind: Literal["ptx", "cubin"]) -> Path:
    """The compiled kernel, built or from the build cache of the sources, once a process."""
    root = project.sources()
    if not (root / variant.source).is_file():
        raise InfrastructureError(
            f"has no {variant.source}", where=str(root), next_step="run from a checkout, where the kernels' sources are"
        )
    (result,) = build_variants(root, [variant], root / ".fmha" / "cache", BUILD_SECONDS, 1, lambda _: None)
    if result.error is not None:
        raise InfrastructureError(f"{variant.name} does not build: {result.error}")
    return Path(result.ptx if kind == "ptx" else result.cubin)
