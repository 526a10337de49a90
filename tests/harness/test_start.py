"""An interrupt while the command is being loaded, wherever in that it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Interrupts itself at the import whose number is the first argument.
START = """
import builtins, os, signal, sys
import fmha.__main__ as start
left, real = [int(sys.argv.pop(1))], builtins.__import__
def importing(*arguments, **named):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **named)
builtins.__import__ = importing
start.main()
"""


@pytest.mark.parametrize("number", [1, 20, 120, 500])
def test_an_interrupt_while_loading_is_no_traceback(number: int) -> None:
    command = [sys.executable, "-P", "-c", START, str(number), "results", "ls"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (4, "fmha: interrupted\n")
