"""`attention`: the kernels as a function of torch tensors. docs/understand/semantics.md says what it computes;
docs/use/attention.md shows its use.

A call is planned once for each set of shapes and options (plans.py): arguments checked, a kernel chosen (decision.py)
and built, its launches prepared. What is left for the next such call is to allocate the outputs and to launch. For
torch.compile and whatever else cannot see a launch it is an operator (operator.py).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch.autograd import forward_ad

from fmha.harness.attention.arguments import refuse_lost_gradient, refuse_lost_tangent
from fmha.harness.attention.entry import takes
from fmha.harness.attention.given import AttentionArguments, Options, Sparse, Tensors
from fmha.harness.attention.operator import called
from fmha.harness.attention.plans import AttentionPlan, kept_plan, new_plan
from fmha.harness.attention.result import AttentionResult, merge
from fmha.harness.attention.tensors import lack_memory

__all__ = ["AttentionPlan", "AttentionResult", "Sparse", "attention", "merge", "plan"]


@dataclass(frozen=True, slots=True)
class CallArguments(AttentionArguments):
    """A call's arguments, and where its results go."""

    _: KW_ONLY
    out: AttentionResult | None = None


@takes(CallArguments)
def attention(
    tensors: Tensors, options: Options, sparse: Sparse | None, *, out: AttentionResult | None
) -> AttentionResult:
    """Attention of the heads of q over one K/V head, or over several of which each serves as many of them.

    q, k and v may have any strides of multiples of 8 elements but the last, which is 1, so that slices and transposed
    views need no copy; all else is contiguous. `out`, a result of an equal call, is written to instead of new tensors.

    Tensors on a GPU run there, on torch's current stream of it, without waiting; tensors on the CPU run on the
    emulator. Of tensors without memory, as a FakeTensor is, the result has none either. Raises TypeError and ValueError
    for wrong arguments, NotImplementedError where no kernel does it, as a backward pass, InfrastructureError where the
    kernel cannot be built, and DeviceError.
    """
    if torch.is_grad_enabled():
        refuse_lost_gradient(tensors)
    if torch.compiler.is_compiling():
        return called(tensors, options, sparse, out)
    if forward_ad._current_level >= 0:
        refuse_lost_tangent(tensors)
    if torch._C._len_torch_dispatch_stack():  # of modes, which see an operator and no launch
        return called(tensors, options, sparse, out)
    known, addresses = kept_plan(tensors, options, sparse)
    if known is None:
        return called(tensors, options, sparse, out)
    return known.run(tensors, addresses, out)


@takes(AttentionArguments)
def plan(tensors: Tensors, options: Options, sparse: Sparse | None) -> AttentionPlan:
    """What `attention` makes of these arguments, for calls with tensors of the same shapes. Raises what it raises."""
    if lack_memory(tensors):
        raise TypeError("a plan needs tensors with memory; `attention` takes those without")
    return new_plan(tensors, options, sparse)
