"""The session on a GPU machine: what it copies, and what it does with a step that does not end."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.bench.session import project, run
from harness.config import load


def test_the_project_is_one_commit_that_a_run_leaves_clean(tmp_path: Path) -> None:
    """A second suite was refused once: the copy had no .gitignore, and the first suite's .fmha made it dirty."""
    root = tmp_path / "project"
    project(root, tmp_path / "home", "emulator")
    (root / ".fmha").mkdir()
    (root / ".fmha" / "ledger").write_text("of a run\n")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True)
    assert status.stdout == ""
    host = load(root).hosts["local"]
    assert host.remote is not None
    assert (host.remote.device, host.remote.arch) == ("emulator", "sm_90a")


def test_a_step_keeps_its_words_its_code_and_its_limit(tmp_path: Path) -> None:
    assert run("failing", ["sh", "-c", "echo words; exit 3"], tmp_path, 60).code == 3
    assert (tmp_path / "failing.log").read_text() == "words\n"
    assert run("sleeping", ["sleep", "600"], tmp_path, 1).code is None
