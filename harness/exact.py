"""Attention in float64 over torch tensors, with fmha.attention's own signature: what kernels are held to."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch

from fmha.harness.attention import AttentionResult
from fmha.harness.attention.arguments import check, refuse_lost_gradient
from fmha.harness.attention.entry import takes
from fmha.harness.attention.given import ARGUMENTS, AttentionArguments, Options, Sparse, Tensors, given
from fmha.harness.judge.configuration import STORED
from fmha.harness.judge.oracle import inputs
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.worker.launch.scatter import packed, unpacked


@dataclass(frozen=True, slots=True)
class ExactArguments(AttentionArguments):
    """`output_dtype` is any; float64 by default. `splits`, `p_path` and `device` make no difference."""

    _: KW_ONLY
    output_dtype: Annotated[torch.dtype | None, ARGUMENTS["output_dtype"]] = None


@takes(ExactArguments)
def attention(tensors: Tensors, options: Options, sparse: Sparse | None) -> AttentionResult:
    """What fmha.attention computes, in float64 and with the same arguments, on the CPU.

    `output_dtype` is that of o, float64 by default. `splits`, `p_path` and `device` make no difference.
    """
    of = given(tensors, options, sparse)
    if torch.is_grad_enabled():
        refuse_lost_gradient(tensors)
    checked = check(replace(of, output_dtype=torch.float32, device=None))

    def array(tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        tensor = tensor.detach().cpu()
        return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()

    branch = None
    if sparse is not None:
        branch = inputs.SparseArrays(array(sparse.k), array(sparse.v), array(sparse.indices), array(sparse.lens))
    call = checked.call
    bounds = call.window_left, call.window_right
    queries, keys, values, lengths, q_lens = array(of.q), array(of.k), array(of.v), array(of.kv_lens), None
    if of.cu_seqlens_q is not None:
        q_lens = np.diff(array(of.cu_seqlens_q))
        queries = unpacked(queries, q_lens, call.t, 0)
    if of.cu_seqlens_k is not None:
        lengths = np.diff(array(of.cu_seqlens_k))
        keys, values = (x if x is None else unpacked(x, lengths, call.s_k, 0) for x in (keys, values))
    if of.block_table is not None:
        keys, values = (x if x is None else _of_pages(x, array(of.block_table)) for x in (keys, values))
    offsets = array(of.query_offsets)
    result = reference(
        inputs.Inputs(queries, keys, values, call.scale, *bounds, lengths, offsets, branch, array(of.sink), q_lens)
    )

    def rows(name: str) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = getattr(result, name)
        return found if q_lens is None else packed(found, q_lens)[0]

    o = torch.from_numpy(rows("o" if of.normalise else "o_unnormalised"))
    stored = [rows(name) for name in STORED[of.statistics]]
    found = torch.from_numpy(np.stack(stored)) if stored else None
    return AttentionResult(o.to(of.output_dtype or torch.float64), found, of.normalise)


def _of_pages(pages: np.ndarray[Any, Any], table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[batch, s_k, ...] of what lies in pages; zeros where the table names none."""
    there = (table >= 0) & (table < len(pages))
    found = pages[np.where(there, table, 0)]
    found[~there] = 0
    return found.reshape(len(table), -1, *pages.shape[2:])
