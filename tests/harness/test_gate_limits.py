"""The limits of matrix.yaml between two fences: what rounding costs passes, small mistakes do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.config import Matrix, load
from fmha.harness.contract.protocol import Configuration
from fmha.harness.judge.gate import judge
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.outputs import Outputs
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.judge.status import Status
from tests.harness import gate_limits
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


@pytest.mark.parametrize(
    ("suite", "every"), [("seed", 3), ("extreme", 3), ("ragged", 3), pytest.param("seed", 1, marks=pytest.mark.nightly)]
)
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


# What has a direction


def biased(matrix: Matrix, configuration: Configuration, mistake: Callable[[Outputs], Outputs]) -> set[str]:
    """The gates that are missed, those of what has a direction among them."""
    inputs = make_inputs(0, configuration)
    measurement = measure(configuration, mistake(faultless(configuration, inputs)), reference(inputs))
    judgement = judge(measurement, (), matrix.thresholds_for(configuration), biases=matrix.biases)
    return {check.name for check in judgement.failed_checks}


def through_fp16(outputs: Outputs) -> Outputs:
    return replace(outputs, o=outputs.o.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("configuration", "mistake", "names"),
    [
        (Configuration(64, 32, 128), lambda out: replace(out, o=out.o * np.float32(1.002)), {"slope_bias"}),
        (Configuration(512, 1, 512), lambda out: replace(out, o=out.o * np.float32(1.002)), {"slope_bias"}),
        (Configuration(512, 32, 128), lambda out: replace(out, lse=out.lse + np.float32(1e-5)), {"lse_bias"}),
        (Configuration(64, 1, 128), lambda out: replace(out, lse=out.lse + np.float32(1e-5)), {"lse_bias"}),
        (Configuration(128, 4, 128), through_fp16, {"coarse"}),
        (replace(SINK, output="fp32"), lambda out: replace(out, o=out.o * np.float32(0.998)), {"slope_bias"}),
    ],
    ids=["scale", "scale of one row", "lse", "lse of one row", "fp16", "sink"],
)
def test_what_is_small_and_systematic_does_not_pass(
    matrix: Matrix, configuration: Configuration, mistake: Callable[[Outputs], Outputs], names: set[str]
) -> None:
    assert biased(matrix, configuration, lambda outputs: outputs) == set()
    assert biased(matrix, configuration, mistake) == names


@pytest.mark.parametrize("head_dim", [64, 128, 256, 512])
def test_probabilities_cut_off_in_place_of_rounded_do_not(
    matrix: Matrix, head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is twice the honest one, and stays below every limit of size."""
    monkeypatch.setattr(gate_limits, "round_to_bf16", lambda p: (p.view(np.uint32) >> 16).astype(np.uint16))
    assert biased(matrix, Configuration(head_dim, 4, 256), lambda outputs: outputs) == {"slope_bias"}


@pytest.mark.parametrize(("suite", "every"), [("seed", 4), ("cover", 12), ("extreme", 5), ("ragged", 5)])
def test_rounding_alone_has_no_direction(matrix: Matrix, suite: str, every: int) -> None:
    for configuration in matrix.suites[suite][::every]:
        assert biased(matrix, configuration, lambda outputs: outputs) == set(), configuration.id


def test_listed_rows_that_are_one_row_share_its_rounding(matrix: Matrix) -> None:
    """Sixty-five entries over three rows: what they do together is three roundings, not sixty-five."""
    item = Configuration(64, 8, 0, topk=65, s_sparse=3, heads=4)
    inputs = make_inputs(0, item)
    few = reference(inputs).slope_variance
    assert few.min() > 5 * reference(make_inputs(0, replace(item, s_sparse=130))).slope_variance.max() / 65
    assert biased(matrix, item, lambda outputs: outputs) == set()


def test_what_lies_between_two_numbers_may_be_either(matrix: Matrix) -> None:
    """Of two keys with one logit O is half a sum of two bf16, which is a tie as often as not."""
    item = Configuration(64, 52, 81, batch=20, heads=5, mask="window", window=2, data="extreme", output="bf16")
    assert biased(matrix, item, lambda outputs: outputs) == set()
    assert biased(matrix, item, lambda outputs: scaled(outputs, 1.002)) == {"slope_bias"}
