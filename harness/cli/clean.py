"""`fmha clean`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import clean, clean_here
from fmha.harness.stages.host_checkout import find_checkout

HELP = """Remove what is too old or too much. Without a host: builds of this account on this machine, those first that
were not used for longest. On a host elsewhere: finished runs with their worktrees first, then environments and build
caches. A live run is never touched.

\b
Examples:
  fmha clean --gigabytes 1
  fmha clean --host b200 --days 7 --gigabytes 20 --dry-run
"""


def command(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="A host elsewhere; this machine without one.", autocompletion=completion.hosts)
    ] = None,
    days: Annotated[float, typer.Option(min=0, max=36_500, help="Remove what is older.")] = 30.0,
    gigabytes: Annotated[
        float, typer.Option(min=0, max=1e6, help="Remove the oldest until no more than this is left.")
    ] = 50.0,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, host, days, gigabytes, dry, json)


def _run(host: str | None, days: float, gigabytes: float, dry: bool, json: bool) -> ExitCode:
    much = days * 86400, int(gigabytes * 1e9)
    removed = (
        clean_here(*much, dry=dry) if host is None else clean(find_checkout(Path.cwd()).named(host), *much, dry=dry)
    )
    if json:
        print_json("clean", 1, {"dry_run": dry, "removed": [item.model_dump() for item in removed]})
        return ExitCode.PASS
    for item in removed:
        say(f"{item.kind} {item.name}  {item.bytes / 1e6:.1f} MB")
    total = sum(item.bytes for item in removed) / 1e6
    what = f"{len(removed)}, {total:.1f} MB" if removed else "nothing: all is younger and smaller than that"
    say(f"{'would remove' if dry else 'removed'} {what}")
    return ExitCode.PASS
