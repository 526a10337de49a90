"""Whose times a bisection compares: each commit is timed beside GOOD, on whichever host tests it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest.mock import create_autospec

import pytest
import yaml

from fmha.harness.errors import UserError
from fmha.harness.evidence import bisect as stage
from fmha.harness.judge.comparison.comparison import Kind
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import Request

ROOT = Path(__file__).resolve().parents[2]
QUIET = create_autospec(Observer)


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, str, str]:
    """A repository with matrix.yaml alone, two hosts in it with a GPU, and two commits."""

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    matrix = yaml.safe_load((ROOT / "matrix.yaml").read_text(encoding="utf-8"))
    host = {"kind": "local", "arch": "sm_90a", "folder": str(tmp_path / "work")}
    matrix["hosts"] = {"a": host, "b": host | {"folder": str(tmp_path / "other")}}
    (tmp_path / "matrix.yaml").write_text(yaml.safe_dump(matrix), encoding="utf-8")
    git("init", "-q", "-b", "main")
    git("add", "matrix.yaml")
    git("commit", "-q", "-m", "Add a matrix")
    good = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "Change nothing")
    return tmp_path, good, git("rev-parse", "HEAD")


class _AskedError(Exception):
    """Ends a bisection at its first run."""


@pytest.mark.parametrize("host", ["a", "b,a"])
@pytest.mark.parametrize(("kind", "timed"), [(None, True), (Kind.SPEED, True), (Kind.COUNTERS, False)])
def test_each_commit_is_timed_beside_the_good_one(
    history: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch, host: str, kind: Kind | None, timed: bool
) -> None:
    root, good, bad = history
    asked: list[Request] = []

    def execute(request: Request, *_: object) -> None:
        asked.append(request)
        raise _AskedError

    monkeypatch.setattr(stage, "execute", execute)
    monkeypatch.setattr(stage.several, "prepare", lambda _: None)  # asks the hosts, which are none
    monkeypatch.setattr(stage._Search, "_side_by_side", lambda search, turns: search._run((), turns[0].place, None))
    with pytest.raises(_AskedError):
        stage.bisect(root, stage.Bisection(good, bad, Request(root, host=host, suite="seed"), kind), QUIET)
    assert [request.beside for request in asked] == [good if timed else None]


def test_a_host_that_times_nothing_finds_no_slower_commit(history: tuple[Path, str, str]) -> None:
    root, good, bad = history
    with pytest.raises(UserError, match="emulator times nothing") as raised:
        stage.bisect(root, stage.Bisection(good, bad, Request(root, suite="seed"), Kind.SPEED), QUIET)
    assert raised.value.next_step == "name a host with a GPU: --host NAME"
