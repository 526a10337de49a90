"""A Python script on the emulator: `fmha emulate -- python SCRIPT.py`."""

from __future__ import annotations

import gc
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fmha.harness.errors import UserError
from fmha.harness.extras import install
from fmha.harness.scripted.emulated import LaunchRefusedError, ScriptFinding, ScriptMachine, running, say
from fmha.harness.scripted.script_machine import ScriptOptions

NO_CUTE: Final = "launches of CuTe DSL do not run here; docs/use/scripts.md says why, and how its kernels do"


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """`failed`: the exit code that the script asked for, or 1 after an exception, which has been printed."""

    machine: ScriptMachine
    failed: int


def run_script(words: Sequence[str], options: ScriptOptions, tell: Callable[[ScriptFinding], None] = say) -> ScriptEnd:
    """Runs `SCRIPT.py ARGS...` or `-m MODULE ARGS...` in this process, and gives `tell` what is found as soon as it is
    there. UserError when there is nothing to run."""
    if find_spec("triton") is None:
        raise UserError("Triton is not installed", next_step=install("triton"))
    module = words[1] if words and words[0] == "-m" and len(words) > 1 else None
    if module is None and (not words or not Path(words[0]).is_file()):
        raise UserError(f"{words[0] if words else 'python'}: no script", next_step="give SCRIPT.py, or -m MODULE")
    arguments = list(words[1:] if module else words)
    before = sys.argv, sys.path[:]
    sys.argv = arguments
    sys.path.insert(0, str(Path.cwd()) if module else str(Path(words[0]).resolve().parent))
    try:
        with running(options, tell) as machine:
            failed = _run(module, words[0])
            gc.collect()  # kernels that it has compiled go while the driver that unloads them is here
            return ScriptEnd(machine, failed)
    finally:
        sys.argv, sys.path[:] = before


def _run(module: str | None, script: str) -> int:
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except LaunchRefusedError as error:
        print(f"fmha: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        _print(error)
        if type(error).__module__.partition(".")[0] == "cutlass":  # what it says is that there is no driver
            print(f"fmha: {NO_CUTE}", file=sys.stderr)
        return 1
    return 0


def _print(error: Exception) -> None:
    """As Python itself would: from the script's own first line on."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).name in ("run.py", "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace))
