"""`fmha ps`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.cli.plain_text import columns, duration
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.hosts.host_answers import ListedRun
from fmha.harness.stages.administration import Listed, listing
from fmha.harness.stages.host_checkout import find_checkout
from fmha.harness.text import one_line

HELP = """List the runs on the hosts elsewhere, newest first.

All hosts of matrix.yaml that keep runs are asked, or the one that is named. Exits with 3 when a host does not answer.
"""


def command(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Ask this host alone.", autocompletion=completion.hosts)] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Show no more than so many, the newest.")] = 50,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, host, limit, json)


def _run(host: str | None, limit: int, json: bool) -> ExitCode:
    checkout = find_checkout(Path.cwd())
    places = [checkout.named(host)] if host else checkout.places()
    if not places:
        raise UserError("matrix.yaml has no host that keeps runs", next_step="docs/use/remote.md says how to add one")
    answers = listing(places)
    if json:
        print_json("ps", 1, {"hosts": [_fields(answer) for answer in answers]})
    else:
        _show(answers, limit)
    failed = [answer for answer in answers if answer.problem and (answer.known or host)]
    return ExitCode.INFRASTRUCTURE if failed else ExitCode.PASS


def _fields(answer: Listed) -> dict[str, object]:
    return {"host": answer.host, "runs": [run.model_dump() for run in answer.runs], "problem": answer.problem}


def _show(answers: list[Listed], limit: int) -> None:
    rows: dict[str, tuple[str, ...]] = {}
    for answer in answers:
        for run in answer.runs:
            if run.run in rows and run.host != answer.host:
                continue  # hosts that share a folder show the same runs
            rows[run.run] = (
                run.run,
                answer.host,
                run.state + (f", silent for {duration(run.silent_seconds)}" if _silent(run) else ""),
                duration(run.age_seconds),
                run.label,
                run.reason,
            )
    newest = [rows[name] for name in sorted(rows, reverse=True)]
    for line in columns([("RUN", "HOST", "STATE", "AGE", "WHAT", ""), *newest[:limit]]):
        print(line)
    if len(newest) > limit:
        print(f"and {len(newest) - limit} older; --limit shows more, fmha clean removes them")
    for answer in answers:
        if answer.problem:
            print(f"fmha: {one_line(answer.problem)}", file=sys.stderr)


def _silent(run: ListedRun) -> bool:
    """A live supervisor touches its heartbeat every second."""
    return run.live and run.silent_seconds > 10
