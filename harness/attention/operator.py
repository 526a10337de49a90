"""`attention` as one operator of torch: what torch.compile, torch.export, modes and tensors without memory see."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from fmha.harness.attention.arguments import Sparse, refuse_lost_gradient
from fmha.harness.attention.options import window_of
from fmha.harness.attention.plans import CallOptions, kept_plan
from fmha.harness.attention.result import AttentionResult, same_statistics
from fmha.harness.attention.tensors import Tensors
from fmha.harness.judge.configuration import STORED, Statistics


def called(
    tensors: Tensors, options: tuple[Any, ...], sparse: Sparse | None, out: AttentionResult | None
) -> AttentionResult:
    """`attention` of tensors and Options by way of the operator."""
    given = CallOptions(*options)
    given.check(tensors[0], sparse)
    operands = (
        given.scale, *window_of(given.causal, given.window), given.max_seqlen_q, given.max_seqlen_k, given.normalise,
        given.output_dtype, given.splits, given.p_path, given.statistics,
    )  # fmt: skip
    o, stored = torch.ops.fmha.attention(*tensors, *operands)
    if out is None:
        return AttentionResult(o, stored, given.normalise)
    same_statistics(out, given.statistics)  # lse alone would be copied to all three
    out.o.copy_(o)
    if out.statistics is not None:
        out.statistics.copy_(stored)
    return out


def _run_operator(
    q: torch.Tensor, k: torch.Tensor, v: Any, kv_lens: Any, query_offsets: Any, sink: Any, sparse_k: Any, sparse_v: Any,
    sparse_indices: Any, sparse_lens: Any, block_table: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, scale: Any,
    left: Any, right: Any, max_seqlen_q: Any, max_seqlen_k: Any, normalise: bool, output_dtype: torch.dtype,
    splits: Any, p_path: Any, statistics: Statistics = "all",
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """Results that share no memory, and none that stays but theirs: a graph of torch's may have made a pool for it."""
    o, stored = _shaped(q, output_dtype, statistics)
    sparse = None if sparse_indices is None else Sparse(sparse_k, sparse_indices, sparse_v, sparse_lens)
    if torch.is_grad_enabled():
        refuse_lost_gradient(q, k, v, sink, sparse)
    tensors = (
        q, k, v, kv_lens, query_offsets, sink, sparse_k, sparse_v, sparse_indices, sparse_lens, block_table,
        cu_seqlens_q, cu_seqlens_k,
    )  # fmt: skip
    window = left, right
    options = (
        scale, False, window, None, max_seqlen_q, max_seqlen_k, normalise, output_dtype, statistics, splits, p_path,
        None,
    )  # fmt: skip
    planned, addresses = kept_plan(tensors, options, sparse)
    if planned is None:
        raise TypeError(f"q: expected tensors with memory, got {', '.join(type(x).__name__ for x in tensors)}")
    planned.run(tensors, addresses, AttentionResult(o, stored, normalise), keeps=False)
    return o, stored


def _fake_operator(*operands: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    given = inspect.signature(_run_operator).bind(*operands)
    given.apply_defaults()  # torch leaves out what is one
    return _shaped(*(given.arguments[name] for name in ("q", "output_dtype", "statistics")))


def _shaped(
    q: torch.Tensor, output_dtype: torch.dtype, statistics: Statistics
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Outputs that nothing has written yet."""
    count = len(STORED[statistics])
    stored = q.new_empty((count, *q.shape[:-1]), dtype=torch.float32) if count else None
    return q.new_empty(q.shape, dtype=output_dtype), stored


# By hand, not as a torch.library.custom_op, which costs the host a hundred microseconds a call.
_LIBRARY = torch.library.Library("fmha", "DEF")
_LIBRARY.define(
    "attention(Tensor q, Tensor k, Tensor? v, Tensor? kv_lens, Tensor? query_offsets, Tensor? sink, Tensor? sparse_k, "
    "Tensor? sparse_v, Tensor? sparse_indices, Tensor? sparse_lens, Tensor? block_table, Tensor? cu_seqlens_q, "
    "Tensor? cu_seqlens_k, float? scale, int? window_left, int? window_right, int? max_seqlen_q, int? max_seqlen_k, "
    "bool normalise, ScalarType output_dtype, int? splits, str p_path, str statistics='all') "
    "-> (Tensor, Tensor?)"
)
_LIBRARY.impl("attention", _run_operator, "CompositeExplicitAutograd")
torch.library.register_fake("fmha::attention", _fake_operator, lib=_LIBRARY)
