"""The session on a GPU machine: what it copies, and what it does with a step that does not end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fmha.harness import account
from fmha.harness.bench.gpus.silicon_session import SiliconSession, project
from fmha.harness.config import load


def test_the_project_is_one_commit_that_a_run_leaves_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second suite was refused once: the copy had no .gitignore, and the first suite's .fmha made it dirty. Hopper
    kernels that are built are not built again."""
    monkeypatch.setenv(account.VARIABLE, str(tmp_path / "account"))
    made = account.folder("builds") / "sm90_hd64-1"
    for folder in (made, made.with_name("sm100_hd64-1")):
        folder.mkdir()
    root = tmp_path / "project"
    project(root, tmp_path / "home", "emulator")
    (root / ".fmha").mkdir()
    (root / ".fmha" / "ledger").write_text("of a run\n")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True)
    assert status.stdout == ""
    assert [path.resolve() for path in (tmp_path / "home" / "cache").iterdir()] == [made]
    host = load(root).hosts["local"]
    assert host.remote is not None
    assert (host.remote.device, host.remote.arch) == ("emulator", "sm_90a")


def test_a_step_keeps_its_words_its_code_and_its_limit(tmp_path: Path) -> None:
    session = SiliconSession(tmp_path, 60)
    assert session.run("failing", ["sh", "-c", "echo words; exit 3"], 60).code == 3
    assert (tmp_path / "failing.log").read_text() == "words\n"
    assert session.run("sleeping", ["sleep", "600"], 1).code is None


def test_a_session_ends_what_runs_and_begins_nothing_more_once_its_time_is_over(tmp_path: Path) -> None:
    session = SiliconSession(tmp_path, 1)
    assert session.run("sleeping", ["sleep", "600"], 600).code is None
    assert session.run("late", ["touch", str(tmp_path / "ran")], 600).code is None
    assert not (tmp_path / "ran").exists()
    assert session.run("cancel", ["true"], 60, late=True).code == 0
    assert [step.name for step in session.steps] == ["sleeping", "late", "cancel"]
