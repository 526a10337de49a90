"""`fmha history`."""

from __future__ import annotations

import difflib
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fmha.harness.archive import Index
from fmha.harness.archive.index import NumbersRow
from fmha.harness.cli.options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, print_table, say
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence.views import history_fields

HELP = """Show the numbers of one configuration in every archived run, the newest first.

A + after a commit marks a tree with uncommitted changes. The last column is the start of the outputs' hash: the same
hash is the same bits.

\b
Examples:
  fmha history hd64_t32_sk384
  fmha history hd64_t1_sk128 --host emulator --limit 100
  fmha history hd64_t1_sk128 --json | jq '.points[].metrics.cosine'
"""

COLUMNS = ("started", "commit", "host", "status", "seed", "cosine", "rel L2", "max err", "LSE err", "hazards", "hash")


def command(
    context: typer.Context,
    configuration: Annotated[str, typer.Argument(metavar="CONFIGURATION", help="Its id, e.g. hd64_t32_sk384.")],
    host: Annotated[str | None, typer.Option(help="Only runs of this host, or kind of host.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most so many, the newest.")] = 30,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, configuration, host, limit, results, json)


def _run(configuration: str, host: str | None, limit: int, results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    with Index(folder) as index:
        rows = index.history(configuration, host=host)
        broken = index.unreadable()
        if not rows:
            close = difflib.get_close_matches(configuration, index.configurations(), n=3, cutoff=0.4)
            where = f" on {host}" if host else ""
            hint = f"near it are {', '.join(close)}" if close else "fmha run-matrix makes one"
            raise UserError(f"no archived run has {configuration!r}{where}", where=str(folder), next_step=hint)
    if json:
        points = [history_fields(row) for row in rows[:limit]]
        print_json("history", 1, {"configuration": configuration, "total": len(rows), "points": points})
    else:
        print_table(COLUMNS, [_cells(row) for row in rows[:limit]], Console(), left=4)
        if len(rows) > limit:
            say(f"{len(rows) - limit} more; --limit shows them")
    if broken:
        names = ", ".join(item.name for item in broken[:3])
        print(f"fmha: {len(broken)} files skipped, {names}; fmha results verify says why", file=sys.stderr)
    return ExitCode.PASS


def _cells(row: NumbersRow) -> tuple[str, ...]:
    run, metrics = row.run, row.metrics
    cosine = metrics["cosine"]
    numbers = ["-" if value is None else f"{value:.1e}" for value in list(metrics.values())[1:4]]
    return (
        f"{run.started:%Y-%m-%d %H:%M}",
        run.sha[:12] + ("+" if run.dirty else ""),
        run.host,
        row.status,
        str(run.seed),
        "-" if cosine is None else f"{cosine:.8f}",
        *numbers,
        str(row.hazards),
        row.hash[:8] or "-",
    )
