"""Attention in float64 over torch tensors, with fmha.attention's own signature: what kernels are held to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fmha.harness.arguments import Sparse, Window, check
from fmha.harness.attention import AttentionResult
from fmha.harness.worker.configuration import PathChoice
from fmha.harness.worker.oracle import inputs
from fmha.harness.worker.oracle.reference import reference


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
    output_dtype: torch.dtype | None = None,
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: str | None = None,
) -> AttentionResult:
    """What fmha.attention computes, in float64 and with the same arguments, on the CPU.

    `output_dtype` is that of o, float64 by default. `splits`, `p_path` and `device` make no difference.
    """
    checked = check(
        q, k, v,
        scale=scale, causal=causal, window=window, kv_lens=kv_lens, query_offsets=query_offsets, sparse=sparse,
        sink=sink, normalise=normalise, output_dtype=torch.float32,
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
    lengths = array(kv_lens), array(query_offsets)
    result = reference(inputs.Inputs(array(q), array(k), array(v), call.scale, *bounds, *lengths, branch, array(sink)))
    o = torch.from_numpy(result.o if normalise else result.o_unnormalised)
    statistics = torch.from_numpy(np.stack([result.row_max, result.row_sum, result.lse]))
    return AttentionResult(o.to(output_dtype or torch.float64), statistics, normalise)
