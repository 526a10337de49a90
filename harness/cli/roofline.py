"""`fmha roofline`."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.stages.preflight import home_of

if TYPE_CHECKING:
    from fmha.harness.see.modelled import Row

HELP = """Say what bounds the kernels on a GPU that is not there: modelled time, the floors of memory and of the tensor
core, and the share of the floor that is reached. docs/understand/timing.md says how far the model is to be believed.

CONFIGURATION is a name as `fmha run-matrix` prints it. With --measured, a record of `fmha bench --peer`, its shapes are
modelled and stand beside what was measured.

\b
Examples:
  fmha roofline hd128_t1_sk8192_b16_h128_out-bf16
  fmha roofline --gpu h200 --measured results/beside-h200.json
"""


def command(
    context: typer.Context,
    configurations: Annotated[
        list[str] | None,
        typer.Argument(metavar="CONFIGURATION...", show_default=False, autocompletion=completion.configurations),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Whose time: h200 or b200.")] = "b200",
    measured: Annotated[Path | None, typer.Option(metavar="RECORD", help="What was measured on that GPU.")] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, configurations or [], gpu, measured, json)


def _run(names: list[str], gpu: str, record: Path | None, json: bool) -> ExitCode:
    from fmha.harness.see import modelled  # here: no other command needs the machine

    times = modelled.measured(record) if record else {}
    if not (names or times):
        raise UserError("no configuration", next_step="name one, or give --measured")
    items = modelled.configurations_of(names or list(times), gpu)
    rows = [
        modelled.row_of(item, call, time, times.get(item.id))
        for item, call, time in modelled.modelled(home_of(Path.cwd()), items, gpu, partial(print, file=sys.stderr))
    ]
    if json:
        print_json("roofline", 1, {"gpu": gpu, "rows": [_plain(row) for row in rows]})
    else:
        print("\n".join(table(rows)))
    return ExitCode.PASS


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
    if doubtful := sum(row.forced > 0 for row in rows):
        lines.append(f"of {doubtful} the model could not follow every wait: their times are not to be trusted")
    errors = [abs(row.error) for row in rows if row.error is not None]
    if errors:
        lines.append(f"{len(errors)} measured: mean error {sum(errors) / len(errors):.1%}, worst {max(errors):.1%}")
    return lines


def _plain(row: Row) -> dict[str, Any]:
    return dataclasses.asdict(row) | {"configuration": row.configuration.id}
