"""Against mpmath's arithmetic of any precision, and against what SciPy 1.17 gave for the same resamples."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from fmha.harness.judge.comparison.distributions import (
    Array,
    bootstrap_intervals,
    student_quantile,
    student_tail,
    trimmed_mean,
)
from fmha.harness.judge.comparison.speed import TRIM


@pytest.mark.parametrize("freedom", [1, 2, 9, 10, 49, 999])
@pytest.mark.parametrize("t", [0.0, 1e-3, 0.7, 1.0, 3.0, 7.0, 40.0])
def test_the_tail_to_twelve_digits_far_out_too(t: float, freedom: int) -> None:
    with mpmath.workdps(40):
        x = mpmath.mpf(freedom) / (freedom + mpmath.mpf(t) ** 2)
        wanted = float(mpmath.betainc(mpmath.mpf(freedom) / 2, mpmath.mpf(0.5), 0, x, regularized=True) / 2)
    assert student_tail(t, freedom) == pytest.approx(wanted, rel=1e-11)


@pytest.mark.parametrize("freedom", [1, 9, 19, 999])
@pytest.mark.parametrize("tail", [0.49, 0.1, 1e-3, 1e-3 / 2592, 1e-12])
def test_a_quantile_has_its_tail(tail: float, freedom: int) -> None:
    t = student_quantile(tail, freedom)
    assert student_tail(t, freedom) <= tail < student_tail(math.nextafter(t, 0.0), freedom)


def test_quantiles_of_a_table() -> None:
    """NIST's Engineering Statistics Handbook, 1.3.6.7.2."""
    found = [round(student_quantile(tail, freedom), 3) for freedom in (1, 10, 100) for tail in (0.1, 0.025, 0.001)]
    assert found == [3.078, 12.706, 318.309, 1.372, 2.228, 4.144, 1.290, 1.984, 3.174]


@pytest.mark.parametrize(("tail", "freedom"), [(0.0, 5), (0.5, 5), (-1.0, 5), (math.nan, 5), (0.1, 0)])
def test_quantiles_that_are_none(tail: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(tail, freedom)


def middle(samples: Array) -> Array:
    means: Array = trimmed_mean(samples, TRIM)
    return means


def test_intervals_are_those_of_scipy() -> None:
    """stats.bootstrap(method="BCa") of stats.trim_mean over a skewed sample: bias and acceleration both matter."""
    sample = np.exp(np.random.default_rng(5).standard_normal(25))
    narrow, wide = bootstrap_intervals(sample, middle, (0.99, 0.999), 2000, seed=7)
    assert narrow == pytest.approx((0.5376842054283679, 1.529456468516462), rel=1e-13)
    assert wide == pytest.approx((0.48104120860970634, 1.8204461614504575), rel=1e-13)


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        ((low, high),) = bootstrap_intervals(generator.standard_normal(40), middle, (0.9,), 400, seed=trial)
        held += low <= 0.0 <= high
    assert 165 <= held <= 195, "180 are expected, with a standard deviation of 4"


def test_no_interval_where_every_resample_is_the_same() -> None:
    sample = np.array([0.0] * 39 + [1.0])  # the one that differs is always trimmed away
    ((low, high),) = bootstrap_intervals(sample, middle, (0.99,), 100, seed=0)
    assert math.isnan(low)
    assert math.isnan(high)


def test_trimmed_means_cut_both_ends_of_every_sample() -> None:
    samples = np.array([[9.0, 1.0, 2.0, 3.0, -50.0], [1.0, 1.0, 1.0, 1.0, 6.0]])
    assert trimmed_mean(samples, 0.2).tolist() == [2.0, 1.0]
    assert trimmed_mean(samples, 0.0).tolist() == [-7.0, 2.0]
