"""Attention in float64 over torch tensors, with fmha.attention's own signature: what kernels are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fmha.harness.attention import AttentionResult
from fmha.harness.attention.arguments import Sparse, check, refuse_lost_gradient
from fmha.harness.attention.options import Window
from fmha.harness.attention.plans import CallOptions
from fmha.harness.judge.configuration import STORED, PathChoice, Statistics
from fmha.harness.judge.oracle import inputs
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.worker.launch.scatter import packed, unpacked


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: Window | None = None,
    softcap: float | None = None,
    kv_lens: torch.Tensor | None = None,
    query_offsets: torch.Tensor | None = None,
    sparse: Sparse | None = None,
    sink: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    normalise: bool = True,
    output_dtype: torch.dtype | None = None,
    statistics: Statistics = "all",
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: str | None = None,
) -> AttentionResult:
    """What fmha.attention computes, in float64 and with the same arguments, on the CPU.

    `output_dtype` is that of o, float64 by default. `splits`, `p_path` and `device` make no difference.
    """
    options = CallOptions(
        scale, causal, window, softcap, max_seqlen_q, max_seqlen_k, normalise, torch.float32, statistics, splits,
        p_path, None,
    )  # fmt: skip
    options.check(q, sparse)
    if torch.is_grad_enabled():
        refuse_lost_gradient(q, k, v, sink, sparse)
    checked = check(
        q, k, v,
        scale=scale, causal=causal, window=window, kv_lens=kv_lens, query_offsets=query_offsets, sparse=sparse,
        sink=sink, block_table=block_table, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, normalise=normalise, output_dtype=torch.float32,
    )  # fmt: skip

    def array(tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        tensor = tensor.detach().cpu()
        return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()

    branch = None
    if sparse is not None:
        branch = inputs.Sparse(array(sparse.k), array(sparse.v), array(sparse.indices), array(sparse.lens))
    call = checked.call
    bounds = call.window_left, call.window_right
    queries, keys, values, lengths, q_lens = array(q), array(k), array(v), array(kv_lens), None
    if cu_seqlens_q is not None:
        q_lens = np.diff(array(cu_seqlens_q))
        queries = unpacked(queries, q_lens, call.t, 0)
    if cu_seqlens_k is not None:
        lengths = np.diff(array(cu_seqlens_k))
        keys, values = (x if x is None else unpacked(x, lengths, call.s_k, 0) for x in (keys, values))
    if block_table is not None:
        keys, values = (x if x is None else _of_pages(x, array(block_table)) for x in (keys, values))
    offsets = array(query_offsets)
    result = reference(
        inputs.Inputs(queries, keys, values, call.scale, *bounds, lengths, offsets, branch, array(sink), q_lens)
    )

    def rows(name: str) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = getattr(result, name)
        return found if q_lens is None else packed(found, q_lens)[0]

    o = torch.from_numpy(rows("o" if normalise else "o_unnormalised"))
    stored = [rows(name) for name in STORED[statistics]]
    found = torch.from_numpy(np.stack(stored)) if stored else None
    return AttentionResult(o.to(output_dtype or torch.float64), found, normalise)


def _of_pages(pages: np.ndarray[Any, Any], table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[batch, s_k, ...] of what lies in pages; zeros where the table names none."""
    there = (table >= 0) & (table < len(pages))
    found = pages[np.where(there, table, 0)]
    found[~there] = 0
    return found.reshape(len(table), -1, *pages.shape[2:])
