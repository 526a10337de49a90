from __future__ import annotations

import pytest

from fmha.harness.evidence.baseline import as_baseline, kept_noise
from fmha.harness.judge.comparison.comparison import compare
from fmha.harness.judge.limits import Limit
from fmha.harness.judge.status import Status
from tests.evidence.records import IDS, accepted, measured, record
from tests.harness.support import GOOD

SHORT, LONG = IDS
SEEDS = list(range(20))


def test_a_baseline_leaves_out_what_was_measured_on_the_drawn_seed() -> None:
    run, made = record(outcomes={SHORT: {"drawn": GOOD}}), accepted(record())
    assert made.acceptance is not None
    base = as_baseline(run, made.acceptance)
    assert [item.drawn for item in base.configurations] == [None, None]
    assert [item.drawn for item in run.configurations] == [GOOD, None]
    assert base.acceptance == made.acceptance
    assert [item.metrics for item in base.configurations] == [item.metrics for item in run.configurations]
    assert compare(base, run).regressions == ()


def test_noise_is_kept_where_nothing_has_changed() -> None:
    base = accepted(record())
    assert base.acceptance is not None
    assert kept_noise(record(sha="1" * 40, minutes=1), base, SEEDS) == base.acceptance.noise


@pytest.mark.parametrize(
    "outcome",
    [
        measured(output_hash="f" * 16),
        measured(relative_l2=GOOD.relative_l2 * 1.0001),
        {"status": Status.FAIL},
        {"status": Status.CRASH, "measurement": None},
    ],
    ids=["other bits", "another figure", "missed a gate", "gave nothing"],
)
def test_noise_is_measured_where_something_has_changed(outcome: dict[str, object]) -> None:
    assert set(kept_noise(record(outcomes={SHORT: outcome}), accepted(record()), SEEDS)) == {LONG}


def test_noise_is_measured_where_the_baseline_has_none() -> None:
    """A configuration that is new, or that missed a gate under another seed then."""
    assert set(kept_noise(record(), accepted(record(leave_out=[SHORT])), SEEDS)) == {LONG}
    base = accepted(record())
    assert base.acceptance is not None
    base.acceptance.noise.pop(LONG)
    assert set(kept_noise(record(), base, SEEDS)) == {SHORT}


def test_noise_of_other_seeds_is_not_kept() -> None:
    assert kept_noise(record(), accepted(record()), SEEDS[:10]) == {}
    assert kept_noise(record(), record(), SEEDS) == {}  # no baseline


def test_noise_under_another_limit_is_not_kept() -> None:
    """Under it other configurations may miss a gate under a seed, and have no noise then."""
    strict, loose = ({"cosine": Limit("at least", limit)} for limit in (0.9999, 0.99))
    base = accepted(record(outcomes={name: {"limits": strict} for name in IDS}))
    assert set(kept_noise(record(outcomes={SHORT: {"limits": loose}, LONG: {"limits": strict}}), base, SEEDS)) == {LONG}
