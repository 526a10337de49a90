"""Steps in series: found where they are, with how sure they are, and not found in noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fmha.harness.trends.steps import LevelStep, exact_steps, steps


def noisy(*levels: tuple[int, float], deviation: float = 0.1, seed: int = 7) -> list[float]:
    """So many values of each level. The noise is the seed's, whichever tests ran before."""
    means = np.concatenate([np.full(count, level) for count, level in levels])
    return list(means + np.random.default_rng(seed).normal(0, deviation, len(means)))


def places(values: list[float], most_chance: float = 1e-4) -> list[int]:
    return [step.at for step in steps(values, 0.02, most_chance)]


@pytest.mark.parametrize("at", [10, 40, 59])
def test_a_step_is_found_where_it_is(at: int) -> None:
    """At the last value as well: that is the commit that somebody has just made."""
    (step,) = steps(noisy((at, 0.0), (60 - at, 1.0)), 0.02, 1e-4)
    assert step.at == at
    assert (step.before, step.after) == pytest.approx((0.0, 1.0), abs=0.3)
    assert step.chance < 1e-4


def test_what_was_taken_back_is_two_steps() -> None:
    assert places(noisy((30, 0.0), (1, 1.5), (30, 0.0))) == [30, 31]
    assert places(noisy((200, 0.0), (100, 1.0), (200, 0.0))) == [200, 300]


def test_every_step_of_several_is_found() -> None:
    assert places(noisy((50, 0.0), (50, 1.0), (50, 3.0), (50, 2.0))) == [50, 100, 150]


def test_a_small_step_is_found_if_there_is_enough_of_it() -> None:
    assert places(noisy((5, 0.0), (5, 0.1))) == []
    (at,) = places(noisy((300, 0.0), (300, 0.1)))
    assert abs(at - 300) < 10


def test_noise_has_no_steps() -> None:
    """At one in a hundred, of 500 series about five have one by chance; Bonferroni's bound makes it fewer."""
    found = sum(bool(places(noisy((40, 0.0), seed=seed), 1e-2)) for seed in range(500))
    assert 0 <= found <= 8


def test_a_spread_that_is_small_by_chance_is_no_news() -> None:
    assert places([0.0] * 20 + [0.01] * 20) == []
    assert places([0.0] * 20 + [0.5] * 20) == [20]


def test_few_values_say_nothing() -> None:
    assert [places([0.0] * count) for count in range(6)] == [[]] * 6
    assert places([0.0, 0.0, 0.0, 9.0]) == []


def test_of_what_is_counted_every_change_is_a_step() -> None:
    assert exact_steps([3, 3, 4, 4, 3]) == [LevelStep(2, 3, 4, 0.0), LevelStep(4, 4, 3, 0.0)]
    assert exact_steps([]) == exact_steps([5]) == []


def test_levels_join() -> None:
    found = steps(noisy((50, 0.0), (50, 2.0), (50, -1.0)), 0.02, 1e-4)
    assert all(a.after == b.before for a, b in itertools.pairwise(found))
