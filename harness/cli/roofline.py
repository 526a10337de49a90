"""`fmha roofline`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.options import Filters, Json, Results, Suites, archive_folder, suites
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.config import load
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.stages.preflight import git_facts, home_of

if TYPE_CHECKING:
    from fmha.harness.see.modelled import Row
    from fmha.harness.see.picture import Point

HELP = """Say what bounds the kernels on a GPU that is not there: modelled time, the floors of memory and of the tensor
core, and the share of the floor that is reached. docs/understand/timing.md says how far the model is to be believed.

CONFIGURATION is a name as `fmha run-matrix` prints it. With --measured, a record of `fmha bench --peer`, its shapes are
modelled and stand beside what was measured.

\b
Examples:
  fmha roofline hd128_t1_sk8192_b16_h128_out-bf16
  fmha roofline --gpu h200 --measured results/beside-h200.json
  fmha roofline --free hd128_t4096_sk4096_b64_out-bf16
  fmha roofline --suite seed --archive
"""


def command(
    context: typer.Context,
    configurations: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIGURATION...", show_default=False, autocompletion=completion.configurations),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Whose time: h200, h100, b200, gb200 or gb300.")] = "b200",
    measured: Annotated[Path | None, typer.Option(metavar="RECORD", help="What was measured on that GPU.")] = None,
    suite: Suites = None,
    filters: Filters = None,
    keep: Annotated[
        bool, typer.Option("--archive", help="Keep the times with the commit, for the trends of `fmha publish`.")
    ] = False,
    results: Results = None,
    free: Annotated[bool, typer.Option("--free", help="Also what a call gains if one thing cost nothing.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")] = None,
    json: Json = False,
) -> None:
    chosen = suites(suite)
    if chosen and (configurations or measured):
        raise UserError("--suite: names what is modelled, as CONFIGURATION and --measured do", next_step="use one")
    kept = archive_folder(results) if keep else None
    asked = (configurations or [], gpu, measured, chosen, tuple(filters or ()), kept)
    context.obj.action = partial(_run, *asked, free, svg, json)


def _run(
    names: list[str],
    gpu: str,
    record: Path | None,
    suite: str | None,
    filters: Sequence[str],
    kept: Path | None,
    free: bool,
    svg: Path | None,
    json: bool,
) -> ExitCode:
    from fmha.harness.see import modelled  # here: no other command needs the machine

    times = modelled.measured(record) if record else {}
    if not (names or times or suite):
        raise UserError("no configuration", next_step="name one, or give --suite or --measured")
    commit = _clean_commit() if kept else ""
    if suite:
        items, left_out = modelled.of_suite(load(home_of(Path.cwd())), suite, filters, gpu)
        for reason, count in left_out.items():
            print(f"{count} left out: {reason}", file=sys.stderr)
    else:
        items = modelled.configurations_of(names or list(times), gpu)
    rows = [
        modelled.row_of(item, call, time, times.get(item.id), free)
        for item, call, time in modelled.modelled(home_of(Path.cwd()), items, gpu, partial(print, file=sys.stderr))
    ]
    if kept:
        from fmha.harness.trends import modelled as trends

        seconds = {row.configuration.id: float(f"{row.modelled_us * 1e-6:.5g}") for row in rows if not row.forced}
        axes = {row.configuration.id: row.configuration.parameters for row in rows if not row.forced}
        found = trends.Times(commit, gpu, trends.model(), modelled.WITHIN[gpu], trends.now(), seconds, axes)
        path = trends.keep(kept, found)
        print(f"kept {len(seconds)} modelled times: {path}", file=sys.stderr)
    if svg is not None:
        from fmha.harness.see.picture import roofline

        write_file(svg, roofline(f"Attention on {gpu.upper()}", *_roofs(rows[0]), [_point(row) for row in rows]))
        print(f"wrote {svg}", file=sys.stderr)
    if json:
        print_json("roofline", 1, {"gpu": gpu, "rows": [_plain(row) for row in rows]})
    else:
        print("\n".join(table(rows)))
    return ExitCode.PASS


def _clean_commit() -> str:
    """The commit whose kernels are in the tree. UserError where the tree has others."""
    git = git_facts(Path.cwd())
    if git.dirty_files:
        step = "commit first, or leave --archive out"
        raise UserError(f"--archive: {git.dirty_files[0]} is not as in the commit", next_step=step)
    return git.commit


def table(rows: list[Row]) -> list[str]:
    """A line a configuration."""
    width = max(len("configuration"), *(len(row.configuration.id) for row in rows))
    lines = [
        f"{'configuration':{width}}  splits  modelled us  bound    memory us  product us  of floor  measured us  error"
    ]
    for row in rows:
        beside = "" if row.measured_us is None else f"  {row.measured_us:11.1f}  {row.error:+5.0%}"
        lines.append(
            f"{row.configuration.id:{width}}  {row.splits:6}  {row.modelled_us:11.1f}  {row.bound:7}  "
            f"{row.memory_floor_us:9.1f}  {row.product_floor_us:10.1f}  {row.floor_us / row.modelled_us:8.0%}{beside}"
        )
    for row in rows:
        if len(row.launches) > 1:
            parts = ", ".join(f"{entry} {us:.1f}" for entry, us in row.launches)
            lines.append(f"{row.configuration.id}, its launches: {parts} us")
    for row in rows:
        if row.free is not None:
            gains = ", ".join(f"{what} -{gain:.0%}" for what, gain in row.free.items() if gain >= 0.005)
            lines.append(f"{row.configuration.id}, if this were free: {gains or 'nothing'}")
    if doubtful := sum(row.forced > 0 for row in rows):
        lines.append(f"of {doubtful} the model could not follow every wait: their times are not to be trusted")
    errors = [abs(row.error) for row in rows if row.error is not None]
    if errors:
        lines.append(f"{len(errors)} measured: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}")
    return lines


def _roofs(row: Row) -> tuple[float, float]:
    """TB/s of memory and TFLOP/s of the tensor core, as the floors have them."""
    return row.bytes / row.memory_floor_us * 1e-6, row.flop / row.product_floor_us * 1e-6


def _point(row: Row) -> Point:
    from fmha.harness.see.picture import Point

    measured = None if row.measured_us is None else row.flop / row.measured_us * 1e-6
    return Point(row.configuration.id, row.flop / row.bytes, row.flop / row.modelled_us * 1e-6, measured)


def _plain(row: Row) -> dict[str, Any]:
    return dataclasses.asdict(row) | {"configuration": row.configuration.id}
