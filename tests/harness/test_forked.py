"""A fork of a loaded `fmha` does what a start of it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import fmha


@pytest.mark.parametrize("command", [["run-matrix", "--dry-run"], ["results", "ls", "--nope"], ["report"]])
def test_a_fork_says_and_answers_what_a_process_does(checkout: Path, command: list[str]) -> None:
    wide = os.environ | {"COLUMNS": "200"}
    started = subprocess.run(
        [sys.executable, "-P", "-m", "fmha", *command], cwd=checkout, env=wide, capture_output=True, text=True
    )
    forked = fmha(*command, cwd=checkout, env=wide)
    assert started.stdout or started.stderr
    for name in ("returncode", "stdout", "stderr"):
        assert getattr(forked, name) == getattr(started, name)


def test_one_fork_leaves_nothing_to_the_next(checkout: Path, tmp_path: Path) -> None:
    def traced(cwd: Path, **changes: str) -> bool:
        return "Traceback" in fmha("run-matrix", "--suite", "none", cwd=cwd, env=os.environ | changes).stderr

    assert [traced(checkout), traced(checkout, FMHA_DEBUG="1"), traced(checkout)] == [False, True, False]
    assert fmha("run-matrix", "--dry-run", cwd=checkout).returncode == 0
    assert fmha("run-matrix", "--dry-run", cwd=tmp_path).returncode == 2


def test_what_lasts_longer_than_it_may_is_ended(checkout: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        fmha("watch", cwd=checkout, timeout=0)
    assert fmha("--version").returncode == 0


def test_what_an_interpreter_reads_at_its_start_is_refused() -> None:
    with pytest.raises(AssertionError, match="PYTHONHASHSEED"):
        fmha("--version", env=os.environ | {"PYTHONHASHSEED": "1"})
