"""The tensors of a call in one order, and what a plan depends on of them."""

from __future__ import annotations

from collections.abc import Hashable
from types import BuiltinFunctionType

import torch

from fmha.harness.attention.given import Tensors
from fmha.harness.worker.devices import calls


def read(tensors: Tensors) -> tuple[Hashable, bytes]:
    """What a plan depends on of the tensors, and their addresses. TypeError where one is none, or has no memory."""
    told = calls.read(tensors) or calls.read_tensors(tensors)
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
