"""`fmha roofline`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmha.harness.cli.common_options import ORDER, Filters, Json, Results, Suites, archive_folder, suites
from fmha.harness.cli.dashes import DASHES
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Which
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.config import load
from fmha.harness.cpp_names import short
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.judge.configuration import parse_id
from fmha.harness.stages.preflight import git_facts, project_of

if TYPE_CHECKING:
    from fmha.harness.see.call_time import Order
    from fmha.harness.see.modelled import MeasuredCall, ModelledRow
    from fmha.harness.see.picture import Point

HELP = f"""Say what bounds the kernels on a GPU that is not there: modelled time, the floors of memory and of the tensor
core, and the share of the floor that is reached. docs/understand/timing.md says how far the model is to be believed.

Several configurations and quoted programs may be given. {NAMES}

Of attention the floors are those of the call's own bytes and products. Of anything else they are what its launches
touch, and what the model gives its products. With --measured, a record of `fmha bench --peer`, its shapes are modelled
and stand beside what was measured.

\b
Examples:
  fmha roofline hd128_t1_sk8192_b16_h128_out-bf16
  fmha roofline --gpu h200 --measured results/beside-h200.json
  fmha roofline --free hd128_t4096_sk4096_b64_out-bf16
  fmha roofline --suite seed --archive
  fmha roofline kernel.ptx --launch launch.yaml
  fmha roofline --gpu h200 -- ./program
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Whose time: h200, h100, b200, gb200 or gb300.  [default: b200, or h200 of PTX for sm_90]"),
    ] = None,
    launch: Which = None,
    arch: Arch = None,
    measured: Annotated[Path | None, typer.Option(metavar="RECORD", help="What was measured on that GPU.")] = None,
    suite: Suites = None,
    filters: Filters = None,
    keep: Annotated[
        bool, typer.Option("--archive", help="Keep the times with the commit, for the trends of `fmha publish`.")
    ] = False,
    results: Results = None,
    free: Annotated[bool, typer.Option("--free", help="Also what a call gains if one thing cost nothing.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")] = None,
    order: Annotated[str, typer.Option(help=ORDER)] = "ptx",
    json: Json = False,
) -> None:
    chosen = suites(suite)
    if chosen and (kernel or measured):
        raise UserError("--suite: names what is modelled, as KERNEL and --measured do", next_step="use one")
    if keep and order != "ptx":
        raise UserError("--archive: trends are of times in the PTX's order", next_step="leave --order out")
    words = _Words(tuple(kernel or ()), launch, arch, context.meta[DASHES])
    kept = archive_folder(results) if keep else None
    context.obj.action = partial(_run, words, gpu, measured, chosen, tuple(filters or ()), kept, free, svg, order, json)


@dataclasses.dataclass(frozen=True, slots=True)
class _Words:
    """What names the launches on the command line."""

    words: tuple[str, ...]
    launch: str | None
    arch: str | None
    command: bool

    def names(self) -> list[tuple[str, ...]]:
        """The words of each."""
        return [self.words] if self.command else [(word,) for word in self.words]


def _run(
    words: _Words,
    gpu: str | None,
    record: Path | None,
    suite: str | None,
    filters: Sequence[str],
    kept: Path | None,
    free: bool,
    svg: Path | None,
    order: str,
    json: bool,
) -> ExitCode:
    from fmha.harness.see import modelled  # here: no other command needs the machine

    times = modelled.measured(record, partial(print, file=sys.stderr)) if record else {}
    if not (words.words or times or suite):
        raise UserError("nothing is named", next_step="name a configuration, or give --suite or --measured")
    if gpu is not None:
        modelled.known_gpu(gpu)
    known = modelled.known_order(order)
    commit = _clean_commit() if kept else ""
    names = words.names() or [(name,) for name in times]
    if suite:
        gpu = gpu or "b200"
        items, left_out = modelled.of_suite(load(project_of(Path.cwd())), suite, filters, gpu)
        names = [(item.id,) for item in items]
        for reason, count in left_out.items():
            print(f"{count} left out: {reason}", file=sys.stderr)
    rows = _rows(words, names, gpu, times, known, free)
    gpu = gpu or rows[0].gpu
    if kept:
        from fmha.harness.trends import modelled_times as trends

        seconds = {row.name: float(f"{row.modelled_us * 1e-6:.5g}") for row in rows if not row.forced}
        axes = {row.name: dict(row.parameters) for row in rows if not row.forced}
        found = trends.Times(commit, gpu, trends.model(), modelled.WITHIN[gpu], trends.now(), seconds, axes)
        path = trends.keep(kept, found)
        print(f"kept {len(seconds)} modelled times: {path}", file=sys.stderr)
    if svg is not None:
        from fmha.harness.see.picture import roofline

        drawn = [row for row in rows if row.flop is not None]
        if not drawn:
            what = "--svg: its axes are a call's bytes and products, and of nothing here is said how many it makes"
            raise UserError(what, next_step="name a configuration of attention")
        write_file(svg, roofline(f"Attention on {gpu.upper()}", *_roofs(drawn[0]), [_point(row) for row in drawn]))
        print(f"wrote {svg}", file=sys.stderr)
    if json:
        print_json("roofline", 1, {"gpu": gpu, "rows": [_plain(row) for row in rows]})
    else:
        print("\n".join(table(rows)))
    return ExitCode.PASS


def _rows(
    words: _Words,
    names: list[tuple[str, ...]],
    gpu: str | None,
    times: Mapping[str, MeasuredCall],
    order: Order,
    free: bool,
) -> list[ModelledRow]:
    """In the order of the names. Kernels of ours are built all at once, and the rest by itself."""
    from fmha.harness.see import modelled
    from fmha.harness.see.configurations import is_ours
    from fmha.harness.see.named import named

    rows: dict[tuple[str, ...], ModelledRow] = {}
    listings: dict[str, None] = {}
    ours = [parse_id(name[0]) for name in names if len(name) == 1 and not words.command and is_ours(name[0])]
    say = partial(print, file=sys.stderr)
    if ours:
        root, asked = project_of(Path.cwd()), [item.id for item in ours]
        ours = [modelled.as_measured(item, times.get(item.id), gpu or "b200") for item in ours]
        if pinned := sum(item.id != name for item, name in zip(ours, asked, strict=True)):
            say(f"{pinned} with the splits that were measured, in their names: the calls take others today")
        found = zip(asked, modelled.modelled(root, ours, gpu or "b200", say, order), strict=True)
        for name, (item, call, time) in found:
            only = modelled.only(time, words.launch)
            listings |= dict.fromkeys(modelled.matched(only))
            row = modelled.row_of(item, call, time, times.get(name), free)
            rows[name,] = row if only is time else modelled.row_of_launches(item.id, only, free)
    for each in names:
        if each not in rows:
            subject = named(each, words.launch, command=words.command, arch=words.arch)
            time = modelled.only(subject.time(gpu or subject.gpu, order), subject.which)
            listings |= dict.fromkeys(modelled.matched(time))
            rows[each] = modelled.row_of_launches(subject.name, time, free)
    for line in listings:
        say(line)
    return [rows[each] for each in names]


def _clean_commit() -> str:
    """The commit whose kernels are in the tree. UserError where the tree has others."""
    git = git_facts(Path.cwd())
    if git.dirty_files:
        step = "commit first, or leave --archive out"
        raise UserError(f"--archive: {git.dirty_files[0]} is not as in the commit", next_step=step)
    return git.commit


def table(rows: list[ModelledRow]) -> list[str]:
    """A line a configuration."""
    from fmha.harness.see.launch_subject import MOST_TOLD

    width = max(len("kernel"), *(len(row.name) for row in rows))
    lines = [f"{'kernel':{width}}  splits  modelled us  bound    memory us  product us  of floor  measured us  error"]
    for row in rows:
        beside = "" if row.measured_us is None else f"  {row.measured_us:11.1f}  {_error(row)}"
        lines.append(
            f"{row.name:{width}}  {row.splits or '-':>6}  {row.modelled_us:11.1f}  {row.bound:7}  "
            f"{row.memory_floor_us:9.1f}  {row.product_floor_us:10.1f}  {row.floor_us / row.modelled_us:8.0%}{beside}"
        )
    for row in rows:
        if len(row.launches) > 1:
            told = [f"{n} {short(entry)} {us:.1f}" for n, (entry, us) in enumerate(row.launches[:MOST_TOLD], 1)]
            more = len(row.launches) - MOST_TOLD
            parts = ", ".join([*told, *([f"and {more} more"] if more > 0 else [])])
            lines.append(f"{row.name}, its launches: {parts} us")
    for row in rows:
        if row.free is not None:
            gains = ", ".join(f"{what} -{gain:.0%}" for what, gain in row.free.items() if gain >= 0.005)
            lines.append(f"{row.name}, if this were free: {gains or 'nothing'}")
    if doubtful := sum(row.forced > 0 for row in rows):
        lines.append(f"of {doubtful} the model could not follow every wait: their times are not to be trusted")
    if others := sum(row.other_call for row in rows):
        lines.append(f"{others} were measured with other splits than the call takes: another call, and not compared")
    errors = [abs(row.error) for row in rows if row.error is not None]
    if errors:
        lines.append(f"{len(errors)} measured: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}")
    return lines


def _error(row: ModelledRow) -> str:
    """A share; or the splits of the other call that was measured."""
    return f"with {row.measured_splits} splits" if row.error is None else f"{row.error:+5.0%}"


def _roofs(row: ModelledRow) -> tuple[float, float]:
    """TB/s of memory and TFLOP/s of the tensor core, as the floors have them."""
    assert row.flop is not None
    return row.bytes / row.memory_floor_us * 1e-6, row.flop / row.product_floor_us * 1e-6


def _point(row: ModelledRow) -> Point:
    from fmha.harness.see.picture import Point

    assert row.flop is not None
    measured = None if row.measured_us is None else row.flop / row.measured_us * 1e-6
    return Point(row.name, row.flop / row.bytes, row.flop / row.modelled_us * 1e-6, measured)


def _plain(row: ModelledRow) -> dict[str, Any]:
    return {**dataclasses.asdict(row), "configuration": row.name}
