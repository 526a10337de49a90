"""The arguments of fmha.attention, checked: what a call is given, and the call they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fmha.harness.worker.launch import Call

Window = int | tuple[int | None, int | None]
MOST_KEYS = 2**31 - 1  # of a window, what an int32 of the C ABI holds
MOST_PLANES = 65535  # K/V heads of all batch entries: a grid's z
STRIDED = ("q", "k", "v")  # what TMA reads, and so may have gaps
STRIDE_ELEMENTS = 8  # of bf16 in the 16 bytes that TMA's strides are multiples of


@dataclass(frozen=True, slots=True)
class Sparse:
    """The sparse branch: k and v [batch, s_sparse, head_dim] bf16, v left out when V is K; indices [batch, t, topk] and
    lens [batch, t] int32, lens left out for topk."""

    k: torch.Tensor
    indices: torch.Tensor
    v: torch.Tensor | None = None
    lens: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Arguments:
    """Tensors by FmhaParams' names, without those that are absent or have no element; and the call, with one split."""

    tensors: dict[str, torch.Tensor]
    call: Call


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    *,
    scale: float | None,
    causal: bool,
    window: Window | None,
    kv_lens: torch.Tensor | None,
    query_offsets: torch.Tensor | None,
    sparse: Sparse | None,
    sink: torch.Tensor | None,
    normalise: bool,
    output_dtype: torch.dtype,
) -> Arguments:
    """The arguments of fmha.attention as one object.

    TypeError for what is no tensor or has the wrong dtype, ValueError for anything else; the message names the
    argument, what it is and what it should be. Lengths are looked at on a CPU only: on a GPU that would wait for it.
    """
    _tensor("q", q, torch.bfloat16, ("batch", "t", "heads", "head_dim"), {})
    sizes = dict(zip(("batch", "t", "heads", "head_dim"), q.shape, strict=True))
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"q: {name} must be at least 1, shape is {list(q.shape)}")
    keys: tuple[str, ...] = ("batch", "s_k", "head_dim")
    if isinstance(k, torch.Tensor) and k.dim() == 4:
        keys = ("batch", "s_k", "kv_heads", "head_dim")
    _tensor("k", k, torch.bfloat16, keys, sizes)
    sizes |= dict(zip(keys, k.shape, strict=True))
    _kv_heads(sizes, sparse)
    given: dict[str, torch.Tensor | None] = {"q": q, "k": k, "v": v, "kv_lens": kv_lens}
    given |= {"query_offsets": query_offsets, "sink": sink}
    if sparse is not None:
        sizes |= _sparse(sparse, sizes, shared_kv=v is None)
        given |= {"sparse_k": sparse.k, "sparse_v": sparse.v}
        given |= {"sparse_indices": sparse.indices, "sparse_lens": sparse.lens}
    _tensor("v", v, torch.bfloat16, keys, sizes)
    _tensor("kv_lens", kv_lens, torch.int32, ("batch",), sizes)
    _tensor("query_offsets", query_offsets, torch.int32, ("batch",), sizes)
    _tensor("sink", sink, torch.float32, ("heads",), sizes)
    _lengths("kv_lens", kv_lens, sizes["s_k"])
    if q.is_cuda and q.device.index != 0:
        raise ValueError(f"q: expected the first visible GPU, got {q.device}; choose by CUDA_VISIBLE_DEVICES")
    for name, tensor in given.items():
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"{name}: is on {tensor.device}, q on {q.device}")
    if output_dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"output_dtype: expected torch.float32 or torch.bfloat16, got {output_dtype}")
    if output_dtype == torch.bfloat16 and not normalise:
        raise ValueError("output_dtype: un-normalised output is torch.float32 only, got torch.bfloat16")
    left, right = window_of(causal, window)
    call = Call(
        **sizes,
        shared_kv=v is None,
        window_left=left,
        window_right=right,
        scale=_scale(scale, sizes["head_dim"]),
        normalise=normalise,
        output_bf16=output_dtype == torch.bfloat16,
        q_strides=_strides(q),
        k_strides=_strides(k),
        v_strides=None if v is None else _strides(v),
    )
    if sparse is not None and call.by_head:
        raise ValueError(f"q: expected a contiguous tensor beside a sparse branch, got strides {q.stride()}")
    return Arguments({name: item for name, item in given.items() if item is not None and item.numel()}, call)


def _sparse(sparse: Sparse, sizes: dict[str, int], *, shared_kv: bool) -> dict[str, int]:
    if not isinstance(sparse, Sparse):
        raise TypeError(f"sparse: expected fmha.Sparse, got {type(sparse).__name__}")
    rows = ("batch", "s_sparse", "head_dim")
    _tensor("sparse.k", sparse.k, torch.bfloat16, rows, sizes)
    sizes = sizes | {"s_sparse": sparse.k.shape[1]}
    _tensor("sparse.v", sparse.v, torch.bfloat16, rows, sizes)
    if (sparse.v is None) != shared_kv:
        here, there = ("absent", "given") if sparse.v is None else ("given", "absent")
        raise ValueError(f"sparse.v: is {here} while v is {there}; both branches share K and V or neither does")
    _tensor("sparse.indices", sparse.indices, torch.int32, ("batch", "t", "topk"), sizes)
    topk = sparse.indices.shape[2]
    _tensor("sparse.lens", sparse.lens, torch.int32, ("batch", "t"), sizes)
    _lengths("sparse.lens", sparse.lens, topk)
    return {"s_sparse": sizes["s_sparse"], "topk": topk} if topk else {}


def _tensor(name: str, tensor: Any, dtype: torch.dtype, shape: Sequence[str], sizes: dict[str, int]) -> None:
    """Checks an argument, which may be None unless every call needs it; `sizes` are those that are known already."""
    if tensor is None and name not in ("q", "k", "sparse.k", "sparse.indices"):
        return
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor of {dtype}, got {type(tensor).__name__}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {tensor.dtype}")
    wanted = [sizes.get(size, size) for size in shape]
    fits = tensor.dim() == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(wanted, tensor.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name}: expected shape [{', '.join(map(str, wanted))}], got {list(tensor.shape)}")
    if name in STRIDED:
        _reachable(name, tensor)
    elif not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {tensor.stride()}; call .contiguous()")
    if tensor.numel() and tensor.data_ptr() % 16:
        raise ValueError(misaligned(name, tensor.data_ptr()))


def _kv_heads(sizes: dict[str, int], sparse: Sparse | None) -> None:
    """Checks the number of K/V heads, where k has a dimension of them."""
    kv_heads, heads = sizes.get("kv_heads", 1), sizes["heads"]
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"k: expected K/V heads that divide the {heads} heads of q, got {kv_heads}")
    if kv_heads * sizes["batch"] > MOST_PLANES:
        raise ValueError(f"k: expected at most {MOST_PLANES} K/V heads in all, got {kv_heads * sizes['batch']}")
    if kv_heads > 1 and sparse is not None:
        raise ValueError(f"sparse: is for one K/V head, k has {kv_heads}; fold them into the batch")


def _reachable(name: str, tensor: torch.Tensor) -> None:
    """ValueError for strides that TMA cannot go by."""
    if tensor.is_contiguous():
        return
    if tensor.stride(-1) != 1:
        raise ValueError(
            f"{name}: expected the elements of a row side by side, got strides {tensor.stride()}; call .contiguous()"
        )
    if any(stride % STRIDE_ELEMENTS for stride in tensor.stride()[:-1]):
        wanted = f"strides of multiples of {STRIDE_ELEMENTS} elements"
        raise ValueError(f"{name}: expected {wanted}, got {tensor.stride()}; call .contiguous()")


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """From one batch entry, row and head to the next, as Call has them; None of a contiguous tensor."""
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()[:-1]
    return tuple(strides) if len(strides) == 3 else (*strides, tensor.shape[-1])


def misaligned(name: str, address: int) -> str:
    """What is said of a tensor that TMA cannot read."""
    return f"{name}: expected memory aligned to 16 bytes, got {address:#x}; call .clone()"


def _lengths(name: str, lengths: torch.Tensor | None, longest: int) -> None:
    if lengths is None or lengths.is_cuda:
        return
    outside = lengths[(lengths < 0) | (lengths > longest)]
    if outside.numel():
        raise ValueError(f"{name}: expected values from 0 to {longest}, got {int(outside[0])}")


def window_of(causal: bool, window: Window | None) -> tuple[int | None, int | None]:
    """Keys seen before and after the query's own position."""
    if window is None:
        return None, 0 if causal else None
    if isinstance(window, int):
        if window < 1:
            raise ValueError(f"window: expected at least 1 key, the query's own, got {window}")
        if window > MOST_KEYS:
            raise ValueError(f"window: expected at most {MOST_KEYS} keys, got {window}; None is no limit")
        return window - 1, 0
    left, right = window
    for side in (left, right):
        if side is not None and not 0 <= side <= MOST_KEYS:
            raise ValueError(f"window: expected counts of keys up to {MOST_KEYS} or None, got {window}")
    if causal and right is not None and right > 0:
        raise ValueError(f"window: causal attention sees no key after the query's own, got {window}")
    return left, 0 if causal else right


def _scale(scale: float | None, head_dim: int) -> float:
    """As the float32 that a kernel is given."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(1.0 / math.sqrt(head_dim) if scale is None else scale))
    if not 0.0 < rounded < math.inf:
        raise ValueError(f"scale: expected a positive finite number, got {scale}")
    return rounded
