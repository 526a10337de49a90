"""`fmha compare`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import archive
from fmha.harness.archive import Found
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, print_table, say
from fmha.harness.cli.screen import Console
from fmha.harness.errors import ExitCode
from fmha.harness.evidence.asked import asked
from fmha.harness.evidence.baseline import with_noise
from fmha.harness.evidence.boxes import box_fields, box_lines
from fmha.harness.evidence.story import lines, sentence, tell, told_fields
from fmha.harness.evidence.views import Pair, comparison_fields, pairs, speed_lines
from fmha.harness.judge.comparison.comparison import compare
from fmha.harness.judge.metrics import HEADINGS, METRICS
from fmha.harness.stages.columns import value_of
from fmha.harness.stages.report import leniently

HELP = """Compare two runs, configuration by configuration.

A and B are files, names of archived runs or their start, commits (their newest run), [COMMIT]@[HOST][:SCHEDULE],
latest or baseline:NAME. Factors are those by which an error is larger in B. What got worse comes last, put together by
the filter that the configurations have in common: fmha regress turns that into an exit code, compare exits with 0
unless it is asked for one. The noise of errors is that of the baseline of A's host, where there is one.

\b
Examples:
  fmha compare HEAD~1 HEAD
  fmha compare @emulator @h200
  fmha compare baseline:emulator latest --changed
  fmha compare v1.0 results/20261121T030405Z-0123456789ab-emulator.json --json
"""

_VALUES = [name for name in HEADINGS if METRICS[name].least]  # shown as they are; of all, the factor of the error
COLUMNS = (
    "configuration",
    "status",
    *(f"{HEADINGS[name]} {run}" for name in _VALUES for run in "AB"),
    *(f"1-{heading}" if METRICS[name].least else heading for name, heading in HEADINGS.items()),
    "bits",
)


def command(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier run.", autocompletion=completion.records)],
    b: Annotated[str, typer.Argument(metavar="B", help="The later run.", autocompletion=completion.records)],
    changed: Annotated[bool, typer.Option("--changed", help="Only configurations that are not the same.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 1 where something is worse in B.")] = False,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, a, b, changed, exit_code, results, json)


def _run(a: str, b: str, changed: bool, exit_code: bool, results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    first, second = (archive.find(wanted, folder, Path.cwd()) for wanted in (a, b))
    earlier = with_noise(first.record, folder)
    comparison = compare(earlier, second.record, asked(earlier, second.record))
    code = ExitCode.GATE_FAILED if exit_code and comparison.regressions else ExitCode.PASS
    if json:
        groups = tell(comparison, first.record, second.record)
        fields = comparison_fields(first, second, comparison) | told_fields(
            groups, comparison.compared, comparison.unasked
        )
        fields["times"] = box_fields(first.record, second.record)
        print_json("compare", 1, fields)
        return code
    for letter, found in (("A", first), ("B", second)):
        say(f"{letter}: {_header(found)}")
    for note in comparison.notes:
        say(f"note: {note}")
    shown = [pair for pair in pairs(first, second) if not changed or not _same(pair)]
    if shown:
        print_table(COLUMNS, [_cells(pair) for pair in shown], Console(), left=2, whole=("status", "bits"))
    for line in (*speed_lines(comparison), *box_lines(first.record, second.record)):
        say(line)
    groups = tell(comparison, first.record, second.record)
    for _, line in lines(groups, "fmha report A B"):
        say(line, "" if line.startswith(" ") else "red")
    if groups:
        say(sentence(groups, comparison.compared, comparison.unasked), "bold red")
    else:
        say(f"nothing worse in B, of {comparison.compared} configurations compared")
    return code


def _header(found: Found) -> str:
    record = found.record
    host = record.host.gpu.name if record.host.gpu else record.host.name
    dirty = "+" if record.commit.dirty else ""
    where = f"commit {record.commit.sha[:12]}{dirty} on {host}"
    return f"{found.path.name}, {where}, seed {record.selection.seed}{leniently(record)}"


def _same(pair: Pair) -> bool:
    return bool(pair.a and pair.b and pair.a.status == pair.b.status and pair.same_bits is not False)


def _cells(pair: Pair) -> tuple[str, ...]:
    before, after = (str(item.status) if item else "-" for item in (pair.a, pair.b))
    status = before if before == after else f"{before} -> {after}"
    values = (value_of(name, item) if item else "-" for name in _VALUES for item in (pair.a, pair.b))
    factors = (_factor(pair.factor(metric)) for metric in HEADINGS)
    bits = {None: "-", True: "same", False: "differ"}[pair.same_bits]
    return (pair.id, status, *values, *factors, bits)


def _factor(value: float | None) -> str:
    return "-" if value is None else f"x{value:.3g}"
