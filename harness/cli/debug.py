"""`fmha debug`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.diag import LaunchFile, Scheduled, root_for, subject
from fmha.harness.errors import ExitCode, UserError

if TYPE_CHECKING:
    from fmha.emulator.debug.adapter import Debuggee
    from fmha.harness.see.subject import Subject

HELP = """Stop a launch on the emulator where it goes wrong, look at it, and go on or back.

KERNEL is a configuration of our kernels, or a file of PTX with its --launch. It stops before the first instruction, at
breaks, at hazards, when nothing can go on, and at its end. `help` lists the commands; --script reads them from a file.
Going back runs the launch again: it is the same under the same schedule and seed.

--dap speaks the Debug Adapter Protocol on standard input and output: an editor drives it, and names KERNEL and the
options in its launch request as `kernel`, `launch`, `schedule` and `run`.

\b
Examples:
  fmha debug kernel.ptx --launch launch.yaml
  fmha debug hd64_t32_sk384 --schedule late
  fmha debug hd64_t1_sk128 --script session.txt
  fmha debug --run latest hd64_t32_sk384
  fmha debug --dap
"""


def command(
    context: typer.Context,
    kernel: Annotated[
        str | None,
        typer.Argument(
            metavar="KERNEL",
            help="A configuration, or a file of PTX.",
            show_default=False,
            autocompletion=completion.configurations,
        ),
    ] = None,
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
    dap: Annotated[bool, typer.Option("--dap", help="Let an editor drive it.")] = False,
) -> None:
    if dap and (kernel or launch or schedule or run or script):
        raise UserError("--dap: the editor's launch request says what is debugged", next_step="give --dap alone")
    if dap:
        context.obj.action = _adapt
        return
    if kernel is None:
        raise UserError("no kernel", next_step="name a configuration, or a file of PTX with --launch")
    context.obj.action = partial(_debug, kernel, launch, schedule, run, script)


def _debug(kernel: str, launch: Path | None, schedule: str | None, run: str | None, script: Path | None) -> ExitCode:
    from fmha.emulator.debug.session import Session
    from fmha.emulator.debug.terminal import Terminal

    front = Terminal(_script(script) if script else _typed(), print)
    with _chosen(kernel, launch, schedule, run) as chosen:
        Session(chosen.run, front).debug()
    return ExitCode.PASS


def _chosen(kernel: str, launch: Path | None, schedule: str | None, run: str | None) -> AbstractContextManager[Subject]:
    from fmha.harness.see.replay import archived

    if run is None:
        return nullcontext(subject(kernel, launch, schedule))
    if launch is not None or schedule is not None:
        raise UserError("--run: the run says how it was launched", next_step="leave --launch and --schedule out")
    return archived(root_for(None), run, kernel)


def _adapt() -> ExitCode:
    from fmha.emulator.debug.adapter import Adapter

    Adapter(sys.stdin.buffer, sys.stdout.buffer, _opened).serve()
    return ExitCode.PASS


@contextmanager
def _opened(given: dict[str, Any]) -> Iterator[Debuggee]:
    """What an editor's launch request names. Raises UserError."""
    from fmha.emulator.debug.adapter import Debuggee

    kernel, launch, schedule, run = (given.get(name) for name in ("kernel", "launch", "schedule", "run"))
    if not isinstance(kernel, str):
        raise UserError("the launch request has no `kernel`")
    with _chosen(kernel, Path(launch) if launch else None, schedule, run) as chosen:
        yield Debuggee(chosen.run, chosen.ptx, chosen.root)


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
