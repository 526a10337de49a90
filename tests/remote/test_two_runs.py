"""Two runs of the tests at once, each with a server, accounts and processes, on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.server import SSHD

# Two accounts that use one working folder, and a look at what either has left.
TEST = "tests/remote/test_accounts.py::test_a_second_account_runs_where_a_first_has_run"


@pytest.mark.nightly
@pytest.mark.nvcc
@pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="accounts are made by root, for sshd")
def test_two_runs_at_once_do_not_disturb_each_other(repository: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("FMHA_TEST_SLOT", "FMHA_CACHE")}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    runs = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir(mode=0o755)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", TEST]
        runs.append(
            subprocess.Popen(
                [*command, f"--basetemp={folder / 'temp'}"],
                cwd=repository,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    for run in runs:
        said, _ = run.communicate()
        assert run.returncode == 0, said
        assert "1 passed" in said, said
