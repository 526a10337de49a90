"""`fmha history`."""

from __future__ import annotations

import difflib
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.archive import Index
from fmha.harness.archive.index import NumbersRow
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, print_table, say
from fmha.harness.cli.results import LENIENT
from fmha.harness.cli.screen import Console
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence.views import history_fields
from fmha.harness.judge.metrics import HEADINGS, METRICS
from fmha.harness.stages.columns import shown_value
from fmha.harness.trends.ancestry import ListedCommit, ordered
from fmha.harness.trends.series import Series, one_series
from fmha.harness.trends.site import sure

HELP = """Show the numbers of one configuration over commits, the newest first, and where they step.

Commits are in the order of ancestry. A + after one marks a tree with uncommitted changes. The hash is the start of the
outputs' hash: the same hash is the same bits. Below the table, each metric that moved is drawn over commits, the oldest
left; ^ stands under a step for the worse, v under one for the better, and each is told with how sure it is.

\b
Examples:
  fmha history hd64_t32_sk384
  fmha history hd64_t1_sk128 --host emulator --limit 100
  fmha history hd64_t1_sk128 --json | jq '.points[].metrics.cosine'
"""

COLUMNS = ("started", "commit", "host", "status", "seed", *HEADINGS.values(), "hazards", "hash", "subject")
BARS = "▁▂▃▄▅▆▇█"
WIDEST = 60  # of a drawing; more commits share a column, and the largest of them is drawn
SUBJECT = 60
ALARMS = 1e-3  # histories that show a step where there is none


def command(
    context: typer.Context,
    configuration: Annotated[
        str,
        typer.Argument(
            metavar="CONFIGURATION", help="Its id, e.g. hd64_t32_sk384.", autocompletion=completion.archived
        ),
    ],
    host: Annotated[str | None, typer.Option(help="Only runs of this host, or kind of host.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="Show at most so many, the newest.")
    ] = 30,
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
    commits = ordered(Path.cwd(), {row.run.sha: row.run.started.isoformat() for row in rows})
    places = {commit.sha: place for place, commit in enumerate(commits)}
    rows.sort(key=lambda row: (places[row.run.sha], row.run.started), reverse=True)
    found = list(_series(configuration, rows, places))
    if json:
        points = [history_fields(row) | {"subject": commits[places[row.run.sha]].subject} for row in rows[:limit]]
        fields = {"configuration": configuration, "total": len(rows), "points": points, "steps": _steps(found, commits)}
        print_json("history", 1, fields)
    else:
        print_table(
            COLUMNS,
            [_cells(row, commits[places[row.run.sha]]) for row in rows[:limit]],
            Console(),
            left=4,
            whole=("status",),
        )
        if len(rows) > limit:
            say(f"{len(rows) - limit} more; --limit shows them")
        for series in found:
            for line in _drawn(series, commits):
                say(line)
    if broken:
        names = ", ".join(item.name for item in broken[:3])
        print(f"fmha: {len(broken)} files skipped, {names}; fmha results verify says why", file=sys.stderr)
    return ExitCode.PASS


def _series(name: str, rows: Sequence[NumbersRow], places: Mapping[str, int]) -> Iterator[Series]:
    """Each metric of each host that is not the same in all commits, the median of each commit's runs."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in reversed(rows):
        for figure, metric in METRICS.items():
            value = row.metrics[figure]
            if value is not None and not row.run.dirty:
                of = values.setdefault((figure, row.run.host), {})
                of.setdefault(places[row.run.sha], []).append(metric.error(value))
    for (name_of_metric, host), found in values.items():
        medians = {place: statistics.median(those) for place, those in found.items()}
        if len(set(medians.values())) > 1:
            yield one_series(name, name_of_metric, host, medians, ALARMS / len(values))


def _steps(found: Sequence[Series], commits: Sequence[ListedCommit]) -> list[dict[str, object]]:
    return [
        {
            "metric": series.figure,
            "host": series.line,
            "commit": commits[series.at[step.at]].sha,
            "before": step.before,
            "after": step.after,
            "chance": step.chance,
        }
        for series in found
        for step in series.steps
    ]


def _drawn(series: Series, commits: Sequence[ListedCommit]) -> Iterator[str]:
    """A line of bars, marks under them, and a line a step; errors on a logarithmic scale."""
    count = len(series.values)
    width = min(count, WIDEST)
    columns: list[list[int]] = [[] for _ in range(width)]
    for place in range(count):
        columns[place * width // count].append(place)
    scaled = [math.log(max(value, 0.0) + METRICS[series.figure].floor) for value in series.values]
    known = [value for value in scaled if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def bar(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.0
        return BARS[min(int(share * len(BARS)), len(BARS) - 1)] if math.isfinite(value) else "!"

    head = f"{METRICS[series.figure].words} on {series.line}: "
    bars = "".join(bar(max(scaled[place] for place in column)) for column in columns)
    yield f"{head}{bars} {series.values[0]:.1e} to {series.values[-1]:.1e} over {count} commits"
    if not series.steps:
        return
    marks = [" "] * width
    for step in series.steps:
        marks[step.at * width // count] = "^" if step.after > step.before else "v"
    yield " " * len(head) + "".join(marks).rstrip()
    for step in series.steps:
        commit = commits[series.at[step.at]]
        sign = "^" if step.after > step.before else "v"
        words = f"{step.before:.1e} to {step.after:.1e}, {sure(step.chance)}"
        yield f"  {sign} {commit.sha[:12]} {words}: {commit.subject or 'not in this clone'}"


def _cells(row: NumbersRow, commit: ListedCommit) -> tuple[str, ...]:
    run = row.run
    return (
        f"{run.started:%Y-%m-%d %H:%M}",
        run.sha[:12] + ("+" if run.dirty else ""),
        run.host,
        row.status + (LENIENT if row.lenient else ""),
        str(run.seed),
        *(shown_value(metric, row.metrics[metric]) for metric in HEADINGS),
        str(row.hazards),
        row.hash[:8] or "-",
        commit.subject[:SUBJECT],
    )
