"""Series over commits, from records and git: the order, the steps, what is read again, the odd GPU out."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmha.harness import archive
from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import Acceptance, Timing
from fmha.harness.archive.record_files import _checksum
from fmha.harness.contract.machine import Gpu
from fmha.harness.judge.comparison.comparison import Kind
from fmha.harness.trends.ancestry import ordered
from fmha.harness.trends.baselines import baselines
from fmha.harness.trends.extract import CACHE_FILE, RunFacts, facts
from fmha.harness.trends.gpu_outliers import gpus
from fmha.harness.trends.series import Trends, trends
from tests.evidence.records import IDS, STARTED, VARIANT, archived, measured, record
from tests.harness.support import GOOD
from tests.trends.conftest import repository

SUBJECTS = [f"Change {number}" for number in range(12)]


def test_commits_are_in_the_order_of_ancestry(tmp_path: Path) -> None:
    shas = repository(tmp_path, SUBJECTS)
    first = {sha: f"2026-01-{30 - place:02}" for place, sha in enumerate(shas)} | {"f" * 40: "2026-03-01"}
    found = ordered(tmp_path, first)
    assert [item.sha for item in found] == ["f" * 40, *shas]
    assert [item.subject for item in found] == ["", *SUBJECTS]
    assert [item.known for item in found] == [False] + [True] * 12
    assert [item.sha for item in found if item.tags == ("v1",)] == [shas[1]]


def test_where_there_is_no_repository_the_runs_say_the_order(tmp_path: Path) -> None:
    found = ordered(tmp_path, {"a" * 40: "2026-02-02", "b" * 40: "2026-01-01"})
    assert [item.sha[0] for item in found] == ["b", "a"]


def test_a_record_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = archived(tmp_path, 3)
    assert [item.name for item in facts(tmp_path)[0]] == [path.name for path in paths]
    monkeypatch.setattr("fmha.harness.trends.extract.document", lambda path: pytest.fail(f"{path} is read again"))
    assert len(facts(tmp_path)[0]) == 3
    paths[0].unlink()
    assert len(facts(tmp_path)[0]) == 2
    monkeypatch.undo()
    paths[1].write_text("{")
    good, bad = facts(tmp_path)
    assert ([item.name for item in good], list(bad)) == ([paths[2].name], [paths[1].name])
    (tmp_path / CACHE_FILE).write_bytes(b"no database")
    assert len(facts(tmp_path)[0]) == 1


@pytest.mark.parametrize(
    "harm", [lambda data: data.pop("configurations"), lambda data: data["configurations"].append(3)], ids=["cut", "odd"]
)
def test_a_file_that_is_no_record_stops_nothing(tmp_path: Path, harm: Any) -> None:
    good, bad = archived(tmp_path, 2)
    data = json.loads(bad.read_text())
    harm(data)
    data["checksum"] = _checksum(data)
    bad.write_text(json.dumps(data))
    found, broken = facts(tmp_path)
    assert [item.name for item in found] == [good.name]
    assert broken[bad.name].startswith("is no run record")


def walked(folder: Path, make: Any) -> Trends:
    shas = repository(folder, SUBJECTS)
    for place, sha in enumerate(shas):
        for number, run in enumerate(make(place)):
            commit = run.commit.model_copy(update={"sha": sha})
            started = STARTED.replace(hour=place, minute=number)
            archive.write(run.model_copy(update={"commit": commit, "started": started}), folder / "results")
    runs, _ = facts(folder / "results")
    return trends(runs, ordered(folder, {run.sha: run.started for run in runs}))


def test_what_changed_is_found_at_its_commit_and_told_as_one_thing(tmp_path: Path) -> None:
    def make(place: int) -> list[RunRecord]:
        factor = (1 + 0.05 * (place % 3)) * (30 if place >= 8 else 1)
        grown = measured(max_error=GOOD.max_error * factor)
        return [record(outcomes=dict.fromkeys(IDS, grown), resources={"registers": 128 + 8 * (place >= 4)})]

    found = walked(tmp_path, make)
    registers, errors = sorted(found.changes, key=lambda item: item.place)
    assert (registers.place, registers.group.kind, registers.chance) == (4, Kind.RESOURCES, 0.0)
    assert registers.group.text == f"registers grew from 128 to 136 in {VARIANT.name}"
    assert (errors.place, errors.worse) == (8, True)
    assert errors.group.text == "largest relative error grew 31 times in 2 of 2 configurations"
    assert 0 < errors.chance < 1e-3
    assert {name for name, _ in errors.links} == set(IDS)


def test_a_line_that_was_not_run_at_every_commit_says_so(tmp_path: Path) -> None:
    """Run at every third commit: a step at the tenth may be of the ninth or the eighth."""
    found = walked(tmp_path, lambda place: [record(resources={"registers": 128 + 8 * (place >= 8)})] * (place % 3 == 0))
    (change,) = found.changes
    assert (found.commits[change.place].subject, change.unknown) == ("Change 9", 0)
    other = walked(
        tmp_path / "b",
        lambda place: (
            [record(host="h200")] + [record(resources={"registers": 128 + 8 * (place >= 8)})] * (place % 3 == 0)
        ),
    )
    (change,) = other.changes
    assert (other.commits[change.place].subject, change.unknown, change.line) == ("Change 9", 2, "emulator")


def test_what_got_better_is_told_as_that(tmp_path: Path) -> None:
    found = walked(tmp_path, lambda place: [record(resources={"registers": 128 - 8 * (place >= 4)})])
    (change,) = found.changes
    assert (change.place, change.worse) == (4, False)
    assert change.group.text == f"registers fell from 128 to 120 in {VARIANT.name}"


def test_a_configuration_that_fails_is_a_change(tmp_path: Path) -> None:
    wrong = {"status": "fail", "reasons": ("lse_error",)}
    found = walked(tmp_path, lambda place: [record(outcomes={IDS[0]: wrong} if place in (3, 4) else None)])
    assert [(item.place, item.worse, item.group.text) for item in found.changes] == [
        (5, False, f"{IDS[0]} passes"),
        (3, True, f"{IDS[0]} fails"),
    ]


def test_hosts_and_schedules_are_lines_of_their_own_and_changed_trees_are_none(tmp_path: Path) -> None:
    def make(place: int) -> list[RunRecord]:
        run, there = record(), record(host="h200")
        other = run.model_copy(update={"selection": run.selection.model_copy(update={"schedule": "late"})})
        dirty = record(resources={"registers": 200})
        dirty = dirty.model_copy(update={"commit": run.commit.model_copy(update={"dirty": True})})
        return [run, dirty, there, other, dirty]

    found = walked(tmp_path, make)
    assert set(found.lines) == {"emulator", "emulator, late", "h200"}
    assert len(found.runs) == 60
    assert all(len(item.at) == 12 for item in found.series)
    assert {value for item in found.series if item.figure == "registers" for value in item.values} == {128.0}


def timed(run: RunRecord, uuid: str, seconds: float, bits: str = "", copies: float | None = None) -> RunRecord:
    timing = Timing(
        seconds=[seconds], clock_mhz=[], bytes_moved=None, operations=None, bytes_per_second=copies,
        operations_per_second=None, beside=None, beside_seconds=[], beside_clock_mhz=[],
    )  # fmt: skip
    items = []
    for item in run.configurations:
        assert item.metrics
        metrics = replace(item.metrics, **({"output_hash": bits} if bits else {}))
        items.append(item.model_copy(update={"timing": timing, "metrics": metrics}))
    gpu = Gpu(name="NVIDIA H200", uuid=uuid, driver="570")
    return run.model_copy(update={"configurations": items, "host": run.host.model_copy(update={"gpu": gpu})})


def test_the_gpu_that_is_not_like_the_others_is_named(tmp_path: Path) -> None:
    for number, (seconds, bits) in enumerate([(1.0, ""), (1.001, ""), (0.999, ""), (1.05, ""), (1.0, "e" * 64)]):
        archive.write(timed(record(host="h200", minutes=number), f"GPU-{number}", 1e-5 * seconds, bits), tmp_path)
    found = gpus(facts(tmp_path)[0])
    assert [item.odd for item in found] == [False, False, False, True, True]
    assert found[3].slower == pytest.approx(0.05, abs=1e-3)
    assert [item.other_bits for item in found] == [0, 0, 0, 0, 2]


def test_gpus_that_never_timed_the_same_thing_together_are_compared_by_others(tmp_path: Path) -> None:
    """Two of five at a time, in a ring: the mean of two hides half of what one of them is slower by."""
    for number in range(10):
        for gpu in (number % 5, (number + 1) % 5):
            run = record(sha=f"{number:040x}", host="h200", minutes=10 * number + gpu)
            archive.write(timed(run, f"GPU-{gpu}", 1e-5 * (1 + number) * (1.05 if gpu == 3 else 1.0)), tmp_path)
    found = gpus(facts(tmp_path)[0])
    assert [item.slower for item in found] == pytest.approx([0, 0, 0, 0.05, 0], abs=1e-3)
    assert [item.odd for item in found] == [False, False, False, True, False]


def test_a_kernel_is_followed_from_box_to_box_by_what_each_copies_meanwhile(tmp_path: Path) -> None:
    """Each commit on another box, 10% apart from the last; from the seventh commit on the kernel takes 4% longer."""

    def make(place: int) -> list[RunRecord]:
        box, slower = 1.1 if place % 2 else 1.0, 1.04 if place >= 6 else 1.0
        return [timed(record(host="h200"), f"GPU-{place}", 1e-5 * box * slower, copies=4e12 / box)]

    found = walked(tmp_path, make)
    (line,) = {item.line for item in found.series if item.figure == "box_copies_meanwhile"}
    assert line == "NVIDIA H200, any box"
    assert line in found.lines
    steps = [item for item in found.series if item.figure == "box_copies_meanwhile" and item.steps]
    assert steps
    assert all(item.at[step.at] == 6 for item in steps for step in item.steps)
    assert not any(item.steps for item in found.series if item.figure == "time")


def test_the_box_that_copies_less_than_the_others_is_named(tmp_path: Path) -> None:
    for number, copies in enumerate([4e12, 4.01e12, 3.99e12, 3.6e12, 4e12]):
        run = timed(record(sha=f"{number:040x}", host="h200", minutes=number), f"GPU-{number}", 1e-5, copies=copies)
        archive.write(run, tmp_path)
    found = gpus(facts(tmp_path)[0])
    assert [item.odd for item in found] == [False, False, False, True, False]
    assert found[3].copies == pytest.approx(-0.1, abs=1e-3)
    assert {item.slower for item in found} == {None}


def test_three_gpus_have_no_odd_one_out(tmp_path: Path) -> None:
    for number, seconds in enumerate([1.0, 1.0, 1.05]):
        archive.write(timed(record(host="h200", minutes=number), f"GPU-{number}", 1e-5 * seconds), tmp_path)
    assert not any(item.odd for item in gpus(facts(tmp_path)[0]))


def test_baselines_that_git_still_has_are_told_with_their_reasons(tmp_path: Path) -> None:
    repository(tmp_path, SUBJECTS[:2])
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=tmp_path, check=True)
    path = tmp_path / "results" / "baselines" / "emulator.json"
    path.parent.mkdir(parents=True)
    for number, why in enumerate(("the first", "another order of sums")):
        given = Acceptance(
            why=why, accepted=STARTED.replace(day=number + 1), by="A", replaces=None, deterministic=True, seeds=[0],
            noise={},
        )  # fmt: skip
        path.write_text(archive.dumps(record(sha=f"{number + 1}" * 40).model_copy(update={"acceptance": given})))
        subprocess.run(["git", "add", "-f", "."], cwd=tmp_path, check=True)
        identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, "commit", "-q", "-m", "baseline"], cwd=tmp_path, check=True)
    (path.parent / "torn.json").write_text("{")
    found = baselines(tmp_path / "results")
    assert [(item.why, item.sha[0]) for item in found] == [("another order of sums", "2"), ("the first", "1")]


def test_facts_say_what_a_model_would_have_said(tmp_path: Path) -> None:
    """They are taken past the model, from the same file."""
    made = record(outcomes={IDS[0]: measured(cosine=float("nan"))})
    archive.write(made, tmp_path)
    (found,) = facts(tmp_path)[0]
    assert isinstance(found, RunFacts)
    assert replace(found, name="") != found
    assert (found.sha, found.host, found.seed, found.passed) == (made.commit.sha, "emulator", 0, made.verdict.passed)
    assert found.figures[IDS[0]]["cosine"] != found.figures[IDS[0]]["cosine"]
    assert found.figures[IDS[1]]["max_error"] == pytest.approx(GOOD.max_error, rel=1e-4)
    assert found.variants[VARIANT.name]["registers"] == 128
