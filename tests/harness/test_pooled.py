"""What no configuration shows alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fmha.harness.contract.protocol import Bias, Configuration
from fmha.harness.judge.limits import Biases
from fmha.harness.judge.pooled import figures, pooled
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.stages.outcome import Outcome, Step
from tests.harness.support import GOOD

BIASES = Biases(slope_bias=5, lse_bias=2, coarse=0.5, pooled_slope=5, pooled_lse=1)
HONEST = Bias(slope=0.0, slope_deviation=2e-4, slope_bias=0.0, lse_bias=0.5, lse_mean=0.3, coarse=0.0)


def run(changed: dict[int, Bias], status: Status = Status.PASS) -> list[Outcome]:
    """Four configurations each of t 1 and 32 at two head_dims, honest but for those whose t is given."""
    return [
        Outcome(
            Step(Configuration(head_dim, t, keys), False, True, VARIANTS[0]),
            status,
            measurement=replace(GOOD, bias=changed.get(t, HONEST)),
            drawn=replace(GOOD, bias=changed.get(t, HONEST)),
        )
        for head_dim in (64, 128)
        for t in (1, 32)
        for keys in (128, 256, 384, 512)
    ]


def test_honest_roundings_are_no_bias() -> None:
    found = pooled(run({}), BIASES)
    assert {figure.name for figure in found} == {"pooled_slope", "pooled_lse"}
    assert not any(figure.missed for figure in found)
    assert {figure.group for figure in found} == {f"variant {VARIANTS[0].name}"}


def test_a_scale_that_each_configuration_lets_pass_is_told_by_what_they_share() -> None:
    """Three deviations each, the same way: 16 measurements of t=1 make it 12."""
    missed = [figure for figure in pooled(run({1: replace(HONEST, slope=6e-4)}), BIASES) if figure.missed]
    assert "t=1" in {figure.group for figure in missed}
    assert "t=32" not in {figure.group for figure in missed}
    told = next(figure for figure in missed if figure.group == "t=1")
    assert told.value == pytest.approx(6e-4 / math.hypot(2e-4 / 4, 2e-5))
    assert str(told).startswith("t=1: O is 1.000600 times the reference's, 11.1 deviations")


def test_roundings_of_both_signs_are_no_bias() -> None:
    up, down = run({1: replace(HONEST, slope=6e-4)}), run({1: replace(HONEST, slope=-6e-4)})
    mixed = [*up[:8], *down[8:]]
    assert "t=1" not in {figure.group for figure in pooled(mixed, BIASES) if figure.missed}


def test_an_lse_that_is_always_a_little_large_is_told() -> None:
    missed = {figure.group for figure in pooled(run({32: replace(HONEST, lse_mean=1.5)}), BIASES) if figure.missed}
    assert "t=32" in missed
    assert "t=1" not in missed


def test_what_is_no_number_misses() -> None:
    assert any(figure.missed for figure in pooled(run({1: replace(HONEST, lse_mean=math.nan)}), BIASES))


def test_what_failed_by_itself_is_not_told_again() -> None:
    assert pooled(run({1: replace(HONEST, slope=1.0)}, Status.FAIL), BIASES) == ()


def test_a_configuration_alone_has_gates_of_its_own() -> None:
    assert list(figures(run({})[:1], BIASES)) == []


def test_without_limits_nothing_is_pooled() -> None:
    assert pooled(run({1: replace(HONEST, slope=1.0)}), None) == ()
