"""`fmha trace`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.output import write_file
from fmha.harness.errors import ExitCode
from fmha.harness.stages.preflight import home_of

HELP = """Write a modelled timeline of one CTA, or of those that an SM holds at once, for https://ui.perfetto.dev: warps
by role, copies, products, waits with who is waited for, and the critical path. docs/understand/timing.md says how to
read it. Of a call whose keys are split it is the forward kernel's, or that of another launch, as --launch says.

\b
Examples:
  fmha trace hd128_t128_sk4096_out-bf16 --output trace.json --svg trace.svg
  fmha trace hd128_t1_sk8192_out-bf16_splits8 --launch combine
"""


def command(
    context: typer.Context,
    configuration: Annotated[
        str, typer.Argument(metavar="CONFIGURATION", show_default=False, autocompletion=completion.configurations)
    ],
    gpu: Annotated[str, typer.Option(help="Whose time: h200, h100, b200, gb200 or gb300.")] = "b200",
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("trace.json"),
    launch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of several launches, the one whose entry holds it.  [default: the forward]"),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")] = None,
) -> None:
    context.obj.action = partial(_run, configuration, gpu, output, launch, svg)


def _run(name: str, gpu: str, output: Path, launch: str | None, svg: Path | None) -> ExitCode:
    from fmha.harness.see import modelled  # here: no other command needs the machine
    from fmha.harness.see.timelines import drawn

    items = modelled.configurations_of([name], gpu)
    ((_, _, time),) = modelled.modelled(home_of(Path.cwd()), items, gpu, partial(print, file=sys.stderr))
    entry = modelled.launch_of(time, launch)
    timeline, sources = modelled.timeline_of(time, entry)
    clock = time.architecture.clock_mhz.value
    write_file(output, timeline.document(clock, sources))
    if svg is not None:
        write_file(svg, drawn(f"{name}, {entry}, modelled on {gpu.upper()}, cycles", timeline))
    links = timeline.critical_path()
    whole = time.seconds() * 1e6
    print(f"wrote {output}: {timeline.cycles:.0f} cycles, {len(timeline.operations)} operations beside the warps")
    if len(time.timings) > 1:
        each = zip(time.timings, time.launches(), strict=True)
        took = ", ".join(f"{other} {made.seconds * 1e6:.1f} us" for (other, _), made in each)
        print(f"of {entry} alone, one of {len(time.timings)} launches of the call: {took}")
    busy = sorted(timeline.busy.items(), key=lambda item: -item[1])
    print(f"at work: {', '.join(f'{what} {part:.0%}' for what, part in busy if part >= 0.005)}")
    print(f"modelled, the call takes {whole:.1f} us; of the critical path of this CTA:")
    for what, share in timeline.shares(links).items():
        if share >= 0.005:
            print(f"  {share:5.1%} {what}")
    print("the call, if this were free:")
    for what, micros in sorted(modelled.what_if(time).items(), key=lambda item: item[1]):
        print(f"  {micros:8.1f} us ({micros / whole - 1:+.0%}) {what}")
    return ExitCode.PASS
