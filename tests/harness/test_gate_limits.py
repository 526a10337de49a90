"""The limits of matrix.yaml between two fences: what rounding costs passes, small mistakes do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.config import Matrix, load
from fmha.harness.reference import reference
from fmha.harness.stages.gate import judge
from fmha.harness.status import Status
from fmha.harness.worker.bf16 import round_to_bf16
from fmha.harness.worker.inputs import make_inputs
from fmha.harness.worker.measure import measure
from fmha.harness.worker.protocol import Configuration
from fmha.harness.worker.run import Outputs
from tests.harness.gate_limits import faultless

MASKED = Configuration(64, 32, 384, mask="window", window=128)


@pytest.fixture(scope="module")
def matrix(repository: Path) -> Matrix:
    return load(repository)


def failed(
    matrix: Matrix, configuration: Configuration, mistake: Callable[[Outputs], Outputs], seed: int = 0
) -> set[str]:
    inputs = make_inputs(0, configuration)
    measurement = measure(configuration, mistake(faultless(configuration, inputs)), reference(inputs))
    judgement = judge(measurement, (), matrix.thresholds_for(configuration))
    assert (judgement.status is Status.PASS) == (not judgement.failed_checks)
    return {check.name for check in judgement.failed_checks}


@pytest.mark.parametrize(("suite", "every"), [("seed", 1), ("extreme", 3), ("ragged", 3)])
def test_rounding_alone_passes(matrix: Matrix, suite: str, every: int) -> None:
    for configuration in matrix.suites[suite][::every]:
        assert failed(matrix, configuration, lambda outputs: outputs) == set(), configuration.id


def spoiled(outputs: Outputs) -> Outputs:
    """Softmax over one key less in the last row: a mask that is off by one."""
    o, row_sum = outputs.o.copy(), outputs.row_sum.copy()
    o[0, -1] *= np.float32(0.99)
    row_sum[0, -1] *= np.float32(0.98)
    return replace(outputs, o=o, row_sum=row_sum)


@pytest.mark.parametrize(
    ("mistake", "names"),
    [
        (lambda out: replace(out, o=out.o * np.float32(1.01)), {"relative_l2", "max_error"}),
        (lambda out: replace(out, lse=out.lse * np.float32(1 / np.log(2))), {"lse_error"}),
        (lambda out: replace(out, row_max=out.row_max * np.float32(1.001)), {"row_max_error"}),
        (lambda out: replace(out, row_sum=out.row_sum * 2, o=out.o * 2), {"row_sum_error"}),
        (spoiled, {"max_error", "row_sum_error"}),
        (lambda out: replace(out, o=np.roll(out.o, 1, axis=3)), {"cosine", "relative_l2", "max_error"}),
    ],
)
def test_small_mistakes_do_not(matrix: Matrix, mistake: Callable[[Outputs], Outputs], names: set[str]) -> None:
    assert failed(matrix, MASKED, mistake) == names


SINK = replace(MASKED, heads=4, sink="finite", output="bf16")


def scaled(outputs: Outputs, factor: float) -> Outputs:
    return replace(outputs, o=round_to_bf16(outputs.o_values * factor))


@pytest.mark.parametrize(
    ("mistake", "names"),
    [
        (lambda out: scaled(out, 1.01), {"relative_l2", "max_error"}),
        # The sink in LSE as in the denominator: exp(0.01) is a hundredth of a key.
        (lambda out: replace(out, lse=out.lse + np.float32(0.01)), {"lse_error"}),
        (lambda out: replace(out, o=np.roll(out.o, 1, axis=2)), {"cosine", "relative_l2", "max_error"}),
    ],
)
def test_small_mistakes_in_normalised_bf16_do_not(
    matrix: Matrix, mistake: Callable[[Outputs], Outputs], names: set[str]
) -> None:
    assert failed(matrix, SINK, mistake) == names


def test_a_forgotten_sink_does_not(matrix: Matrix) -> None:
    inputs = make_inputs(0, SINK)
    outputs = faultless(SINK, replace(inputs, sink=None))
    assert "relative_l2" in failed(matrix, SINK, lambda _: outputs)


STEPS = Configuration(512, 33, 528, data="steps")


def test_rounding_of_logits_that_step_passes(matrix: Matrix) -> None:
    """S of 144 x sqrt(512) is truncated 32 times in float32, which leaves 1.7e-4 of LSE."""
    assert failed(matrix, STEPS, lambda outputs: outputs) == set()


@pytest.mark.parametrize(
    ("mistake", "names"),
    [
        (lambda out: replace(out, lse=out.lse + np.float32(1e-3)), {"lse_error"}),
        (lambda out: replace(out, row_max=out.row_max * np.float32(1.0001)), {"row_max_error"}),
        (lambda out: replace(out, row_sum=out.row_sum * np.float32(1.0003)), {"row_sum_error"}),
    ],
)
def test_small_mistakes_among_logits_that_step_do_not(
    matrix: Matrix, mistake: Callable[[Outputs], Outputs], names: set[str]
) -> None:
    assert failed(matrix, STEPS, mistake) == names


def test_a_thousandth_of_one_row_s_sum_among_extreme_logits_does_not(matrix: Matrix) -> None:
    def larger(outputs: Outputs) -> Outputs:
        row_sum = outputs.row_sum.copy()
        row_sum[0, 0, 0] *= np.float32(1.001)
        return replace(outputs, row_sum=row_sum)

    assert failed(matrix, Configuration(64, 20, 300, heads=4, data="extreme"), larger) == {"row_sum_error"}
