"""`fmha hosts`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import typer

from harness.cli.options import Json
from harness.cli.output import print_json
from harness.cli.text import columns
from harness.errors import ExitCode
from harness.stages.administration import Reach, reach
from harness.stages.places import find_checkout

HELP = """List the hosts of matrix.yaml and whether they answer. Exits with 3 when one does not."""


def command(
    context: typer.Context,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, json)


def _run(json: bool) -> ExitCode:
    checkout = find_checkout(Path.cwd())
    here = [Reach(host.name, host.kind, "", "", 0.0) for host in checkout.matrix.hosts.values() if host.remote is None]
    answers = here + reach(checkout.places())
    if json:
        print_json("hosts", 1, {"hosts": [asdict(answer) for answer in answers]})
    else:
        rows = [(a.name, a.kind, a.means, a.problem or _answered(a)) for a in answers]
        for line in columns([("HOST", "KIND", "WHERE", "STATE"), *rows]):
            print(line)
    return ExitCode.INFRASTRUCTURE if any(answer.problem for answer in answers) else ExitCode.PASS


def _answered(answer: Reach) -> str:
    return f"answered in {answer.seconds:.1f} s" if answer.seconds else "this process"
