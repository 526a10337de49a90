"""Which call of ours the timing model is asked of, and what of a configuration it does not draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from fmha.emulator.timing.architecture import Architecture
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import Configuration
from fmha.harness.kernel_side.launch import Call
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.call_time import call_for

# What a call may have that changes its time and that nothing here draws: refused, never left out of the time.
_NOT_MODELLED: Final[Mapping[str, Callable[[Configuration], bool]]] = {
    "lists of sparse keys": lambda item: item.topk > 0,
    "pages and no packed sequences": lambda item: item.scattered,
    "lengths of batch entries": lambda item: item.kv_lens != "full" or item.q_lens != "full",
    "query offsets": lambda item: item.query_offsets != "aligned",
    "balanced splits": lambda item: item.merge == "balanced",
    "splits that a cluster merges": lambda item: item.merge == "cluster",
    "tensors in other layouts": lambda item: item.layout != "bshd",
    "tensors with entries before the call's": lambda item: item.before > 0,
}


def why_not(item: Configuration, gpu: Architecture) -> str | None:
    """Why the model has no time of a configuration; None where it has one."""
    found = _choice(item, gpu)
    return found if isinstance(found, str) else None


def chosen(item: Configuration, gpu: Architecture) -> tuple[Call, Variant]:
    """The call and its kernel. UserError where there is none."""
    found = _choice(item, gpu)
    if isinstance(found, str):
        raise UserError(found, where=item.id)
    return found


def _choice(item: Configuration, gpu: Architecture) -> tuple[Call, Variant] | str:
    for absent, there in _NOT_MODELLED.items():
        if there(item):
            return f"the timing model draws no {absent}"
    call = call_for(item, gpu)
    variant = variant_for(replace(item, splits=call.splits), gpu.arch)
    return variant if isinstance(variant, str) else (call, variant)
