"""Regress and bisect on a real history: real git, nvcc, worker processes and emulator."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from fmha.harness.evidence.bisect import folder_of
from tests.evidence.seeded_history import CLEAN, HISTORY, PLANTS, REPOSITORY, History
from tests.forked import fmha
from tests.harness.support import git
from tests.integration.processes import eventually

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("seeded-history")]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The history with the first commit as its baseline, under ten seeds."""
    made = History(tmp_path_factory.mktemp("history"))
    made.accept(10)
    return made


@pytest.mark.parametrize("place", PLANTS, ids=lambda place: str(HISTORY[place].kind))
def test_regress_finds_what_was_planted(history: History, place: int) -> None:
    found = history.regress(place)
    assert found["code"] == found["exit_code"] == ExitCode.GATE_FAILED
    assert HISTORY[place].kind in {item["kind"] for item in found["regressions"]}


@pytest.mark.parametrize("place", [CLEAN[1], pytest.param(CLEAN[-1], marks=pytest.mark.nightly)])
@pytest.mark.parametrize("seed", [[], ["--seed", "4"]], ids=["same seed", "other seed"])
def test_a_clean_commit_raises_no_alarm(history: History, place: int, seed: list[str]) -> None:
    found = history.regress(place, *seed)
    assert found["regressions"] == []
    assert found["code"] == ExitCode.PASS


def test_a_commit_that_does_not_build_is_a_regression(history: History) -> None:
    place = next(place for place, planned in enumerate(HISTORY) if not planned.builds)
    found = history.regress(place)
    assert found["code"] == ExitCode.GATE_FAILED
    assert {item["kind"] for item in found["regressions"]} == {"status"}


def test_an_allowed_kind_is_shown_and_passes(history: History) -> None:
    place = next(place for place in PLANTS if HISTORY[place].kind == "resources")
    found = history.regress(place, "--allow", "resources", "--allow", "counters")
    assert found["code"] == ExitCode.PASS
    assert {item["kind"] for item in found["regressions"]} == {"resources", "counters"}


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLANTS, ids=lambda place: str(HISTORY[place].kind))
def test_bisect_names_the_commit(history: History, place: int) -> None:
    kind = HISTORY[place].kind
    assert kind
    bad = place + 1 if HISTORY[place + 1].kind else place
    found = history.bisect(bad, kind)
    assert found["commit"] == history.shas[place]
    assert found["before"]["commit"] == history.shas[place - 1]
    assert {item["kind"] for item in found["regressions"]} == {kind}
    assert found["again"].startswith(f"git checkout {history.shas[place][:12]} && fmha run-matrix")
    assert list((history.root / ".git" / "worktrees").glob("*")) == [], "the worktree is still there"


def test_all_that_was_asked_for_may_be_gone(history: History) -> None:
    """No later commit has anything that the filter accepts."""
    place = next(place for place in PLANTS if HISTORY[place].kind == "not-run")
    ends = history.shas[place - 1], history.shas[place + 1]
    ran = history.fmha("bisect", *ends, "--for", "not-run", "--json", "--quiet", "--", "t=128")
    assert ran.returncode == ExitCode.PASS, ran.stderr
    found = json.loads(ran.stdout)
    assert found["commit"] == history.shas[place]
    gone = {item["subject"] for item in found["regressions"]}
    assert gone
    assert all(name.startswith("hd64_t128_") for name in gone)


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_a_bisection_that_was_stopped_goes_on(history: History, at_once: str) -> None:
    shutil.rmtree(folder_of(history.root), ignore_errors=True)
    git(history.root, "checkout", "-q", "main")
    arguments = ["bisect", history.shas[0], history.shas[13], "--for", "resources", "--json", "--quiet"]
    arguments += ["--at-once", at_once]
    process = subprocess.Popen(
        [sys.executable, "-m", "fmha", *arguments],
        cwd=history.root,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    runs = lambda: sorted((folder_of(history.root)).glob("*/runs/2*.json"))  # noqa: E731
    before = eventually(lambda: found if len(found := runs()) >= 3 else None)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == ExitCode.INCOMPLETE, said
    again = history.fmha(*arguments)
    assert json.loads(again.stdout)["subject"] == HISTORY[12].subject
    stamps = {path.name: path.stat().st_mtime_ns for path in before}
    assert stamps.items() <= {path.name: path.stat().st_mtime_ns for path in runs()}.items()
    whole = [path.name.split("-")[1] for path in runs() if '"interrupted"' not in path.read_text()]
    assert len(set(whole)) == len(whole), "a commit was run twice"
    assert {path.name.split("-")[1] for path in runs()} == set(whole), "half a run was taken for an answer"


def test_ends_that_are_no_pair(history: History) -> None:
    first, last = history.shas[0], history.shas[-1]
    for arguments, words in {
        (last, first): "is not an earlier commit of",
        (first, first): "is not an earlier commit of",
        ("nowhere", first): "'nowhere' is no commit",
        (first, history.shas[1], "--for", "hazard"): "has no regression of kind hazard against",
        (first, last, "--for", "mood"): "--for: no kind is named 'mood'",
    }.items():
        ran = history.fmha("bisect", *arguments, "--quiet")
        assert ran.returncode == ExitCode.USAGE
        assert words in ran.stderr


def test_unbuildable_neighbours_leave_candidates(history: History, tmp_path: Path) -> None:
    """The planted commit does not build, and the next one builds with the regression in it."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(history.root), str(clone))
    git(clone, "checkout", "-q", "-b", "hidden", history.shas[0])
    source = next((clone / "kernel").rglob("math.cuh"))
    whole = source.read_text()
    truncated = whole.replace("cvt.rn.bf16x2", "cvt.rz.bf16x2")
    for text, subject in ((truncated + "#error\n", "hide it"), (truncated, "show it")):
        source.write_text(text)
        git(clone, "commit", "-q", "-a", "-m", subject)
    ran = fmha("bisect", "HEAD~2", "HEAD", "--json", "--quiet", cwd=clone)
    assert ran.returncode == ExitCode.INCOMPLETE, ran.stderr
    found = json.loads(ran.stdout)
    assert found["commit"] is None
    assert len(found["candidates"]) == 2
    assert len(found["skipped"]) == 1
