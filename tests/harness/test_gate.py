from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from fmha.harness.contract.protocol import Bias, BuildResult, FindingRecord, LaunchShape, Resources, Variant
from fmha.harness.errors import ExitCode
from fmha.harness.judge.gate import judge
from fmha.harness.judge.gate import limits as gates
from fmha.harness.judge.limits import Biases, ResourceLimits, Thresholds
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status, exit_code
from tests.figures import limits, measurement

GATES = limits(relative_l2=4e-3, max_error=5e-3, row_max_error=2e-4, row_sum_error=3e-4)
LIMITS = Thresholds(GATES)
AT_THE_LIMIT = measurement(
    **GATES, output_hash="", bias=Bias(1e-4, 1e-4, slope_bias=5, lse_bias=2, lse_mean=0.5, coarse=0.5)
)
BIASES = Biases(slope_bias=5, lse_bias=2, coarse=0.5, pooled_slope=5, pooled_lse=1)
ERROR = FindingRecord("rule", "error", "message")
WARNING = FindingRecord("rule", "warning", "message")


def test_the_limit_itself_passes() -> None:
    assert judge(AT_THE_LIMIT, (), LIMITS).status is Status.PASS


def test_warnings_pass() -> None:
    assert judge(AT_THE_LIMIT, (WARNING,), LIMITS).status is Status.PASS


@pytest.mark.parametrize(
    ("changes", "findings", "status", "failed"),
    [
        ({"cosine": 0.999989}, (), Status.FAIL, ["cosine"]),
        ({"relative_l2": 4.1e-3}, (), Status.FAIL, ["relative_l2"]),
        ({"max_error": 5.1e-3}, (), Status.FAIL, ["max_error"]),
        ({"lse_error": 1.1e-4}, (), Status.FAIL, ["lse_error"]),
        ({"row_max_error": 2.1e-4}, (), Status.FAIL, ["row_max_error"]),
        ({"row_sum_error": 3.1e-4}, (), Status.FAIL, ["row_sum_error"]),
        ({"unwritten": 1}, (), Status.FAIL, ["unwritten"]),
        ({"nonfinite_mismatches": 1}, (), Status.FAIL, ["nonfinite_mismatches"]),
        ({}, (WARNING, ERROR), Status.HAZARD, ["hazards"]),
        ({"cosine": 0.5}, (ERROR,), Status.HAZARD, ["hazards", "cosine"]),
        ({"unwritten": 1}, (ERROR,), Status.FAIL, ["unwritten", "hazards"]),
        ({"nonfinite_mismatches": 2, "cosine": math.nan}, (), Status.FAIL, ["nonfinite_mismatches", "cosine"]),
    ],
)
def test_each_gate_alone_and_their_order(
    changes: dict[str, float], findings: Sequence[FindingRecord], status: Status, failed: list[str]
) -> None:
    judgement = judge(replace(AT_THE_LIMIT, **changes), findings, LIMITS)
    assert judgement.status is status
    assert [check.name for check in judgement.failed_checks] == failed


@pytest.mark.parametrize("name", ["slope_bias", "lse_bias", "coarse"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 5.1])
def test_what_has_a_direction_is_gated(name: str, value: float) -> None:
    biased = replace(AT_THE_LIMIT, bias=replace(AT_THE_LIMIT.bias, **{name: value}))
    assert judge(AT_THE_LIMIT, (), LIMITS, biases=BIASES).status is Status.PASS
    assert [check.name for check in judge(biased, (), LIMITS, biases=BIASES).failed_checks] == [name]
    assert judge(biased, (), LIMITS).status is Status.PASS  # a matrix.yaml that does not ask for it


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_passes_no_gate(name: str, value: float) -> None:
    judgement = judge(replace(AT_THE_LIMIT, **{name: value}), (), LIMITS)
    assert judgement.status is Status.FAIL
    assert [check.name for check in judgement.failed_checks] == [name]


def test_a_check_says_what_was_required() -> None:
    low, high = judge(replace(AT_THE_LIMIT, cosine=math.nan, lse_error=0.69), (), LIMITS).failed_checks
    assert str(low) == "cosine is nan; at least 0.99999 is required"
    assert str(high) == "lse_error is 0.69; at most 0.0001 is required"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], ExitCode.USAGE),
        ([Status.PASS], ExitCode.PASS),
        ([Status.PASS, Status.NOT_RUN], ExitCode.INCOMPLETE),
        ([Status.NOT_RUN, Status.INFRA_ERROR, Status.PASS], ExitCode.INFRASTRUCTURE),
        *(
            ([Status.PASS, Status.NOT_RUN, Status.INFRA_ERROR, red], ExitCode.GATE_FAILED)
            for red in (Status.FAIL, Status.HAZARD, Status.TIMEOUT, Status.CRASH, Status.BUILD_ERROR)
        ),
    ],
)
def test_statuses_add_up_to_an_exit_code(statuses: list[Status], code: ExitCode) -> None:
    assert exit_code(statuses) is code
    assert exit_code(reversed(statuses)) is code


USED = Resources(registers=168, spill_stores=0, spill_loads=0, stack=8, shared_static=24)
VARIANT = Variant("v", "sm_100a", "a.cu", "e", 64, "tmem", LaunchShape(128, 128, 2, 192, 1000), combine="c")
BUILT = BuildResult(VARIANT, "", "", USED, "", "nvcc", (), 0.0, False, combine_resources=USED)
MOST = ResourceLimits(registers=168, spill_bytes=0, stack_bytes=8, shared_bytes=1024)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, []),
        ({"registers": 169}, ["registers"]),
        ({"spill_stores": 4}, ["spill_bytes"]),
        ({"spill_loads": 4}, ["spill_bytes"]),
        ({"stack": 16}, ["stack_bytes"]),
        ({"shared_static": 25}, ["shared_bytes"]),
    ],
)
def test_what_a_kernel_uses_is_gated(changes: dict[str, int], failed: list[str]) -> None:
    judgement = judge(AT_THE_LIMIT, (), LIMITS, MOST, replace(BUILT, resources=replace(USED, **changes)))
    assert judgement.status is (Status.FAIL if failed else Status.PASS)
    assert [check.name for check in judgement.failed_checks] == failed


def test_so_is_what_its_combine_kernel_uses() -> None:
    spilling = replace(BUILT, combine_resources=replace(USED, spill_loads=4, shared_static=1025))
    failed = judge(AT_THE_LIMIT, (), LIMITS, MOST, spilling).failed_checks
    assert [check.name for check in failed] == ["combine_spill_bytes", "combine_shared_bytes"]
    assert judge(AT_THE_LIMIT, (), LIMITS, MOST, replace(BUILT, combine_resources=None)).status is Status.PASS


def test_a_kernel_without_its_figures_did_not_pass_them() -> None:
    silent = judge(AT_THE_LIMIT, (), LIMITS, MOST, replace(BUILT, resources=None))
    assert {check.name for check in silent.failed_checks} == {f"{name}" for name in asdict(MOST)}


def test_every_gate_has_its_limit_on_record() -> None:
    """What is recorded is the very list that was gone through: a figure that is gated has a limit there."""
    held = {name: item.limit for name, item in gates(LIMITS, MOST, BUILT).items()}
    named = {**LIMITS.limits} | asdict(MOST) | {f"combine_{name}": value for name, value in asdict(MOST).items()}
    assert held == named | {"unwritten": 0, "nonfinite_mismatches": 0, "hazards": 0}
