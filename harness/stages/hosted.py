"""The runner on a host: `python -m fmha.harness.stages.hosted RUN_DIRECTORY`, started by its supervisor.

In a judge's tree it carries out the order of `work.json` with the stages, matrix.yaml and gates that it was started in,
on the kernels of the run's worktree, and writes what happens as JSON lines to its standard output. Before the first
configuration it asks for a GPU with `ready` and waits on its standard input for the answer.

Other programs are asked what the machine has while the stages are loaded.
"""

from __future__ import annotations

import argparse
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
    options = _parser().parse_args(arguments)
    die_with_parent(options.parent)
    toolchain.foresee()
    say = _claim_stdout()
    gc.disable()
    from fmha.harness.stages.runner import carry_out_order

    gc.freeze()  # the modules need not be looked through when this process ends, which others wait for
    gc.enable()
    try:
        carry_out_order(options.directory, say)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.stages.hosted", description=__doc__)
    parser.add_argument("directory", type=Path, help="the run directory, which holds work.json")
    parser.add_argument("--parent", type=int, metavar="PID", required=True, help="end when this process ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
