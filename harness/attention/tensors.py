"""The tensors of a call in one order, and what a plan depends on of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import BuiltinFunctionType

import torch

from fmha.harness.attention.arguments import Sparse, check_sparse
from fmha.harness.worker.devices import calls

NAMES = (
    "q", "k", "v", "kv_lens", "query_offsets", "sink", "sparse_k", "sparse_v", "sparse_indices", "sparse_lens",
    "block_table", "cu_seqlens_q", "cu_seqlens_k",
)  # fmt: skip
Tensors = Sequence[torch.Tensor | None]  # in the order of NAMES


def listed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    kv_lens: torch.Tensor | None,
    query_offsets: torch.Tensor | None,
    sink: torch.Tensor | None,
    sparse: Sparse | None,
    *scattered: torch.Tensor | None,
) -> Tensors:
    """In the order of NAMES."""
    if not isinstance(sparse, Sparse):
        check_sparse(sparse)
        return q, k, v, kv_lens, query_offsets, sink, None, None, None, None, *scattered
    return q, k, v, kv_lens, query_offsets, sink, sparse.k, sparse.v, sparse.indices, sparse.lens, *scattered


def read(tensors: Tensors) -> tuple[Hashable, bytes]:
    """What a plan depends on of the tensors, and their addresses. TypeError where one is none, or has no memory."""
    told = calls.read(tuple(tensors)) or calls.read_tensors(tensors)
    if told is None:
        raise TypeError(f"expected tensors with memory, got {', '.join(type(x).__name__ for x in tensors)}")
    return told


def lack_memory(tensors: Tensors) -> bool:
    """Whether one of the tensors has no memory of its own: a FakeTensor, say, one of vmap's or on the device meta."""
    return any(isinstance(x, torch.Tensor) and _lacks_memory(x) for x in tensors)


def in_words(x: torch.Tensor | None) -> str:
    """What a plan depends on of a tensor."""
    if x is None:
        return "none"
    return f"{x.dtype} {list(x.shape)} on {x.device}" + ("" if x.is_contiguous() else f" in strides {list(x.stride())}")


def _lacks_memory(x: torch.Tensor) -> bool:
    own = isinstance(getattr(type(x), calls.DISPATCH), BuiltinFunctionType)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._is_functional_tensor(x)
    return not own or wrapped or x.is_meta
