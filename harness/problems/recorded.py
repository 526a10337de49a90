"""A problem with torch's reference and an answer to it, as a kernel of one's own.

The judge's side runs the problem: inputs, and outputs in float64. The kernel's side, another process, runs the answer's
host code and has neither.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.case import Case
from fmha.harness.problems.events import FILLS
from fmha.harness.problems.question import Question
from fmha.harness.worker.subjects.kernel import Build, Kernel, Launch, Output

if TYPE_CHECKING:
    import torch


class Recorded(Kernel):
    """`source` is the answer's file. What is done with torch is in carried_out.py."""

    @abstractmethod
    def question(self, case: Case) -> Question:
        """Of the case, made on whatever device is asked for (tensors.drawn)."""

    @abstractmethod
    def host_code(self, case: Case) -> Callable[[Question], tuple[Callable[[], Any], Mapping[str, torch.Tensor]]]:
        """Imports the answer. What makes its host code for a question: a call, and its parameters by their names."""

    # The judge's side

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        from fmha.harness.problems import carried_out

        return carried_out.inputs(self, case, random)

    def outputs(self, case: Case) -> dict[str, Output]:
        from fmha.harness.problems import carried_out

        return carried_out.outputs(self, case)

    def reference(self, case: Case, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        from fmha.harness.problems import carried_out

        return carried_out.reference(self, case, inputs)

    # The kernel's side

    def build(self, case: Case, arch: str) -> Build:
        """Compiles what the answer's host code launches for a case."""
        from fmha.harness.problems import carried_out

        self.arch = arch
        answered = carried_out.answered(self, case, arch)
        entries = sorted(dict.fromkeys(launch.entry for launch in answered.launches), key=lambda name: name in FILLS)
        shared = max(launch.shared_bytes for launch in answered.launches)
        # What the host code compiles may follow from the case: cases share a build where it is the same.
        return Build(entries[0], {"answer": answered.digest}, shared, tuple(entries[1:]))

    def compile(self, case: Case, arch: str) -> str:
        from fmha.harness.problems import carried_out

        return carried_out.answered(self, case, arch).ptx

    def launches(self, case: Case) -> Sequence[Launch]:
        from fmha.harness.problems import carried_out

        return carried_out.answered(self, case, self.arch or "sm_90a").launches

    def scratch(self, case: Case) -> Mapping[str, Output]:
        from fmha.harness.problems import carried_out

        return carried_out.answered(self, case, self.arch or "sm_90a").scratch
