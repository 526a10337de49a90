"""An interrupt while the command is being loaded, wherever in that it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Interrupts itself at the import whose number is the first argument, in code that was a string, as dataclasses are made
# of: Python takes an interrupt that leaves such code for one that nobody answers, whoever does.
START = """
import builtins, os, signal, sys
import fmha.__main__ as start
left, real = [int(sys.argv.pop(1))], builtins.__import__
def importing(*arguments, **named):
    left[0] -= 1
    if left[0] == 0:
        exec("os.kill(os.getpid(), signal.SIGINT); left[0] += 0")
    return real(*arguments, **named)
builtins.__import__ = importing
start.main()
"""


@pytest.mark.parametrize("number", [1, 20, 120, 500, 2000])
@pytest.mark.parametrize("way", ["-c", "-m"])
def test_an_interrupt_while_loading_is_no_traceback(way: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(START)
    begun = ["-c", START] if way == "-c" else ["-m", "interrupted"]
    variables = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", *begun, str(number), "results", "ls"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    assert (done.returncode, done.stderr) == (4, "fmha: interrupted\n")


def test_nothing_is_imported_before_an_interrupt_has_its_answer() -> None:
    """What a module takes to load is what an interrupt has for a traceback."""
    names = "import os, sys; before = {*sys.modules}; import fmha.__main__; print(*sorted({*sys.modules} - before))"
    # Without what an editable installation imports to find fmha, of which nothing is ours.
    command, variables = [sys.executable, "-S", "-c", names], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    assert done.stdout.split() == ["__future__", "fmha", "fmha.__main__"]


@pytest.mark.parametrize(
    "way", [["-m", "fmha"], ["-c", "from fmha.__main__ import main; main()"]], ids=["-m", "script"]
)
def test_an_interrupt_from_outside_is_no_traceback(way: list[str]) -> None:
    """Sent as Python says that it has loaded a module: at moments from the first one of ours to the last."""
    for loaded in ("fmha.harness", "traceback", "json", "rich", "typer", "fmha.harness.cli.app"):
        command = [sys.executable, "-X", "importtime", *way, "results", "ls"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            for line in child.stderr:
                if line.split()[-1] == loaded:
                    child.send_signal(signal.SIGINT)
                    break
            said = [line for line in child.stderr if not line.startswith("import time:")]
        assert (child.returncode, said) == (4, ["fmha: interrupted\n"]), loaded


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_is_closed_changes_no_exit_code(closed: str) -> None:
    command = [sys.executable, "-m", "fmha", "ps", "--help"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}>&-', "sh", *command], check=False, capture_output=True)
    assert done.returncode == 0
