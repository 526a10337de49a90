"""`fmha debug`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.diag import Kernel, LaunchFile, Scheduled, root_for, subject
from fmha.harness.errors import ExitCode, UserError

HELP = """Stop a launch on the emulator where it goes wrong, look at it, and go on or back.

KERNEL is a configuration of our kernels, or a file of PTX with its --launch. It stops before the first instruction, at
breaks, at hazards, when nothing can go on, and at its end. `help` lists the commands; --script reads them from a file.
Going back runs the launch again: it is the same under the same schedule and seed.

\b
Examples:
  fmha debug kernel.ptx --launch launch.yaml
  fmha debug hd64_t32_sk384 --schedule late
  fmha debug hd64_t1_sk128 --script session.txt
  fmha debug --run latest hd64_t32_sk384
"""


def command(
    context: typer.Context,
    kernel: Kernel,
    launch: LaunchFile = None,
    schedule: Scheduled = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="The archived run whose commit, seed and schedule are taken.",
            autocompletion=completion.records,
        ),
    ] = None,
    script: Annotated[Path | None, typer.Option(metavar="FILE", help="Commands, a line each.")] = None,
) -> None:
    context.obj.action = partial(_debug, kernel, launch, schedule, run, script)


def _debug(kernel: str, launch: Path | None, schedule: str | None, run: str | None, script: Path | None) -> ExitCode:
    from fmha.emulator.debug.session import Session
    from fmha.emulator.debug.terminal import Terminal
    from fmha.harness.see.replay import archived

    if run is not None and (launch is not None or schedule is not None):
        raise UserError("--run: the run says how it was launched", next_step="leave --launch and --schedule out")
    front = Terminal(_script(script) if script else _typed(), print)
    with archived(root_for(None), run, kernel) if run else nullcontext(subject(kernel, launch, schedule)) as chosen:
        Session(chosen.run, front).debug()
    return ExitCode.PASS


def _script(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    for line in lines:
        print(f"(fmha) {line}")
        yield line


def _typed() -> Iterator[str]:
    """Of a person; on a terminal with history and editing, where Python has them."""
    if sys.stdin.isatty():
        import readline  # noqa: F401
    while True:
        try:
            yield input("(fmha) " if sys.stdin.isatty() else "")
        except EOFError:
            return
