"""A problem with torch's reference and an answer to it, as a kernel of one's own.

The judge's side runs the problem: inputs, and outputs in float64. The kernel's side, another process, runs the answer's
host code and has neither.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fmha.harness.judge.case import Case
from fmha.harness.problems.events import FILLS, buffers_of, launches_of
from fmha.harness.problems.extension import Compiled, Extensions
from fmha.harness.problems.recorder import AnswerError, Recorder, a_gpu
from fmha.harness.problems.tensors import as_array, as_tensor, drawn, dtype_of, output_of
from fmha.harness.problems.triton_launches import TritonLaunches, merged
from fmha.harness.worker.subjects.kernel import Build, Kernel, Launch, Output

Given = Mapping[str, Any]  # tensors and numbers, by the names that the problem has for them


@dataclass(frozen=True, slots=True)
class Question:
    """A case of a problem. `given` are the arguments, `state` what its model has learned; `answer` is the reference."""

    given: Given
    state: Mapping[str, torch.Tensor]
    answer: Callable[[Given, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All that is a buffer."""
        return {**{name: item for name, item in self.given.items() if isinstance(item, torch.Tensor)}, **self.state}


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer does: its launches, what it allocates for them, and the PTX. `digest` tells what was compiled."""

    launches: tuple[Launch, ...]
    scratch: Mapping[str, Output]
    ptx: str
    digest: str


class Recorded(Kernel):
    """`source` is the answer's file."""

    @abstractmethod
    def question(self, case: Case) -> Question:
        """Of the case, made on whatever device is asked for (tensors.drawn)."""

    @abstractmethod
    def host_code(self, case: Case) -> Callable[[Question], tuple[Callable[[], Any], Mapping[str, torch.Tensor]]]:
        """Imports the answer. What makes its host code for a question: a call, and its parameters by their names."""

    # The judge's side

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        with drawn(int(random.integers(1 << 62)), "cpu"):
            return {name: as_array(item, name) for name, item in self.question(case).tensors.items()}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {name: output_of(item, name) for name, item in self._shapes(case)[1].items()}

    def reference(self, case: Case, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with drawn(0, "cpu"):
            question = self.question(case)
            exact = {name: as_tensor(inputs[name], like) for name, like in question.tensors.items()}
            given = {name: exact.get(name, item) for name, item in question.given.items()}
            found = question.answer(given, {name: exact[name] for name in question.state})
            return {name: item.double().numpy() for name, item in found.items()}

    @functools.cache  # noqa: B019 - a kernel lives as long as its process
    def _shapes(self, case: Case) -> tuple[Question, Mapping[str, torch.Tensor]]:
        """The question and the outputs without values."""
        with drawn(0, "meta"):
            question = self.question(case)
            outputs = question.answer(question.given, question.state)
        for name, item in (*question.tensors.items(), *outputs.items()):
            dtype_of(item, name)
        return question, outputs

    # The kernel's side

    def build(self, case: Case, arch: str) -> Build:
        self.arch = arch
        answered = self._answered(case, arch)
        entries = sorted(dict.fromkeys(launch.entry for launch in answered.launches), key=lambda name: name in FILLS)
        shared = max(launch.shared_bytes for launch in answered.launches)
        # What the host code compiles may follow from the case: cases share a build where it is the same.
        return Build(entries[0], {"answer": answered.digest}, shared, tuple(entries[1:]))

    def compile(self, case: Case, arch: str) -> str:
        return self._answered(case, arch).ptx

    def launches(self, case: Case) -> Sequence[Launch]:
        return self._answered(case, self.arch or "sm_90a").launches

    def scratch(self, case: Case) -> Mapping[str, Output]:
        return self._answered(case, self.arch or "sm_90a").scratch

    @functools.cache  # noqa: B019
    def _answered(self, case: Case, arch: str) -> Answered:
        recorder = Recorder(self.root / self.source)
        extensions = Extensions(arch, self.root / self.source, self.root)
        triton = TritonLaunches(arch, recorder)
        with drawn(0, "meta"), a_gpu(recorder.events.waited), triton.instead(), _instead(extensions):
            question = self.question(case)
            make = self.host_code(case)
            with recorder:
                call, parameters = make(question)
                extensions.recorder = recorder
                names = self._named(recorder, question, parameters)
                recorder.lenient = False
                call()
                recorder.events.clear()
                result = call()  # the second call: the first may have done what this one would then leave out
                recorder.lenient = True
        compiled = [*extensions.ptx, *triton.ptx]
        if not extensions.ptx and any(item.entry in FILLS for item in recorder.events.launches):
            compiled.append(Compiled("#include <torch/extension.h>\n", (), arch).ptx)
        digest = hashlib.sha256("\0".join([*extensions.texts, *triton.ptx]).encode()).hexdigest()[:12]
        launches, scratch = self._told(case, recorder, names, result)
        return Answered(launches, scratch, merged(compiled), digest)

    def _named(self, recorder: Recorder, question: Question, parameters: Mapping[str, torch.Tensor]) -> dict[int, str]:
        """The buffers that the answer is given. A parameter counts where the problem's model has one like it."""
        names = {}
        for name, item in question.tensors.items():
            if name not in question.state:
                names[recorder.buffer(item)] = name
        for name, like in question.state.items():
            own = parameters.get(name)
            if own is not None and own.shape == like.shape and own.dtype == like.dtype:
                names[recorder.buffer(own)] = name
        return names

    def _told(
        self, case: Case, recorder: Recorder, names: dict[int, str], result: Any
    ) -> tuple[tuple[Launch, ...], Mapping[str, Output]]:
        events = recorder.events
        if not events.launches:
            raise AnswerError("the answer's second call launches nothing: it returns what it has kept")
        if events.apart:
            raise AnswerError("a kernel is launched on a stream of its own, and nobody waits for it before the return")
        outputs = self._shapes(case)[1]
        returned = list(result) if isinstance(result, tuple | list) else [result]
        if len(returned) != len(outputs):
            raise AnswerError(f"the answer returns {len(returned)} things; the problem has {len(outputs)} outputs")
        for (name, wanted), item in zip(outputs.items(), returned, strict=True):
            self._place(recorder, names, name, wanted, item)
        scratch = {}
        for number in sorted(buffers_of(events.launches) - names.keys() & recorder.nbytes.keys()):
            names[number] = f"allocated{number}"
            scratch[names[number]] = Output((recorder.nbytes[number],), "u8")
        return tuple(launches_of(events.launches, names)), scratch

    def _place(self, recorder: Recorder, names: dict[int, str], name: str, wanted: torch.Tensor, item: Any) -> None:
        if not isinstance(item, torch.Tensor) or item.shape != wanted.shape or item.dtype != wanted.dtype:
            said = f"{item.dtype} of {tuple(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
            raise AnswerError(f"the answer returns {said} for {name}; it is {wanted.dtype} of {tuple(wanted.shape)}")
        number = recorder.known(item)
        if number is None:
            raise AnswerError(f"the answer returns for {name} what no launch has written")
        if number in names:
            raise AnswerError(f"the answer returns {names[number]} for {name}: what it was given, or the same twice")
        if not item.is_contiguous() or item.storage_offset() or recorder.nbytes[number] != item.nbytes:
            raise AnswerError(f"the answer returns for {name} a part of an allocation, or what is not contiguous")
        names[number] = name


@contextmanager
def _instead(extensions: Extensions) -> Iterator[None]:
    """torch.utils.cpp_extension is ours while an answer is imported and run."""
    from types import ModuleType

    name = "torch.utils.cpp_extension"
    stub = ModuleType(name)
    stub.load_inline = extensions.load_inline  # type: ignore[attr-defined]
    stub.load = extensions.load  # type: ignore[attr-defined]
    before = sys.modules.get(name)
    sys.modules[name] = stub
    torch.utils.cpp_extension = stub  # type: ignore[attr-defined,assignment]
    try:
        yield
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
