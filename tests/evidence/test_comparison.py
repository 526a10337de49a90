from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.archive import RunRecord
from harness.archive.record import Acceptance
from harness.evidence.comparison import Comparison, Kind, compare
from harness.evidence.noise import FLOORS, LEAST_SEEDS, band_of, scaled, values_of
from harness.status import Status
from harness.worker.protocol import FindingRecord
from tests.evidence.records import IDS, VARIANT, measured, record
from tests.harness.support import GOOD, RACE

SHORT, LONG = IDS


def accepted(base: RunRecord, spread: float = 0.1, seeds: int = 20) -> RunRecord:
    """The record as a baseline whose errors vary by a factor of exp(spread), one standard deviation."""
    generator = random.Random(0)

    def varied(metric: str, value: float) -> list[float]:
        error = 1 - value if metric == "cosine" else value
        errors = [error * math.exp(generator.gauss(0, spread)) for _ in range(seeds)]
        return [1 - item for item in errors] if metric == "cosine" else errors

    noise = {
        item.id: {metric: varied(metric, value) for metric, value in values_of(item.metrics).items()}
        for item in base.configurations
        if item.metrics
    }
    acceptance = Acceptance(
        why="test",
        accepted=datetime.now(UTC),
        by="t",
        replaces=None,
        deterministic=True,
        seeds=list(range(seeds)),
        noise=noise,
    )
    return base.model_copy(update={"acceptance": acceptance})


def kinds(comparison: Comparison) -> list[tuple[Kind, str, str]]:
    return [(item.kind, item.subject, item.what) for item in comparison.regressions]


def changed(**outcome: Any) -> RunRecord:
    return record(outcomes={SHORT: outcome})


def test_the_same_run_is_no_regression() -> None:
    assert compare(accepted(record()), record()) == Comparison((), (), 2)


@pytest.mark.parametrize("metric", FLOORS)
def test_an_error_that_grew_beyond_the_noise(metric: str) -> None:
    base = accepted(record())
    error = 1 - GOOD.cosine if metric == "cosine" else getattr(GOOD, metric)
    for factor, found in ((1.2, False), (60.0, True)):
        value = 1 - factor * error if metric == "cosine" else factor * error
        new = changed(**measured(**{metric: value}))
        assert kinds(compare(base, new)) == ([(Kind.NUMBERS, SHORT, metric)] if found else [])


def test_less_noise_sees_smaller_changes() -> None:
    new = changed(**measured(relative_l2=1.5 * GOOD.relative_l2))
    assert kinds(compare(accepted(record(), spread=0.03), new)) == [(Kind.NUMBERS, SHORT, "relative_l2")]
    assert kinds(compare(accepted(record(), spread=0.3), new)) == []


def test_an_improvement_is_no_regression() -> None:
    assert kinds(compare(accepted(record()), changed(**measured(relative_l2=1e-5)))) == []


def test_what_is_not_finite_is_worse_than_anything() -> None:
    new = changed(**measured(cosine=math.nan))
    assert kinds(compare(accepted(record()), new)) == [(Kind.NUMBERS, SHORT, "cosine")]


def test_without_noise_a_plain_factor_decides() -> None:
    grown = measured(relative_l2=2 * GOOD.relative_l2)
    assert kinds(compare(record(), changed(**grown))) == [(Kind.NUMBERS, SHORT, "relative_l2")]
    other_seed = record(seed=5, outcomes={SHORT: grown})
    assert kinds(compare(record(), other_seed)) == []
    assert kinds(compare(record(), record(seed=5, outcomes={SHORT: measured(relative_l2=4 * GOOD.relative_l2)})))


def test_few_seeds_are_no_noise() -> None:
    few = accepted(record(), seeds=LEAST_SEEDS - 1)
    grown = changed(**measured(relative_l2=1.5 * GOOD.relative_l2))
    (found,) = compare(few, grown).regressions
    assert "noise not measured" in found.text


def test_false_alarms_are_as_rare_as_the_page_says() -> None:
    """With normal noise on the scale of the comparison; 2 of 2,000 runs are expected."""
    generator = random.Random(1)
    alarms = 0
    for _ in range(2000):
        values = [math.exp(generator.gauss(-6, 0.3)) for _ in range(21)]
        comparisons = 1
        band = band_of("relative_l2", values[:20])
        alarms += scaled("relative_l2", values[20]) > band.limit(comparisons)
    assert alarms <= 8


def test_other_bits_from_the_same_inputs() -> None:
    new = {"measurement": replace(GOOD, output_hash="1" * 64)}
    assert kinds(compare(record(), changed(**new))) == [(Kind.HASH, SHORT, "output_hash")]
    assert kinds(compare(record(), record(seed=5, outcomes={SHORT: new}))) == []
    assert kinds(compare(record(), record(host="b200", outcomes={SHORT: new}))) == []
    silicon = record(outcomes={SHORT: new})
    silicon = silicon.model_copy(update={"host": silicon.host.model_copy(update={"mma_sums": "silicon"})})
    assert kinds(compare(record(), silicon)) == []
    assert "sums of MMAs fast against silicon" in compare(record(), silicon).notes


def test_a_hazard_that_appeared() -> None:
    old = FindingRecord("known", "warning", "as ever", {})
    warning = FindingRecord("mma-order", "warning", "new", {"source": "kernel/a.cu:3"})
    base = changed(findings=(old,))
    assert kinds(compare(base, changed(findings=(old, old)))) == []
    found = compare(base, changed(findings=(old, warning, RACE))).regressions
    assert [(item.what, item.text) for item in found] == [
        ("mma-order", "warning mma-order: new (kernel/a.cu:3)"),
        ("tmem-race", f"error tmem-race: {RACE.message}"),
    ]


def test_a_configuration_that_vanished() -> None:
    assert kinds(compare(record(), record(leave_out=[LONG]))) == [(Kind.VANISHED, LONG, "configuration")]
    idle = {"status": Status.NOT_RUN, "reasons": ("no kernel",), "measurement": None}
    assert kinds(compare(record(), record(outcomes={LONG: idle}))) == [(Kind.VANISHED, LONG, "configuration")]
    assert kinds(compare(record(outcomes={LONG: idle}), record(leave_out=[LONG]))) == []
    assert kinds(compare(record(), record(leave_out=[LONG]), expected={SHORT})) == []


def test_a_status_that_turned_red() -> None:
    red = {"status": Status.TIMEOUT, "reasons": ("silent for 3 s",), "measurement": None}
    (found,) = compare(record(), changed(**red)).regressions
    assert (found.kind, found.text) == (Kind.STATUS, "pass -> timeout: silent for 3 s")
    assert kinds(compare(changed(**red), changed(**red))) == []


@pytest.mark.parametrize("name", ["registers", "spill_stores", "spill_loads", "stack", "shared_static"])
def test_a_resource_that_grew(name: str) -> None:
    base = record(resources={name: 8})
    assert kinds(compare(base, record(resources={name: 9}))) == [(Kind.RESOURCES, VARIANT.name, name)]
    assert kinds(compare(base, record(resources={name: 7}))) == []


def test_the_gravest_comes_first() -> None:
    worse = {"findings": (RACE,), **measured(output_hash="1" * 64, cosine=0.9)}
    found = kinds(compare(record(), record(outcomes={SHORT: worse}, leave_out=[LONG], resources={"registers": 200})))
    assert [kind for kind, _, _ in found] == [Kind.HAZARD, Kind.VANISHED, Kind.NUMBERS, Kind.RESOURCES, Kind.HASH]


def test_what_else_differs_is_noted() -> None:
    notes = compare(record(leave_out=[LONG]), record(seed=3, host="b200")).notes
    assert notes == (
        "1 new configuration(s) that the earlier run does not have",
        "host emulator against ssh",
        "seed 0 against 3",
    )
