"""`fmha results`: ls, show, verify, prune."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import archive
from fmha.harness.archive import Index, prune, signature
from fmha.harness.archive.index import RUN_NAME, RunRow
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Results, archive_folder
from fmha.harness.cli.output import print_json, print_table, say
from fmha.harness.cli.screen import Console
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence.views import row_fields
from fmha.harness.stages import report

HELP = """The archive of runs: list, show, check and thin it out.

Every run is one file in results/. Files that cannot be read are named on standard error and skipped. RUN is a file, the
name of a run or its start, a commit (its newest run), [COMMIT]@[HOST][:SCHEDULE], latest or baseline:NAME.

\b
Examples:
  fmha results ls --host emulator
  fmha results show latest
  fmha results verify
  fmha results prune --keep 20 --older-than 90 --compress --dry-run
"""

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="Show at most so many, the newest.")]


@app.command(name="ls", help="List runs, the newest first.")
def ls(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Only runs of this host, or kind of host.")] = None,
    limit: Limit = 30,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_ls, host, limit, results, json)


@app.command(name="show", help="Show a run: its table, what went wrong, its verdict.")
def show(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The run; latest for the newest.", autocompletion=completion.records)
    ] = "latest",
    results: Results = None,
    json: Annotated[bool, typer.Option("--json", help="Print the record, brought to the current schema.")] = False,
) -> None:
    context.obj.action = partial(_show, run, results, json)


@app.command(name="verify", help="Read every file of the archive, baselines too; exit with 1 when one is damaged.")
def verify(context: typer.Context, results: Results = None, json: Json = False) -> None:
    context.obj.action = partial(_verify, results, json)


@app.command(name="prune", help="Remove or compress old runs; never baselines.")
def prune_command(
    context: typer.Context,
    keep: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Leave the newest so many of every host and suite alone.")
    ] = 50,
    older_than: Annotated[
        int | None,
        typer.Option(min=0, max=36_500, metavar="DAYS", help="Leave those alone that are younger than this."),
    ] = None,
    compress: Annotated[bool, typer.Option("--compress", help="Rewrite as .json.gz in place of removing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_prune, keep, older_than, compress, dry_run, results, json)


def _ls(host: str | None, limit: int, results: Path | None, json: bool) -> ExitCode:
    with Index(archive_folder(results)) as index:
        rows, broken = index.runs(host=host), index.unreadable()
    if json:
        unreadable = [{"name": item.name, "error": item.error} for item in broken]
        fields = {"total": len(rows), "runs": [row_fields(row) for row in rows[:limit]], "unreadable": unreadable}
        print_json("results", 1, fields)
    else:
        columns = ("run", "commit", "host", "suite", "seed", "verdict", "passed")
        print_table(columns, [_cells(row) for row in rows[:limit]], Console(), left=4, whole=("verdict", "passed"))
        if len(rows) > limit:
            say(f"{len(rows) - limit} more; --limit shows them")
    for item in broken:
        print(f"fmha: {item.name}: {item.error}; skipped", file=sys.stderr)
    return ExitCode.PASS


LENIENT = " lenient"  # behind what was held to the lenient rules


def _cells(row: RunRow) -> tuple[str, ...]:
    suite = f"{row.suite} {row.filter}".strip()
    commit = row.sha[:12] + ("+" if row.dirty else "")
    return (
        stem(row.name),
        commit,
        row.host,
        suite,
        str(row.seed),
        row.word + (LENIENT if row.lenient else ""),
        f"{row.passed}/{row.total}",
    )


def stem(name: str) -> str:
    """The name of a run without the endings of its file."""
    return name.removesuffix(".gz").removesuffix(".json")


def _show(run: str, results: Path | None, json: bool) -> ExitCode:
    found = archive.find(run, archive_folder(results), Path.cwd())
    if json:
        sys.stdout.buffer.write(archive.dumps(found.record).encode())
    else:
        report.show(found.record, found.path, Console())
    return ExitCode.PASS


def _verify(results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    checked, broken = 0, []
    for path in sorted([*_runs(folder), *(folder / archive.BASELINES).glob("*.json")]):
        checked += 1
        try:
            archive.read(path)
            if path.parent.name == archive.BASELINES:
                signature.check(path)
        except UserError as error:
            broken.append({"file": str(path), "error": error.what})
    if json:
        print_json("verify", 1, {"checked": checked, "broken": broken})
    else:
        for item in broken:
            say(f"{item['file']}: {item['error']}")
        say(f"{checked} files, {len(broken)} broken")
    return ExitCode.GATE_FAILED if broken else ExitCode.PASS


def _runs(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if RUN_NAME.fullmatch(path.name)] if folder.is_dir() else []


def _prune(
    keep: int, older_than: int | None, compress: bool, dry_run: bool, results: Path | None, json: bool
) -> ExitCode:
    folder = archive_folder(results)
    limit = None if older_than is None else timedelta(days=older_than)
    with Index(folder) as index:
        rows = prune.prunable(index, keep=keep, older_than=limit, now=datetime.now(UTC))
    if compress:
        rows = [row for row in rows if not row.name.endswith(".gz")]
    size = sum(row.size for row in rows)
    if not dry_run:
        if compress:
            size = prune.compress(folder, rows)
        else:
            prune.remove(folder, rows)
    if json:
        fields = {"dry_run": dry_run, "compress": compress, "runs": [row.name for row in rows], "bytes": size}
        print_json("prune", 1, fields)
        return ExitCode.PASS
    verb = "would be " * dry_run + ("compressed" if compress else "removed")
    for row in rows:
        say(f"{row.name} {verb}")
    say(f"{len(rows)} runs {verb}, {size / 1e6:.1f} MB" + (" before" if dry_run and compress else ""))
    return ExitCode.PASS
