"""One case of a problem: what an answer is given, and how the reference answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Given = Mapping[str, Any]  # tensors and numbers, by the names that the problem has for them


@dataclass(frozen=True, slots=True)
class Question:
    """`given` are the arguments, `state` what the problem's model has learned; `answer` is the reference."""

    given: Given
    state: Mapping[str, torch.Tensor]
    answer: Callable[[Given, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All that is a buffer."""
        import torch

        return {**{name: item for name, item in self.given.items() if isinstance(item, torch.Tensor)}, **self.state}
