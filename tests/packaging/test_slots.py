"""Runs of the tests that go on at once have accounts of their own."""

import os
import subprocess
import sys
from pathlib import Path

TAKES = "from tests import slots; slots.take(); print(slots.own(), flush=True); input()"


def test_each_run_has_its_own_until_it_ends(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FMHA_TEST_SLOT"}
    environment["TMPDIR"] = str(tmp_path)

    def begin() -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, "-c", TAKES],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    (first, a), (second, b) = begin(), begin()
    assert (a, b) == (0, 1)
    first.kill()
    first.wait()
    third, c = begin()
    assert c == 0
    for process in (second, third):
        process.communicate("\n")
        assert process.returncode == 0
