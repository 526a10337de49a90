"""`fmha cancel`."""

from __future__ import annotations

import getpass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import cancel
from fmha.harness.stages.attach import place_of

HELP = """End a run on a host elsewhere, and every process of it. What it has measured stays; fmha attach archives it.
"""


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
    answer = cancel(place_of(run, Path.cwd(), host), run, getpass.getuser())
    status = answer.status
    ended = (status.reason or status.state) if status else "no final status"
    if json:
        fields = {"run": run, "cancelled": answer.cancelled, "status": status.model_dump() if status else None}
        print_json("cancel", 1, fields)
    elif answer.cancelled:
        say(f"{run}: {ended}")
    else:
        say(f"{run} had ended before: {status.state if status else ended}")
    return ExitCode.PASS
