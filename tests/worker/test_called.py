"""Callables of one's own: what is called, what is refused, and what they have to return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fmha import CallableKernel, Case, Field, Output, from_bf16, to_bf16
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.case import case_of
from fmha.harness.worker.subjects.called import Called, subject_of
from fmha.harness.worker.subjects.peers import RefusedError
from tests.worker.numpy_device import NumpyDevice

DEVICE: Any = NumpyDevice()


class Twice(CallableKernel):
    """y = 2 x."""

    fields = (Field("n"),)

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
        return {"x": to_bf16(random.standard_normal(case.n))}

    def outputs(self, case: Case) -> dict[str, Output]:
        return {"y": Output((case.n,), "bf16")}

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        return {"y": 2 * from_bf16(inputs["x"])}

    def call(self, case: Case, tensors: Mapping[str, Any]) -> Callable[[], Mapping[str, Any]]:
        return lambda: {"y": tensors["x"].mul_(2)}


def run(kernel: CallableKernel) -> tuple[Called, Case, Any, dict[str, Any]]:
    subject = subject_of("twice", kernel, "twice.py:Twice")
    assert isinstance(subject, Called)
    case = case_of("twice", kernel.fields, {"n": 5})
    variant = subject.variant_for(case, "sm_90a")
    assert isinstance(variant, Variant)
    assert (variant.source, variant.sources) == ("", ())  # nothing is built, and nothing is read for it
    inputs = dict(subject.inputs(0, case))
    return subject, case, subject.run(DEVICE, None, variant, case, inputs), inputs


@pytest.mark.torch
def test_what_is_called_is_measured_and_may_write_its_inputs() -> None:
    subject, case, ran, inputs = run(Twice())
    measured = subject.measure(case, ran, subject.reference(case, inputs))
    assert (measured.cosine, measured.relative_l2) == (pytest.approx(1.0), 0.0)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda x: {"z": x}, "call gives z; the outputs are y"),
        (lambda x: {"y": x.float()}, r"call gives y as float32 of \(5,\); the output is bfloat16 of \(5,\)"),
        (lambda x: {"y": x[1:]}, r"call gives y as bfloat16 of \(4,\); the output is"),
    ],
    ids=["name", "dtype", "shape"],
)
def test_what_it_has_to_return(made: Callable[[Any], Mapping[str, Any]], words: str) -> None:
    class Other(Twice):
        def call(self, case: Case, tensors: Mapping[str, Any]) -> Callable[[], Mapping[str, Any]]:
            return lambda: made(tensors["x"])

    with pytest.raises(ValueError, match=words):
        run(Other())


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"gpu": True}, "twice runs on a GPU alone"), ({"modules": ("nosuch",)}, "needs the module (nosuch|torch)")],
    ids=["gpu", "module"],
)
def test_what_is_not_there_is_no_failure_of_the_callable(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        run(type("Other", (Twice,), changes)())


def test_it_may_be_for_some_architectures_alone() -> None:
    kernel = type("Hopper", (Twice,), {"archs": ("sm_90a",)})()
    subject, case = subject_of("twice", kernel, "twice.py:Twice"), case_of("twice", kernel.fields, {"n": 5})
    assert subject.variant_for(case, "sm_100a") == "twice is for sm_90a, not for sm_100a"
    assert isinstance(subject.variant_for(case, "sm_90a"), Variant)
