"""`fmha hosts`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.doctor import examined
from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.text import columns, duration
from fmha.harness.config import own
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import Reach, reach
from fmha.harness.stages.places import find_checkout
from fmha.harness.stages.preflight import git_root

HELP = """List the hosts of matrix.yaml, and your own, whether they answer, and who has their GPUs or waits for them.

Exits with 3 when a host does not answer.

Your own are in ~/.config/fmha/hosts.yaml; docs/remote.md says how. `fmha hosts add b200` writes one there and tries it.
"""

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    json: Json = False,
) -> None:
    if context.invoked_subcommand is None:
        context.obj.action = partial(_run, json)


@app.command(name="add", help="Add a host to your own, and say what is missing there.")
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What --host is to call it.")],
    alias: Annotated[str | None, typer.Option(help="Its alias in ~/.ssh/config.  [default: NAME]")] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_add, name, alias or name, json)


def _add(name: str, alias: str, json: bool) -> ExitCode:
    git_root(Path.cwd())  # outside of a checkout there is nothing to try it with
    path = own.add(name, alias)
    if not json:
        say(f"{path}: host {name}, alias {alias}")
    return examined(find_checkout(Path.cwd()).named(name), json)


def _run(json: bool) -> ExitCode:
    checkout = find_checkout(Path.cwd())
    here = [Reach(host.name, host.kind, "", "", 0.0) for host in checkout.matrix.hosts.values() if host.remote is None]
    answers = here + reach(checkout.places())
    if json:
        print_json("hosts", 1, {"hosts": [_plain(answer) for answer in answers]})
    else:
        rows = [(a.name, a.kind, a.means, a.problem or _answered(a)) for a in answers]
        for line in columns([("HOST", "KIND", "WHERE", "STATE"), *rows]):
            print(line)
        occupants = [row for answer in answers for row in _occupants(answer)]
        if occupants:
            print()
            for line in columns([("HOST", "GPU", "ACCOUNT", "RUN", "FOR", "PRIORITY", "STATE"), *occupants]):
                print(line)
    return ExitCode.INFRASTRUCTURE if any(answer.problem and answer.known for answer in answers) else ExitCode.PASS


def _plain(answer: Reach) -> dict[str, object]:
    return {**asdict(answer), "gpus": [row.model_dump() for row in answer.gpus]}


def _occupants(answer: Reach) -> Iterator[tuple[str, ...]]:
    for row in answer.gpus:
        since = "" if row.seconds is None else duration(row.seconds)
        state = f"waits at {row.position}" if row.position else "has it"
        yield answer.name, row.gpu, row.account, row.run or f"process {row.pid}", since, row.priority, state


def _answered(answer: Reach) -> str:
    return f"answered in {answer.seconds:.1f} s" if answer.seconds else "this process"
