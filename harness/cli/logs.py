"""`fmha logs`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import logs
from fmha.harness.stages.attach import place_of
from fmha.harness.text import lines, one_line

HELP = """Print what a run on a host elsewhere wrote: its own log, then the standard error of each of its workers."""


def command(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, as fmha ps lists it.", autocompletion=completion.runs)
    ],
    host: Annotated[str | None, typer.Option(help="The host that has it.", autocompletion=completion.hosts)] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, run, host, json)


def _run(run: str, host: str | None, json: bool) -> ExitCode:
    found = logs(place_of(run, Path.cwd(), host), run)
    if json:
        print_json("logs", 1, {"run": run, "logs": [{"name": name, "text": text} for name, text in found]})
        return ExitCode.PASS
    for name, text in found:
        print(one_line(f"==> {name} <=="))
        for line in lines(text.removesuffix("\n")) if text else ():
            print(line)
    return ExitCode.PASS
