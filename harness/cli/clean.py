"""`fmha clean`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import clean
from fmha.harness.stages.places import find_checkout

HELP = """Remove from a host elsewhere what is too old or too much: finished runs with their worktrees first, then
environments and build caches. A live run is never touched.

\b
Example:
  fmha clean --host b200 --days 7 --gigabytes 20 --dry-run
"""


def command(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The host.", autocompletion=completion.hosts)],
    days: Annotated[float, typer.Option(min=0, help="Remove what is older.")] = 30.0,
    gigabytes: Annotated[float, typer.Option(min=0, help="Remove the oldest until no more than this is left.")] = 50.0,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, host, days, gigabytes, dry, json)


def _run(host: str, days: float, gigabytes: float, dry: bool, json: bool) -> ExitCode:
    place = find_checkout(Path.cwd()).named(host)
    removed = clean(place, days * 86400, int(gigabytes * 1e9), dry=dry)
    if json:
        print_json("clean", 1, {"dry_run": dry, "removed": [item.model_dump() for item in removed]})
        return ExitCode.PASS
    for item in removed:
        say(f"{item.kind} {item.name}  {item.bytes / 1e6:.1f} MB")
    total = sum(item.bytes for item in removed) / 1e6
    what = f"{len(removed)}, {total:.1f} MB" if removed else "nothing: all is younger and smaller than that"
    say(f"{'would remove' if dry else 'removed'} {what}")
    return ExitCode.PASS
