from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from fmha.harness.archive import RunRecord
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.judge.comparison.comparison import ALLOWANCE, Comparison, Kind, compare
from fmha.harness.judge.comparison.noise import LEAST_SEEDS, band_of, scaled
from fmha.harness.judge.identity import identity_of
from fmha.harness.judge.limits import Limit
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status
from tests.evidence.records import IDS, VARIANT, accepted, measured, record
from tests.harness.support import GOOD, RACE

SHORT, LONG = IDS


def kinds(comparison: Comparison) -> list[tuple[Kind, str, str]]:
    return [(item.kind, item.subject, item.what) for item in comparison.regressions]


def changed(**outcome: Any) -> RunRecord:
    return record(outcomes={SHORT: outcome})


def test_the_same_run_is_no_regression() -> None:
    assert compare(accepted(record()), record()) == Comparison((), (), 2)


@pytest.mark.parametrize("metric", METRICS)
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


def test_a_record_from_before_a_metric_is_not_worse_for_it() -> None:
    older = changed(**measured(lse_error=None))
    assert kinds(compare(accepted(record()), older)) == []
    assert kinds(compare(older, record())) == []


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


def under(seed: int, factor: float, base: RunRecord) -> RunRecord:
    """A run under a seed of the baseline's noise, whose relative L2 is so much larger than the baseline's under it."""
    assert base.acceptance
    value = base.acceptance.noise[SHORT]["relative_l2"][base.acceptance.seeds.index(seed)]
    outcomes = {name: measured(**{metric: values[seed] for metric, values in base.acceptance.noise[name].items()})
                for name in IDS}  # fmt: skip
    return record(seed=seed, outcomes=outcomes | {SHORT: measured(relative_l2=factor * value)})


def test_a_seed_of_the_baseline_is_compared_with_what_it_measured_under_it() -> None:
    """However far from the others that lies: errors of few rows have tails that twenty seeds do not show."""
    base = accepted(record())
    assert base.acceptance
    values = base.acceptance.noise[SHORT]["relative_l2"]
    values[7] *= 1000.0
    assert band_of("relative_l2", values[:7] + values[8:]).limit(12) < scaled("relative_l2", values[7])
    assert kinds(compare(base, under(7, 1.0, base))) == []
    narrow = accepted(record())
    assert kinds(compare(narrow, under(3, 1.0, narrow))) == []
    assert kinds(compare(narrow, under(3, 30.0, narrow))) == [(Kind.NUMBERS, SHORT, "relative_l2")]


def test_under_a_seed_that_the_baseline_has_not_measured_numbers_are_not_compared() -> None:
    base = accepted(record())
    grown = record(seed=77, outcomes={SHORT: measured(relative_l2=50 * GOOD.relative_l2)})
    found = compare(base, grown)
    assert kinds(found) == []
    assert any(note.startswith("numbers are not compared, gates alone decide") for note in found.notes)


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


def test_a_configuration_that_is_not_run_any_more() -> None:
    smaller = (Kind.JUDGE, "suite", "configurations")
    assert kinds(compare(record(), record(leave_out=[LONG]))) == [smaller, (Kind.NOT_RUN, LONG, "configuration")]
    idle = {"status": Status.NOT_RUN, "reasons": ("no kernel",), "measurement": None}
    assert kinds(compare(record(), record(outcomes={LONG: idle}))) == [(Kind.NOT_RUN, LONG, "run")]
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
    assert [kind for kind, _, _ in found] == [
        Kind.HAZARD, Kind.JUDGE, Kind.NOT_RUN, Kind.NUMBERS, Kind.RESOURCES, Kind.HASH,
    ]  # fmt: skip


def test_what_else_differs_is_noted() -> None:
    notes = compare(record(leave_out=[LONG]), record(seed=3, host="b200")).notes
    assert notes == (
        "1 new configuration(s) that the earlier run does not have",
        "host emulator against ssh",
        "seed 0 against 3",
    )


def gates(**limits: float) -> dict[str, Any]:
    """An outcome's change of some gates: the least cosine, or the most of another figure."""
    held = {"cosine": 0.999996, "lse_error": 1e-4, "spill_bytes": 0.0} | limits
    bounds = {name: "at least" if name == "cosine" else "at most" for name in held}
    return {"limits": {name: Limit(bounds[name], limit) for name, limit in held.items()}}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"cosine": 0.9}, "cosine at least 0.999996 -> 0.9 in 1 configuration(s): hd64_t1_sk128"),
        ({"spill_bytes": 4096}, "spill_bytes at most 0 -> 4096 in 1 configuration(s): hd64_t1_sk128"),
        ({"lse_error": math.nan}, "lse_error at most 0.0001 -> nan in 1 configuration(s): hd64_t1_sk128"),
    ],
)
def test_a_gate_that_was_loosened(limits: dict[str, float], words: str) -> None:
    base = changed(**gates())
    (found,) = compare(base, changed(**gates(**limits))).regressions
    assert (found.kind, found.text) == (Kind.JUDGE, words)
    assert kinds(compare(base, changed(**gates()))) == []


def test_a_gate_that_is_gone_and_one_that_was_tightened() -> None:
    base = changed(**gates(row_sum_error=1e-4))
    comparison = compare(base, changed(**gates(cosine=0.9999999)))
    assert kinds(comparison) == [(Kind.JUDGE, "gate row_sum_error", "row_sum_error")]
    assert "is gated no more" in comparison.regressions[0].text
    assert comparison.notes == (
        "judge gate cosine: cosine at least 0.999996 -> 1 in 1 configuration(s): hd64_t1_sk128",
    )


def test_rules_that_became_lenient() -> None:
    strict, lenient = ({"stats": {"warp_instructions": 9} | more} for more in ({}, {"profile": "lenient"}))
    (found,) = compare(changed(**strict), changed(**lenient)).regressions
    words = "1 configuration(s) are judged by the lenient rules, no longer by the strict: hd64_t1_sk128"
    assert (found.kind, found.text) == (Kind.JUDGE, words)
    back = compare(changed(**lenient), changed(**strict))
    assert (back.regressions, len(back.notes)) == ((), 1)
    assert kinds(compare(changed(**lenient), changed(**lenient))) == []


def test_a_guard_that_was_moved() -> None:
    guarded, other = record(), record(guard=False)
    assert kinds(compare(guarded, other)) == [(Kind.JUDGE, "guard", "guard")]
    assert kinds(compare(other, guarded)) == []


def test_a_judge_that_is_another() -> None:
    measure = "harness/judge/oracle/measure.py"
    files = {measure: "1" * 64, "matrix.yaml": "2" * 64, "emulator/core": "3" * 64}
    base = record(judge=identity_of(files))
    (found,) = compare(base, record(judge=identity_of(files | {measure: "4" * 64}))).regressions
    assert str(found) == "judge changed: harness/judge/oracle/measure.py"
    assert kinds(compare(base, record(judge=identity_of(files)))) == []
    gone = compare(base, record(judge=identity_of({"matrix.yaml": "2" * 64}))).regressions
    assert [item.text for item in gone] == ["emulator/core, harness/judge/oracle/measure.py"]


def test_a_run_that_does_not_say_its_judge_is_told_of() -> None:
    silent = record().model_copy(update={"judge": None})
    assert compare(silent, record()).notes == ("judge unknown: the earlier run does not say by what it was judged",)
    assert compare(silent, silent).notes == ()


@pytest.mark.parametrize("name", ["warp_instructions", "mma", "bulk_load_bytes", "barrier_waits"])
def test_a_counter_that_grew(name: str) -> None:
    def counted(value: int, **outcome: Any) -> RunRecord:
        return changed(stats={name: value, "threads": 1, "seconds": 0.5}, **outcome)

    (found,) = compare(counted(13552), counted(60984)).regressions
    assert (found.kind, found.what) == (Kind.COUNTERS, name)
    assert found.text == f"{name.replace('_', ' ')} 13,552 -> 60,984, x4.5; at most 2% more is allowed"
    assert kinds(compare(counted(10000), counted(int(10000 * (1 + ALLOWANCE))))) == []
    assert kinds(compare(counted(0), counted(1))) == [(Kind.COUNTERS, SHORT, name)]
    assert kinds(compare(counted(13552), counted(13000))) == []


def test_counters_are_compared_with_the_baselines_allowance_and_the_same_inputs() -> None:
    base, more = accepted(changed(stats={"mma": 100, "threads": 1})), {"stats": {"mma": 101, "threads": 2}}
    assert kinds(compare(base, changed(**more))) == []
    assert base.acceptance
    strict = base.model_copy(update={"acceptance": base.acceptance.model_copy(update={"allowances": {"mma": 0.0}})})
    assert kinds(compare(strict, changed(**more))) == [(Kind.COUNTERS, SHORT, "mma")]
    assert kinds(compare(strict, record(seed=1, outcomes={SHORT: more}))) == []
