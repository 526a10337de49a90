"""Builds that take longer: held against the spread of those before, and never told where that is not known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fmha.harness import archive
from fmha.harness.archive import RunRecord
from fmha.harness.contract.machine import Machine
from fmha.harness.evidence import baseline
from fmha.harness.evidence.bisect import _unmeasured
from fmha.harness.evidence.story import sentence, tell
from fmha.harness.judge.comparison.builds import LEAST_BUILDS
from fmha.harness.judge.comparison.comparison import Kind, Regression, compare
from tests.evidence.planted import later
from tests.evidence.records import VARIANT, accepted, record


def built(seconds: float | None, **changes: Any) -> RunRecord:
    """A later run whose one variant took so long to compile, from other sources; None for one from the cache."""
    new = later(record())
    found = {"processor_seconds": seconds, "cached": seconds is None, "source_hash": "cd" * 32} | changes
    return new.model_copy(update={"variants": [new.variants[0].model_copy(update=found)]})


def base_of(builds: Sequence[float]) -> RunRecord:
    base = accepted(record())
    assert base.acceptance
    acceptance = base.acceptance.model_copy(update={"builds": {VARIANT.name: list(builds)}})
    return base.model_copy(update={"acceptance": acceptance})


def drawn(count: int, deviation: float, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [3 * math.exp(chance.gauss(0, deviation)) for _ in range(count)]


def told(base: RunRecord, new: RunRecord) -> list[Regression]:
    return [item for item in compare(base, new).regressions if item.kind is Kind.BUILD]


def test_a_build_that_takes_three_times_as_long_is_told() -> None:
    base, new = base_of(drawn(12, 0.1)), built(9.0)
    (found,) = told(base, new)
    assert (found.subject, found.what, found.after) == (VARIANT.name, "build_seconds", 9.0)
    assert "-> 9.0 s of processor time, beyond the noise of 12 builds" in found.text
    comparison = compare(base, new)
    words = sentence(tell(comparison, base, new), comparison.compared)
    assert words.startswith("Build time grew ")
    assert words.endswith(f" times in {VARIANT.name}; nothing else got worse")


@pytest.mark.parametrize(
    ("builds", "new"),
    [
        (drawn(12, 0.1), built(None)),
        (drawn(LEAST_BUILDS - 1, 0.1), built(9.0)),
        ([], built(9.0)),
        (drawn(12, 0.1), built(9.0, source_hash=record().variants[0].source_hash)),
        (drawn(12, 0.1), built(9.0, nvcc="nvcc 14.0")),
        (drawn(12, 0.1), built(9.0, flags=["-O0"])),
        (drawn(12, 0.6), built(9.0)),
        (drawn(12, 0.1), built(1.0)),
    ],
    ids=["cached", "few builds", "no builds", "same sources", "another nvcc", "other flags", "much noise", "faster"],
)
def test_what_says_nothing_of_a_build_is_not_told(builds: Sequence[float], new: RunRecord) -> None:
    assert told(base_of(builds), new) == []


def test_another_machine_is_not_compared() -> None:
    new = built(9.0)
    host = new.host.model_copy(update={"machine": Machine(cpu="another", cores=2, system="Linux")})
    assert told(base_of(drawn(12, 0.1)), new.model_copy(update={"host": host})) == []


def test_noise_raises_no_alarm() -> None:
    """Of clean builds, one in a thousand runs may: none of 300 does."""
    chance = random.Random(1)
    alarms = 0
    for seed in range(300):
        alarms += len(told(base_of(drawn(10, 0.12, seed)), built(3 * math.exp(chance.gauss(0, 0.12)))))
    assert alarms == 0


def test_a_baseline_has_the_builds_of_its_hosts_runs(tmp_path: Path) -> None:
    """One a run, whatever the commit; none from the cache, of another compiler or of another host."""
    of_others = [built(2.0, nvcc="nvcc 12.9"), built(None)]
    runs = [built(2.0 + place) for place in range(3)] + of_others
    for place, run in enumerate(runs):
        moved = run.model_copy(update={"started": run.started.replace(hour=place)})
        archive.write(moved, tmp_path)
    moon = built(7.0).model_copy(update={"host": record().host.model_copy(update={"name": "moon"})})
    archive.write(moon, tmp_path)
    found = baseline._builds(built(5.5), tmp_path)
    assert found[VARIANT.name][0] == 5.5
    assert sorted(found[VARIANT.name][1:]) == [2.0, 3.0, 4.0]


def test_a_bisection_skips_a_commit_whose_build_was_there() -> None:
    target = told(base_of(drawn(12, 0.1)), built(9.0))
    assert _unmeasured(built(None), target)
    assert not _unmeasured(built(3.0), target)
