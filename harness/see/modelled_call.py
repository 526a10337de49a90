"""Which call of ours the timing model is asked of, and what of a configuration it does not draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.timing.architecture import Architecture
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import Configuration
from fmha.harness.kernel_side.choice import ARCH, cheapest, division_of, few_queries, mean_of, rows_of_packed
from fmha.harness.kernel_side.launch import Call, choose_splits
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.lengths import Given, given, is_plain
from fmha.harness.worker.launch.run_attention import call_of

# What a call may have that changes its time and that nothing here draws: refused, never left out of the time.
_NOT_MODELLED: Final[Mapping[str, Callable[[Configuration], bool]]] = {
    "lists of sparse keys with holes, repetitions or lengths": lambda item: (
        item.topk > item.s_sparse
        or (item.topk > 0 and (item.sparse_indices, item.sparse_lens, item.kv_lens) != ("valid", "full", "full"))
    ),
    "query offsets": lambda item: item.query_offsets != "aligned",
    "tensors with entries before the call's": lambda item: item.before > 0,
}
Lengths = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A configuration's call and its kernel; `of` where sizes do not say all of it."""

    call: Call
    variant: Variant
    of: Given | None


def why_not(item: Configuration, gpu: Architecture) -> str | None:
    """Why the model has no time of a configuration; None where it has one."""
    found = _choice(item, gpu)
    return found if isinstance(found, str) else None


def chosen(
    item: Configuration, gpu: Architecture, keys: Lengths | None = None, queries: Lengths | None = None
) -> Chosen:
    """What `attention` would launch, with lengths of batch entries as they are given or as the configuration has them.
    UserError where there is no kernel."""
    found = _choice(item, gpu, keys, queries)
    if isinstance(found, str):
        raise UserError(found, where=item.id)
    return found


def _choice(
    item: Configuration, gpu: Architecture, keys: Lengths | None = None, queries: Lengths | None = None
) -> Chosen | str:
    for absent, there in _NOT_MODELLED.items():
        if there(item):
            return f"the timing model draws no {absent}"
    if item.topk and gpu.arch == ARCH:  # whose CTAs draw row tiles, of which each query has its own
        return f"the timing model draws no lists of sparse keys on {ARCH}"
    of = None if is_plain(item) else given(item, keys, queries)
    call = _split(item, gpu, _call(item, gpu, of))
    total = call.total_q
    asked = replace(item, splits=call.splits, merge="balanced" if call.balance else item.merge)
    if total is not None:
        few = few_queries(call, total)
        asked = replace(asked, batch=max(1, -(-total // call.t)), q_lens="ragged" if few else "full")
    variant = variant_for(asked, gpu.arch, _rows_by_rule(item, call, gpu.arch))
    return variant if isinstance(variant, str) else Chosen(call, variant, of)


def _ragged(item: Configuration, call: Call) -> bool:
    return item.kv_lens != "full" or call.total_k is not None


def _rows_by_rule(item: Configuration, call: Call, arch: str) -> int | None:
    """What choice has of a call that `attention` is given, where it knows more than a configuration says."""
    if item.splits > 1 or item.merge != "auto" or item.topk:
        return None
    if call.balance:
        return call.balance.rows
    if arch != ARCH:
        return None
    if call.splits > 1:
        mean = mean_of(call.planes, _ragged(item, call), call.total_k)
        return cheapest(call.planes, call.by_head, mean, call.splits)[0]
    if call.total_q is None:
        return None
    keys = call.batch * call.s_k if call.total_k is None else call.total_k
    return rows_of_packed(call, call.total_q, keys, item.mask != "none")


def _call(item: Configuration, gpu: Architecture, of: Given | None) -> Call:
    """What a configuration asks for."""
    if of is not None:
        return call_of(item, of.inputs, gpu.arch)
    left, right = item.bounds
    return Call(
        head_dim=item.head_dim,
        batch=item.batch,
        t=item.t,
        heads=item.heads,
        s_k=item.s_k,
        shared_kv=item.kv == "shared",
        window_left=left,
        window_right=right,
        scale=item.head_dim**-0.5,
        normalise=item.output != "unnormalised",
        output_bf16=item.output == "bf16",
        splits=item.splits,
        kv_heads=item.kv_heads,
    )


def _split(item: Configuration, gpu: Architecture, call: Call) -> Call:
    """Where the configuration leaves the splits open, they are those that `attention` takes: balanced ones where those
    pay, or by the rules of fmha.harness.kernel_side.choice, or as many as fill the GPU."""
    if item.splits > 1 or item.merge != "auto":
        return call
    splits, balance = None, None
    if call.window_left is None or call.window_right is None:  # else the window decides, not s_k
        splits, balance = division_of(gpu.arch, call.planes, call.by_head, _ragged(item, call), call.total_k)
    if splits is None:
        variant = variant_for(item, gpu.arch)
        splits = 1 if isinstance(variant, str) else choose_splits(variant, call, gpu.multiprocessors)
    return replace(call, splits=splits, balance=balance)
