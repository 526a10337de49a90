from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.archive.record import Timing
from fmha.harness.judge.comparison.comparison import Kind, compare
from fmha.harness.judge.comparison.speed import LEAST_ROUNDS, SpeedVerdict, judge
from fmha.harness.worker.devices.nvml import sm_clock
from fmha.harness.worker.launch.interleave import interleave
from tests.evidence.records import IDS, record
from tests.evidence.speed_rates import DISTURBANCES, bimodal, drifting, preempted, quiet, verdicts

TRIALS = 20


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda item: item.__name__)
def test_equal_builds_are_not_told_apart(disturbance) -> None:  # type: ignore[no-untyped-def]
    found = verdicts(disturbance, 0.0, TRIALS)
    assert found[SpeedVerdict.SLOWER] + found[SpeedVerdict.FASTER] <= 1
    if disturbance in (quiet, drifting):
        assert found[SpeedVerdict.SAME] >= TRIALS // 2


@pytest.mark.parametrize("disturbance", [quiet, drifting], ids=lambda item: item.__name__)
@pytest.mark.parametrize("truth", [0.03, 0.10])
def test_a_difference_is_seen_through_what_disturbs(disturbance, truth: float) -> None:  # type: ignore[no-untyped-def]
    assert verdicts(disturbance, truth, TRIALS)[SpeedVerdict.SLOWER] == TRIALS


@pytest.mark.parametrize("disturbance", [bimodal, preempted], ids=lambda item: item.__name__)
def test_what_disturbs_makes_a_difference_ambiguous_at_worst(disturbance) -> None:  # type: ignore[no-untyped-def]
    found = verdicts(disturbance, 0.10, TRIALS)
    assert found[SpeedVerdict.SLOWER] + found[SpeedVerdict.AMBIGUOUS] == TRIALS
    assert found[SpeedVerdict.SLOWER] >= TRIALS // 2


def test_a_drift_that_is_not_interleaved_would_be_taken_for_a_difference() -> None:
    """What interleaving is for: the same times, but all of one build first."""
    drift = np.linspace(1.0, 1.1, 80)
    assert judge((1e-4 * drift[:40]).tolist(), (1e-4 * drift[40:]).tolist(), seed=0).verdict is SpeedVerdict.SLOWER
    assert judge((1e-4 * drift[::2]).tolist(), (1e-4 * drift[1::2]).tolist(), seed=0).verdict is SpeedVerdict.SAME


def test_faster_is_slower_the_other_way() -> None:
    base = [1e-4 * (1 + 0.002 * (n % 5)) for n in range(40)]
    new = [1.05 * value * (1 + 0.001 * (n % 3)) for n, value in enumerate(base)]
    slower, faster = judge(base, new, seed=0), judge(new, base, seed=0)
    assert (slower.verdict, faster.verdict) == (SpeedVerdict.SLOWER, SpeedVerdict.FASTER)
    assert slower.low <= slower.change <= slower.high
    assert slower.change == pytest.approx(0.05, abs=0.005)


def test_clocks_that_explain_a_difference_make_it_ambiguous() -> None:
    base = [1e-4 * (1 + 0.001 * (n % 3)) for n in range(40)]
    new = [value * 1.05 for value in base]
    judged = judge(base, new, [1980.0] * 40, [1885.0] * 40, seed=0)
    assert (judged.verdict, judged.reason) == (SpeedVerdict.AMBIGUOUS, "the SM clock differed between the two")
    against = judge(base, new, [1885.0] * 40, [1980.0] * 40, seed=0)
    assert against.verdict is SpeedVerdict.SLOWER, "slower in spite of a higher clock"


def test_few_rounds_say_nothing() -> None:
    few = [1e-4] * (LEAST_ROUNDS - 1)
    assert judge(few, few, seed=0).verdict is SpeedVerdict.AMBIGUOUS


def test_a_clock_too_coarse_to_differ() -> None:
    assert judge([1e-4] * 20, [1e-4] * 20, seed=0).verdict is SpeedVerdict.SAME
    assert judge([1e-4] * 20, [2e-4] * 20, seed=0).verdict is SpeedVerdict.SLOWER


@pytest.mark.parametrize(("base", "new"), [([], []), ([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_times_that_are_none(base: list[float], new: list[float]) -> None:
    with pytest.raises(ValueError, match=r"rounds|positive"):
        judge(base, new, seed=0)


def test_rounds_are_interleaved_in_random_order() -> None:
    calls: list[str] = []
    times = itertools.count(1)

    def side(name: str) -> float:
        calls.append(name)
        return float(next(times))

    found = interleave(lambda: side("base"), lambda: side("new"), 50, lambda: 1755.0, seed=3)
    assert len(found.base) == len(found.new) == len(found.base_clock) == len(found.new_clock) == 50
    pairs = [tuple(calls[at : at + 2]) for at in range(0, len(calls), 2)]
    assert {frozenset(pair) for pair in pairs} == {frozenset(("base", "new"))}
    assert 10 < pairs.count(("base", "new")) < 40
    assert min(found.base + found.new) > 2, "the first round warms up"


def test_a_clock_that_cannot_be_read_leaves_none() -> None:
    found = interleave(lambda: 1.0, lambda: 1.0, 3, lambda: None, seed=0)
    assert found.base_clock == []
    clock = sm_clock()()
    assert clock is None or clock > 0


def test_what_was_measured_on_an_h200(repository: Path) -> None:
    """Equal against equal raised no alarm, and differences from 3% up were all seen."""
    runs = json.loads((repository / "results" / "speed-h200.json").read_text())["runs"]
    found = [
        (run["slower"], judge(run["base"], run["new"], run["base_clock"], run["new_clock"], seed=0).verdict)
        for run in runs
    ]
    assert [verdict for slower, verdict in found if slower == 0.0] == [SpeedVerdict.SAME] * 20
    assert [verdict for slower, verdict in found if slower >= 0.03] == [SpeedVerdict.SLOWER] * 40


def test_a_slower_build_is_a_regression() -> None:
    new = record()
    timing = Timing(
        seconds=[1.05e-4 + n * 1e-8 for n in range(20)],
        clock_mhz=[],
        bytes_moved=None,
        operations=None,
        bytes_per_second=None,
        operations_per_second=None,
        beside="0" * 40,
        beside_seconds=[1e-4] * 20,
        beside_clock_mhz=[],
    )
    items = [new.configurations[0].model_copy(update={"timing": timing}), *new.configurations[1:]]
    (found,) = compare(record(), new.model_copy(update={"configurations": items})).regressions
    assert (found.kind, found.subject) == (Kind.SPEED, IDS[0])
    assert found.text.startswith("SLOWER +5.")
