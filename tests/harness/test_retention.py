"""What a host removes by itself: old runs of the same person, and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fmha.harness import archive
from fmha.harness.supervisor import environments, retention
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.retention import DAY, Policy
from fmha.harness.supervisor.rundir import RunDirectory, runs, write_json

ME = "me@here"
SPARED = "b" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Repository(tmp_path).ensure()
    return tmp_path


def made(
    folder: Path,
    number: int,
    *,
    days: float = 0.0,
    by: str = ME,
    sha: str = "a" * 40,
    fetched: bool = True,
    ended: bool = True,
) -> RunDirectory:
    """An ended run; the numbers are in the order of their making."""
    run = RunDirectory(folder, f"20260101T{number:06}Z-{sha[:12]}-00000000")
    run.create({"sha": sha, "by": by})
    os.utime(run.path / "job.json", (time.time() - days * DAY,) * 2)
    os.close(run.hold())
    if ended:
        run.finish("done")
    if fetched:
        run.mark_fetched()
    return run


def applied(folder: Path, days: float = 30.0, most: int = 3, last: int = 999) -> tuple[list[int], list[str]]:
    """The numbers of the runs that stay when another one ends, and what was said."""
    told: list[str] = []
    retention.apply(made(folder, last, ended=False), Policy(days, most, frozenset([SPARED]), ME), told.append)
    return [int(run.run[9:15]) for run in runs(folder) if int(run.run[9:15]) != last], told


def test_the_oldest_go_and_that_is_said(folder: Path):
    for number in range(1, 6):
        made(folder, number, days=6 - number)
    left, (told,) = applied(folder)
    assert left == [4, 5]
    assert told.startswith("removed 3 runs from the host, ")
    assert told.endswith(" MB: the host has keep: {days: 30, runs: 3}")


def test_nothing_is_said_of_nothing(folder: Path):
    made(folder, 1)
    assert applied(folder) == ([1], [])


def test_what_is_too_old_goes_whatever_its_number(folder: Path):
    made(folder, 1, days=31, fetched=False)
    made(folder, 2, days=29)
    assert applied(folder)[0] == [2]


def test_anothers_a_baselines_and_an_unfetched_one_stay(folder: Path):
    made(folder, 1, by="you@here", days=99)
    made(folder, 2, sha=SPARED, days=99)
    made(folder, 3, fetched=False, days=1)
    made(folder, 4)
    assert applied(folder, most=1)[0] == [1, 2, 3]


def test_a_run_that_lives_stays(folder: Path):
    live = made(folder, 1, days=99)
    lock = live.hold()
    try:
        assert applied(folder)[0] == [1]
    finally:
        os.close(lock)
    assert applied(folder)[0] == []


def test_one_that_is_being_made_stays(folder: Path):
    (folder / "runs" / "20260101T000001Z-aaaaaaaaaaaa-00000000").mkdir(parents=True)
    (unended := RunDirectory(folder, "20260101T000002Z-aaaaaaaaaaaa-00000000")).create({"sha": "a" * 40, "by": ME})
    os.utime(unended.path / "job.json", (0, 0))
    assert applied(folder, most=1)[0] == [1, 2]


def test_an_environment_that_nobody_has_used_goes_unless_somebody_does(folder: Path):
    for name in ("old", "used", "new"):
        (folder / "environments" / name).mkdir(parents=True)
        (stamp := folder / "environments" / name / environments.STAMP).touch()
        os.utime(stamp, (time.time() - (0 if name == "new" else 31 * DAY),) * 2)
    with environments.unused(folder / "environments" / "used"):
        _, (told,) = applied(folder)
    assert "1 environment from the host" in told
    assert [path.name for path in environments.names(folder)] == ["new", "used"]


def test_the_commits_of_baselines_are_found(tmp_path: Path, repository: Path):
    assert archive.baseline_commits(tmp_path) == ()
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "broken.json").write_text("{")
    real = repository / "results" / "baselines" / "emulator.json"
    (tmp_path / "baselines" / "emulator.json").write_bytes(real.read_bytes())
    assert archive.baseline_commits(tmp_path) == (json.loads(real.read_text())["commit"]["sha"],)
    write_json(tmp_path / "baselines" / "dense.json", {"commit": {"sha": "c" * 40}})
    assert "c" * 40 in archive.baseline_commits(tmp_path)
