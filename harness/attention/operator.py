"""`attention` as one operator of torch: what torch.compile, torch.export, modes and tensors without memory see."""

from __future__ import annotations

from typing import Any

import torch

from fmha.harness.attention.arguments import refuse_lost_gradient
from fmha.harness.attention.given import (
    NAMES,
    OPERANDS,
    OPTIONS,
    SPARSE,
    AttentionArguments,
    Options,
    Sparse,
    Tensors,
    given,
    name_of,
)
from fmha.harness.attention.options import check_options, window_of
from fmha.harness.attention.plans import kept_plan
from fmha.harness.attention.result import AttentionResult, same_statistics
from fmha.harness.judge.configuration import STORED

_OPTIONS = tuple(name_of(operand) for operand in OPERANDS[len(NAMES) :])  # as the operator has them


def called(tensors: Tensors, options: Options, sparse: Sparse | None, out: AttentionResult | None) -> AttentionResult:
    """`attention` of tensors and Options by way of the operator."""
    of = given(tensors, options, sparse)
    check_options(of)
    left, right = window_of(of.causal, of.window)
    found = dict(zip(OPTIONS, options, strict=True)) | {"window_left": left, "window_right": right}
    o, stored = torch.ops.fmha.attention(*tensors, *(found[name] for name in _OPTIONS))
    if out is None:
        return AttentionResult(o, stored, of.normalise)
    same_statistics(out, of.statistics)  # lse alone would be copied to all three
    out.o.copy_(o)
    if out.statistics is not None:
        out.statistics.copy_(stored)
    return out


def _run_operator(*operands: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Results that share no memory, and none that stays but theirs: a graph of torch's may have made a pool for it."""
    tensors, of, sparse = _given(operands)
    o, stored = _shaped(of)
    if torch.is_grad_enabled():
        refuse_lost_gradient(tensors)
    planned, addresses = kept_plan(tensors, of.options, sparse)
    if planned is None:
        raise TypeError(f"q: expected tensors with memory, got {', '.join(type(x).__name__ for x in tensors)}")
    planned.run(tensors, addresses, AttentionResult(o, stored, of.normalise), keeps=False)
    return o, stored


def _fake_operator(*operands: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    return _shaped(_given(operands)[1])


def _given(operands: tuple[Any, ...]) -> tuple[Tensors, AttentionArguments, Sparse | None]:
    """The call that operands are of. Torch leaves out the last of them where they are defaults."""
    tensors = operands[: len(NAMES)]
    options = dict(zip(_OPTIONS, operands[len(NAMES) :], strict=False))
    window = options.pop("window_left"), options.pop("window_right")
    k, v, indices, lens = (tensors[NAMES.index(name)] for name in SPARSE)
    sparse = None if indices is None else Sparse(k, indices, v, lens)
    named = {name: tensor for name, tensor in zip(NAMES, tensors, strict=True) if name not in SPARSE}
    return tensors, AttentionArguments(**named, sparse=sparse, window=window, **options), sparse


def _shaped(of: AttentionArguments) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Outputs that nothing has written yet."""
    count = len(STORED[of.statistics])
    stored = of.q.new_empty((count, *of.q.shape[:-1]), dtype=torch.float32) if count else None
    return of.q.new_empty(of.q.shape, dtype=of.output_dtype), stored


# By hand, not as a torch.library.custom_op, which costs the host a hundred microseconds a call.
_LIBRARY = torch.library.Library("fmha", "DEF")
_LIBRARY.define(f"attention({', '.join(OPERANDS)}) -> (Tensor, Tensor?)")
_LIBRARY.impl("attention", _run_operator, "CompositeExplicitAutograd")
torch.library.register_fake("fmha::attention", _fake_operator, lib=_LIBRARY)
