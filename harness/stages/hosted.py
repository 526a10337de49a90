"""The runner on a host: `python -m fmha.harness.stages.hosted RUN_DIRECTORY`, started by its supervisor.

In a judge's tree it carries out the order of `work.json` with the stages, matrix.yaml and gates that it was started in,
on the kernels of the run's worktree, and writes what happens as JSON lines to its standard output. Before the first
configuration it asks for a GPU with `ready` and waits on its standard input for the answer.

Other programs are asked what the machine has while the stages are loaded.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fmha.harness.errors import FmhaError
from fmha.harness.worker.compilers import toolchain
from fmha.harness.worker.processes.groups import die_with_parent

Say = Callable[[dict[str, Any]], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when the order was carried out, whatever its verdict, and 1 when it could not be."""
    directory, parent = _told(sys.argv[1:] if arguments is None else arguments)
    die_with_parent(parent)
    toolchain.foresee()
    say = _claim_stdout()
    gc.disable()
    from fmha.harness.stages.runner import carry_out_order

    gc.freeze()  # the modules need not be looked through when this process ends, which others wait for
    gc.enable()
    try:
        carry_out_order(directory, say)
    except FmhaError as error:
        where = f"{error.where}: " if error.where else ""
        say({"kind": "failed", "reason": f"{where}{error.what}", "next_step": error.next_step})
        return 1
    say({"kind": "end"})
    return 0


def _claim_stdout() -> Say:
    """Takes the standard output for events alone, and points descriptor 1 at standard error."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def say(event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        while data:
            data = data[stream.write(data) or 0 :]

    return say


def _told(arguments: Sequence[str]) -> tuple[Path, int]:
    """The run directory, which holds work.json, and the process with which this one is to end. Whoever starts this is
    no person, and waits for each module that it loads: argparse and what it loads take 5 ms."""
    directory, option, parent = arguments
    if option != "--parent":
        raise SystemExit("usage: python -m fmha.harness.stages.hosted DIRECTORY --parent PID")
    return Path(directory), int(parent)


if __name__ == "__main__":
    code = main()
    atexit._run_exitfuncs()  # adapters' processes and folders end here
    sys.stderr.flush()
    os._exit(code)  # whoever waits for this process does not wait for its modules to be taken apart
