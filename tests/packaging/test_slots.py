"""Runs of the tests that go on at once have accounts of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import slots

# Slots of this run alone: those that runs share come and go while a test looks.
HERE = slots.Slots(f"fmha-tests-slot-of-{slots.own()}", 70000 + 128 * slots.own())
TAKES = f"from tests import slots; print(slots.{HERE!r}.take(), flush=True); input()"


def begin(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A run that writes to `folder`, and its slot."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES],
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n")
    assert process.returncode == 0


def test_each_run_has_its_own_until_it_ends(tmp_path: Path) -> None:
    (first, a), (second, b) = begin(tmp_path / "one"), begin(tmp_path / "one")
    third, c = begin(tmp_path / "other")  # whatever folder it writes to
    assert [a, b, c] == [0, 1, 2]
    first.kill()
    first.wait()
    fourth, d = begin(tmp_path / "other")
    assert d == a
    for process in (second, third, fourth):
        end(process)


def test_a_run_has_one_and_its_workers_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    slots.take()
    assert slots.accounts() == slots.SLOTS.accounts(int(os.environ[slots.VARIABLE]))
    monkeypatch.setenv(slots.VARIABLE, "7")
    slots.take()
    assert slots.own() == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another account, which needs root")
@pytest.mark.parametrize("account", [0, 1])
def test_what_a_killed_run_has_left_behind_keeps_its_slot(account: int) -> None:
    """A run after it with the same accounts found their processes, and lost its own to whoever ended them."""
    last = HERE.count - 1
    assert not HERE.is_busy(last)
    left = subprocess.Popen(["sleep", "600"], user=HERE.accounts(last)[account])
    assert HERE.is_busy(last)
    left.kill()
    left.wait()
    assert not HERE.is_busy(last)
