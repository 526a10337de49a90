"""Callables of one's own: what is called, what is refused, and what they have to return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.case import Case, case_of
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.called import Called, subject_of
from fmha.harness.worker.subjects.peers import PeerRefusedError
from tests.worker.adapters import CALLED, adapter_of
from tests.worker.numpy_device import NumpyDevice

DEVICE: Any = NumpyDevice()


def run(adapter: Adapter) -> tuple[Called, Case, Any, Any]:
    subject = subject_of(adapter)
    assert isinstance(subject, Called)
    case = case_of("twice", adapter.fields, {"size": 5})
    variant = subject.variant_for(case, "sm_90a")
    assert isinstance(variant, Variant)
    assert (variant.source, variant.sources) == ("", ())  # nothing is built, and nothing is read for it
    inputs = subject.inputs(0, case)
    return subject, case, subject.run(DEVICE, None, variant, case, inputs), inputs


@pytest.mark.torch
def test_what_is_called_is_measured_and_may_write_its_inputs(tmp_path: Path) -> None:
    subject, case, ran, inputs = run(adapter_of(tmp_path, CALLED))
    measured = subject.measure(case, ran, subject.reference(case, inputs))
    assert (measured.cosine, measured.relative_l2) == (pytest.approx(1.0), 0.0)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ('{"z": x}', "call gives z; the outputs are y"),
        ('{"y": x.float()}', r"call gives y as float32 of \(5,\); the output is bfloat16 of \(5,\)"),
        ('{"y": x[1:]}', r"call gives y as bfloat16 of \(4,\); the output is"),
    ],
    ids=["name", "dtype", "shape"],
)
def test_what_it_has_to_return(tmp_path: Path, made: str, words: str) -> None:
    call = f"""
    def call(self, case, tensors):
        x = tensors["x"]
        return lambda: {made}
    """
    with pytest.raises(ValueError, match=words):
        run(adapter_of(tmp_path, CALLED, call))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"gpu": True}, "twice runs on a GPU alone"), ({"modules": ("nosuch",)}, "needs the module (nosuch|torch)")],
    ids=["gpu", "module"],
)
def test_what_is_not_there_is_no_failure_of_the_callable(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PeerRefusedError, match=words):
        run(adapter_of(tmp_path, CALLED, **changes))


def test_it_may_be_for_some_architectures_alone(tmp_path: Path) -> None:
    subject = subject_of(adapter := adapter_of(tmp_path, CALLED, archs=("sm_90a",)))
    case = case_of("twice", adapter.fields, {"size": 5})
    assert subject.variant_for(case, "sm_100a") == "twice is for sm_90a, not for sm_100a"
    assert isinstance(subject.variant_for(case, "sm_90a"), Variant)
