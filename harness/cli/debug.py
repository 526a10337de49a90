"""`fmha debug`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.dashes import DASHES
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Scheduled, Which
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode, UserError

if TYPE_CHECKING:
    from fmha.emulator.debug.debug_adapter import Debuggee
    from fmha.harness.see.launch_subject import LaunchSubject

HELP = f"""Stop a launch on the emulator where it goes wrong, look at it, and go on or back.

{NAMES}

It stops before the first instruction, at breaks, at hazards, when nothing can go on, and at its end; of several
launches at all, unless --launch says one. `help` lists the commands; --script reads them from a file. Going back runs
the launch again: it is the same under the same schedule and seed.

--dap speaks the Debug Adapter Protocol on standard input and output: an editor drives it, and names KERNEL and the
options in its launch request as `kernel`, `launch`, `schedule` and `run`.

\b
Examples:
  fmha debug kernel.ptx --launch launch.yaml
  fmha debug hd64_t32_sk384 --schedule late
  fmha debug hd64_t1_sk128 --script session.txt
  fmha debug --launch 2 -- python script.py
  fmha debug --run latest hd64_t32_sk384
  fmha debug --dap
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
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
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead, of what --script's commands were answered.")
    ] = False,
) -> None:
    if dap and (kernel or launch or schedule or arch or run or script or json):
        raise UserError("--dap: the editor's launch request says what is debugged", next_step="give --dap alone")
    if dap:
        context.obj.action = _adapt
        return
    if json and script is None:
        raise UserError("--json: who types commands reads their answers", next_step="give --script FILE, too")
    if not kernel:
        raise UserError("no kernel", next_step="name a configuration, a file of PTX with --launch, or -- PROGRAM")
    named = partial(_chosen, tuple(kernel), launch, schedule, run, arch, context.meta[DASHES])
    context.obj.action = partial(_debug, named, script, json)


def _debug(named: Callable[[], AbstractContextManager[LaunchSubject]], script: Path | None, json: bool) -> ExitCode:
    from fmha.emulator.debug.session import DebugSession
    from fmha.emulator.debug.terminal import Terminal
    from fmha.harness.scripted.script_output import own_stdout

    said: list[dict[str, Any]] = [{"command": "", "lines": []}]

    def say(line: str) -> None:
        said[-1]["lines"].extend(line.splitlines())

    def asked(command: str) -> None:
        said.append({"command": command, "lines": []})

    with own_stdout() as ours, named() as chosen:
        show = partial(print, file=ours, flush=True)
        if script is None:
            front = Terminal(_typed(), show)
        elif json:
            front = Terminal(_script(script, asked), say)
        else:
            front = Terminal(_script(script, lambda line: show(f"(fmha) {line}")), show)
        DebugSession(chosen.launches, front).debug()
    if json:
        print_json("debug", 1, {"kernel": chosen.name, "answers": said})
    return ExitCode.PASS


def _chosen(
    words: Sequence[str],
    launch: str | None,
    schedule: str | None,
    run: str | None,
    arch: str | None = None,
    command: bool = False,
) -> AbstractContextManager[LaunchSubject]:
    from fmha.harness.see.named import named
    from fmha.harness.see.replay import archived
    from fmha.harness.stages.preflight import project_of

    if run is None:
        return nullcontext(named(words, launch, command=command, schedule=schedule, arch=arch))
    if schedule is not None:
        raise UserError("--run: the run says how it was launched", next_step="leave --schedule out")
    return nullcontext(replace(archived(project_of(Path.cwd()), run, words[0]), which=launch))


def _adapt() -> ExitCode:
    from fmha.emulator.debug.debug_adapter import EditorSession
    from fmha.harness.scripted.script_output import own_stdout

    with own_stdout() as ours:
        EditorSession(sys.stdin.buffer, cast(BinaryIO, ours.buffer), _opened).serve()
    return ExitCode.PASS


@contextmanager
def _opened(given: dict[str, Any]) -> Iterator[Debuggee]:
    """What an editor's launch request names. Raises UserError."""
    from fmha.emulator.debug.debug_adapter import Debuggee

    kernel, launch, schedule, run = (given.get(name) for name in ("kernel", "launch", "schedule", "run"))
    if not isinstance(kernel, str):
        raise UserError("the launch request has no `kernel`")
    with _chosen((kernel,), launch, schedule, run) as chosen:
        yield Debuggee(chosen.launches, chosen.ptx, chosen.root)


def _script(path: Path, asked: Callable[[str], None]) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    for line in lines:
        asked(line)
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
