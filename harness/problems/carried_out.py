"""What a problem and an answer are asked for, with torch: recorded.py says what it means to the judge.

Each function gets the kernel that asks. Nothing here is imported before a case is asked of, because torch is large.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fmha.harness.judge.case import Case
from fmha.harness.problems.events import FILLS, TorchAnswerError, buffers_of, launches_of
from fmha.harness.problems.extension import Compiled, Extensions
from fmha.harness.problems.question import Question
from fmha.harness.problems.recorder import AnswerRecorder, a_gpu
from fmha.harness.problems.tensor_buffers import as_array, as_tensor, drawn, dtype_of, output_of
from fmha.harness.problems.triton_launches import TritonLaunches, merged
from fmha.harness.worker.subjects.kernel import Launch, Output

if TYPE_CHECKING:
    from fmha.harness.problems.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer does: its launches, what it allocates for them, and the PTX. `digest` tells what was compiled."""

    launches: tuple[Launch, ...]
    scratch: Mapping[str, Output]
    ptx: str
    digest: str


def inputs(kernel: Recorded, case: Case, random: np.random.Generator) -> dict[str, NDArray[Any]]:
    """The tensors of a problem for a case, drawn by the generator."""
    with drawn(int(random.integers(1 << 62)), "cpu"):
        return {name: as_array(item, name) for name, item in kernel.question(case).tensors.items()}


def outputs(kernel: Recorded, case: Case) -> dict[str, Output]:
    """Shapes and dtypes of what the problem's reference gives."""
    return {name: output_of(item, name) for name, item in shapes(kernel, case)[1].items()}


def reference(kernel: Recorded, case: Case, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The reference's outputs in float64, of these inputs."""
    with drawn(0, "cpu"):
        question = kernel.question(case)
        exact = {name: as_tensor(inputs[name], like) for name, like in question.tensors.items()}
        given = {name: exact.get(name, item) for name, item in question.given.items()}
        found = question.answer(given, {name: exact[name] for name in question.state})
        return {name: item.double().numpy() for name, item in found.items()}


@functools.cache
def shapes(kernel: Recorded, case: Case) -> tuple[Question, Mapping[str, torch.Tensor]]:
    """The question and the outputs without values."""
    with drawn(0, "meta"):
        question = kernel.question(case)
        outputs = question.answer(question.given, question.state)
    for name, item in (*question.tensors.items(), *outputs.items()):
        dtype_of(item, name)
    return question, outputs


@functools.cache
def answered(kernel: Recorded, case: Case, arch: str) -> Answered:
    """The launches of an answer's host code, recorded."""
    recorder = AnswerRecorder(kernel.root / kernel.source)
    extensions = Extensions(arch, kernel.root / kernel.source, kernel.root)
    triton = TritonLaunches(arch, recorder)
    with drawn(0, "meta"), a_gpu(recorder.events.order), triton.instead(), _instead(extensions):
        question = kernel.question(case)
        make = kernel.host_code(case)
        with recorder:
            call, parameters = make(question)
            extensions.recorder = recorder
            names = _named(recorder, question, parameters)
            recorder.lenient = False
            call()
            recorder.events.clear()
            result = call()  # the second call: the first may have done what this one would then leave out
            recorder.lenient = True
    compiled = [*extensions.ptx, *triton.ptx]
    if not extensions.ptx and any(item.entry in FILLS for item in recorder.events.launches):
        compiled.append(Compiled("#include <torch/extension.h>\n", (), arch).ptx)
    digest = hashlib.sha256("\0".join([*extensions.read, *triton.ptx]).encode()).hexdigest()[:12]
    launches, scratch = _told(kernel, case, recorder, names, result)
    return Answered(launches, scratch, merged(compiled), digest)


def _named(recorder: AnswerRecorder, question: Question, parameters: Mapping[str, torch.Tensor]) -> dict[int, str]:
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
    kernel: Recorded, case: Case, recorder: AnswerRecorder, names: dict[int, str], result: Any
) -> tuple[tuple[Launch, ...], Mapping[str, Output]]:
    events = recorder.events
    if not events.launches:
        raise TorchAnswerError("the answer's second call launches nothing: it returns what it has kept")
    if events.apart:
        raise TorchAnswerError("a kernel is launched on a stream of its own, and nobody waits for it before the return")
    outputs = shapes(kernel, case)[1]
    returned = list(result) if isinstance(result, tuple | list) else [result]
    if len(returned) != len(outputs):
        raise TorchAnswerError(f"the answer returns {len(returned)} things; the problem has {len(outputs)} outputs")
    for (name, wanted), item in zip(outputs.items(), returned, strict=True):
        _place(recorder, names, name, wanted, item)
    scratch = {}
    for number in sorted((buffers_of(events.launches) - names.keys()) & recorder.nbytes.keys()):
        names[number] = f"allocated{number}"
        scratch[names[number]] = Output((recorder.nbytes[number],), "u8")
    return tuple(launches_of(events, names)), scratch


def _place(recorder: AnswerRecorder, names: dict[int, str], name: str, wanted: torch.Tensor, item: Any) -> None:
    if not isinstance(item, torch.Tensor) or item.shape != wanted.shape or item.dtype != wanted.dtype:
        said = f"{item.dtype} of {tuple(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
        raise TorchAnswerError(f"the answer returns {said} for {name}; it is {wanted.dtype} of {tuple(wanted.shape)}")
    number = recorder.known(item)
    if number is None:
        raise TorchAnswerError(f"the answer returns for {name} what no launch has written")
    if number in names:
        raise TorchAnswerError(f"the answer returns {names[number]} for {name}: what it was given, or the same twice")
    if not item.is_contiguous() or item.storage_offset() or recorder.nbytes[number] != item.nbytes:
        raise TorchAnswerError(f"the answer returns for {name} a part of an allocation, or what is not contiguous")
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
    torch.utils.cpp_extension = stub
    try:
        yield
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
