"""`attention`: the kernels as a function of torch tensors. docs/understand/semantics.md says what it computes;
docs/use/attention.md shows its use.

A call is planned once for each set of shapes and options (plans.py): arguments checked, a kernel chosen (decision.py)
and built, its launches prepared. What is left for the next such call is to allocate the outputs and to launch. For
torch.compile and whatever else cannot see a launch it is an operator (operator.py).
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from fmha.harness.attention.arguments import Sparse, refuse_lost_gradient, refuse_lost_tangent
from fmha.harness.attention.operator import called
from fmha.harness.attention.options import Window
from fmha.harness.attention.plans import AttentionPlan, CallOptions, Place, kept_plan, new_plan
from fmha.harness.attention.result import AttentionResult, merge
from fmha.harness.attention.tensors import lack_memory, listed
from fmha.harness.judge.configuration import PathChoice, Statistics

__all__ = ["AttentionPlan", "AttentionResult", "Sparse", "attention", "merge", "plan"]


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
    output_dtype: torch.dtype = torch.float32,
    statistics: Statistics = "all",
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: Place | None = None,
    out: AttentionResult | None = None,
) -> AttentionResult:
    """Attention of the heads of q over one K/V head, or over several of which each serves as many of them.

    q [batch, t, heads, head_dim] and k, v [batch, s_k, head_dim] or [batch, s_k, kv_heads, head_dim] are bf16; head h
    of q attends K/V head h // (heads // kv_heads). They may have any strides of multiples of 8 elements but the last,
    which is 1, so that slices and transposed views need no copy; all else is contiguous. v is left out when V is K.
    With `block_table` [batch, n] int32, k and v are pages, [pages, page_size, kv_heads, head_dim] or without kv_heads,
    of 16, 32, 64, 128 or 256 rows: key j of an entry is row j % page_size of page block_table[entry, j // page_size].
    Without kv_lens an entry has n * page_size keys. With cu_seqlens_q [batch + 1] int32 q is [total_q, heads,
    head_dim], entry b's queries being rows cu_seqlens_q[b] to cu_seqlens_q[b + 1], at most `max_seqlen_q`; outputs are
    packed alike. With cu_seqlens_k k and v are [total_k, kv_heads, head_dim] likewise, and kv_lens is left out.
    `scale` defaults to 1/sqrt(head_dim). `window` is the number of keys that a query sees, its own the last; or a pair
    of how many before and after its own, None for all. The last query is aligned with the last key unless
    query_offsets [batch] int32 gives the position of the first. kv_lens [batch] int32, sink [heads] float32.
    `normalise=False` leaves o un-normalised, as `merge` wants it. `statistics` says what is stored beside o: row_max,
    row_sum and lse, lse alone, or nothing; an un-normalised o is relative to row_max, and so wants all. `splits`
    defaults to a number chosen from the sizes and the GPU, or on Hopper to a division by all lengths of the batch; a
    result depends on it in its last bits. `p_path` forces how P reaches the second product. `out`, a result of an equal
    call, is written to instead of new tensors. No kernel does a `softcap`.

    Tensors on a GPU run there, on torch's current stream of it, without waiting; tensors on the CPU run on the
    emulator, `device` only says which is expected. Of tensors without memory, as a FakeTensor is, the result has none
    either. Raises TypeError and ValueError for wrong arguments, NotImplementedError where no kernel does it, as
    a backward pass, InfrastructureError where the kernel cannot be built, and DeviceError.
    """
    tensors = listed(q, k, v, kv_lens, query_offsets, sink, sparse, block_table, cu_seqlens_q, cu_seqlens_k)
    options = (
        scale, causal, window, softcap, max_seqlen_q, max_seqlen_k, normalise, output_dtype, statistics, splits, p_path,
        device,
    )  # fmt: skip
    if torch.is_grad_enabled():
        refuse_lost_gradient(q, k, v, sink, sparse)
    if torch.compiler.is_compiling():
        return called(tensors, options, sparse, out)
    if forward_ad._current_level >= 0:
        refuse_lost_tangent(q, k, v, sink, sparse)
    if torch._C._len_torch_dispatch_stack():  # of modes, which see an operator and no launch
        return called(tensors, options, sparse, out)
    known, addresses = kept_plan(tensors, options, sparse)
    if known is None:
        return called(tensors, options, sparse, out)
    return known.run(tensors, addresses, out)


def plan(
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
    output_dtype: torch.dtype = torch.float32,
    statistics: Statistics = "all",
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: Place | None = None,
) -> AttentionPlan:
    """What `attention` makes of these arguments, for calls with tensors of the same shapes. Raises what it raises."""
    tensors = listed(q, k, v, kv_lens, query_offsets, sink, sparse, block_table, cu_seqlens_q, cu_seqlens_k)
    options = CallOptions(
        scale, causal, window, softcap, max_seqlen_q, max_seqlen_k, normalise, output_dtype, statistics, splits, p_path,
        device,
    )  # fmt: skip
    if lack_memory(tensors):
        raise TypeError("a plan needs tensors with memory; `attention` takes those without")
    return new_plan(tensors, options, sparse)
