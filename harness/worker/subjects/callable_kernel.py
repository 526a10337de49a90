"""A library's function as a kernel of one's own: called over torch's tensors, with nothing of it built."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from fmha.harness.judge.case import Case
from fmha.harness.worker.subjects.kernel import Build, Kernel, Launch


class CallableKernel(Kernel):
    """What is called instead: on a GPU where the run has one, else on the CPU. It is compared and gated as any other,
    its resources apart, and has no hazards, because nobody looks inside."""

    source = ""
    modules: ClassVar[tuple[str, ...]] = ()  # that have to be installed, torch apart; without them it is not run
    gpu: ClassVar[bool] = False  # it runs on a GPU alone

    @abstractmethod
    def call(self, case: Case, tensors: Mapping[str, Any]) -> Callable[[], Mapping[str, Any]]:
        """What is called, and timed: it returns a tensor for each of `outputs`. `tensors` are the inputs."""

    def build(self, case: Case, arch: str) -> Build:
        """Nothing is built."""
        return Build("")

    def launches(self, case: Case) -> Sequence[Launch]:
        """Nothing is launched."""
        return ()
