"""Runs of the tests that go on at once have accounts of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import slots

TAKES = "from tests import slots; slots.take(); print(slots.own(), flush=True); input()"


def begin(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A run that writes to `folder`, and its slot."""
    folder.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "FMHA_TEST_SLOT"}
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES],
        env=environment | {"TMPDIR": str(folder)},
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
    assert len({a, b, c}) == 3
    first.kill()
    first.wait()
    fourth, d = begin(tmp_path / "other")
    assert d <= a  # the first that is free: those of other runs of this machine come and go
    for process in (second, third, fourth):
        end(process)


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another account, which needs root")
@pytest.mark.parametrize("account", [0, 1])
def test_what_a_killed_run_has_left_behind_keeps_its_slot(account: int) -> None:
    """A run after it with the same accounts found their processes, and lost its own to whoever ended them."""
    last = slots.SLOTS - 1
    assert not slots.is_busy(last)
    left = subprocess.Popen(["sleep", "600"], user=slots.accounts(last)[account])
    assert slots.is_busy(last)
    left.kill()
    left.wait()
    assert not slots.is_busy(last)
