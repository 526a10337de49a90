"""`fmha baseline`: accept, show."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import archive
from fmha.harness.archive import BASELINES, RunRecord, signature
from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json, Quiet, Results, Verbose, archive_folder
from fmha.harness.cli.output import print_json, say
from fmha.harness.cli.progress import progress_for
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.evidence import baseline
from fmha.harness.stages.preflight import home_of

HELP = """The runs that fmha regress holds others against, one for each kind of host.

A baseline is an archived run in results/baselines/, checked in, with the reason why it was accepted and the noise that
other seeds make in its numbers.

\b
Examples:
  fmha baseline accept latest --why 'head_dim 128 added'
  fmha baseline accept HEAD --why 'P is rounded once' --seeds 30
  fmha baseline accept latest --why 'suite cover added' --name emulator-cover --allowance warp_instructions=0
  fmha baseline sign emulator --key ~/.ssh/id_ed25519
  fmha baseline show
"""

SEEDS = 20
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="An SSH key to sign with.  [default: the one git signs with, if any]"),
]

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command(
    name="accept",
    help="Make an archived run the baseline of its kind of host; runs what is new under more seeds.",
)
def accept(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The run; latest for the newest.", autocompletion=completion.records)
    ],
    why: Annotated[str, typer.Option(help="The reason, kept in the baseline.")],
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="How many seeds the noise comes from.")] = SEEDS,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="One of several.  [default: that of the kind of host]")
    ] = None,
    allowance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COUNTER=SHARE",
            help="By what share a counter may grow, 0.02 where it is not said. May be repeated.",
        ),
    ] = None,
    key: Key = None,
    afresh: Annotated[
        bool,
        typer.Option("--afresh", help="Measure all noise, also of configurations that give the same bits as before."),
    ] = False,
    results: Results = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    context.obj.action = partial(
        _accept, run, why, seeds, name, tuple(allowance or ()), key, afresh, results, json, quiet, verbose
    )


@app.command(name="sign", help="Sign a baseline as it is, with an SSH key.")
def sign(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The baseline.")],
    key: Key = None,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_sign, name, key, results, json)


@app.command(name="show", help="Show what was accepted, when and why.")
def show(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One baseline.  [default: all]")] = None,
    results: Results = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_show, name, results, json)


def _accept(
    run: str,
    why: str,
    seeds: int,
    name: str | None,
    allowance: Sequence[str],
    key: Path | None,
    afresh: bool,
    results: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> ExitCode:
    if name is not None and not NAME.fullmatch(name):
        raise UserError(f"--name: {name!r} is not made of small letters, digits and hyphens")
    allowances = dict(map(_allowance, allowance))
    folder, root = archive_folder(results), home_of(Path.cwd())
    found = archive.find(run, folder, root)
    key = key or signature.usual_key(root)
    with progress_for(sys.stderr, quiet, verbose) as progress:
        accepted = baseline.accept(
            found.record, why, seeds, folder, root, progress, name=name, allowances=allowances, key=key, afresh=afresh
        )
    if json:
        by = signature.check(accepted.path).by
        print_json("baseline", 1, {"baselines": [_fields(accepted.path.stem, accepted.record) | {"signed_by": by}]})
    else:
        say(f"{accepted.path}: commit {accepted.record.commit.sha[:12]}, noise of {accepted.runs} seeds; commit it")
        if accepted.kept:
            say(f"noise of {accepted.kept} configurations is the last baseline's: their outputs have the same bits")
        say(signature.check(accepted.path).note if key is None else f"signed with {key}")
    return ExitCode.PASS


def _allowance(text: str) -> tuple[str, float]:
    counter, _, share = text.partition("=")
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not (counter and 0 <= value < math.inf):
        raise UserError(f"--allowance: {text!r} is not COUNTER=SHARE, as in warp_instructions=0.05")
    return counter, value


def _sign(name: str, key: Path | None, results: Path | None, json: bool) -> ExitCode:
    path = baseline.path_of(name, archive_folder(results))
    if not path.is_file():
        raise UserError(f"there is no baseline {name}", where=str(path.parent))
    record = archive.read(path)
    key = key or signature.usual_key(home_of(Path.cwd()))
    if key is None:
        raise UserError("git signs with no SSH key here", next_step="name one with --key")
    signature.sign(path, key)
    signed = signature.check(path)
    if json:
        print_json("baseline", 1, {"baselines": [_fields(path.stem, record) | {"signed_by": signed.by}]})
    else:
        say(signed.note)
    return ExitCode.PASS


def _show(name: str | None, results: Path | None, json: bool) -> ExitCode:
    folder = archive_folder(results)
    names = [name] if name else sorted(path.stem for path in (folder / BASELINES).glob("*.json"))
    if not names:
        raise UserError("no baseline yet", where=str(folder / BASELINES), next_step="fmha baseline accept makes one")
    records, damaged = {}, []
    for each in names:
        try:
            records[each] = baseline.load(each, folder)
        except UserError as error:
            if name or len(names) == 1:
                raise
            damaged.append({"name": each, "error": str(error)})
    if json:
        shown = [_fields(*item) | {"signed_by": _signed(item[0], folder).by} for item in records.items()]
        print_json("baseline", 1, {"baselines": shown, "unreadable": damaged})
        return ExitCode.USAGE if damaged else ExitCode.PASS
    for name, record in records.items():
        say(
            f"{name}: commit {record.commit.sha[:12]}, suite {record.selection.suite},"
            f" {len(record.configurations)} configurations"
        )
        say(f"  {_signed(name, folder).note}")
        if record.acceptance:
            taken = record.acceptance
            say(f"  {taken.accepted:%Y-%m-%d} by {taken.by}, noise of {len(taken.seeds)} seeds: {taken.why}")
    for one in damaged:
        print(f"fmha: {one['error']}", file=sys.stderr)
    return ExitCode.USAGE if damaged else ExitCode.PASS


def _signed(name: str, folder: Path) -> signature.Signed:
    return signature.check(baseline.path_of(name, folder))


def _fields(name: str, record: RunRecord) -> dict[str, object]:
    taken = record.acceptance
    return {
        "name": name,
        "commit": record.commit.sha,
        "suite": record.selection.suite,
        "configurations": len(record.configurations),
        "accepted": taken.accepted.isoformat() if taken else None,
        "by": taken.by if taken else None,
        "why": taken.why if taken else None,
        "replaces": taken.replaces if taken else None,
        "seeds": list(taken.seeds) if taken else [],
    }
