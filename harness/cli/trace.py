"""`fmha trace`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness import account
from fmha.harness.cli.common_options import ORDER, Json
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Which, subject
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.cpp_names import short
from fmha.harness.errors import ExitCode

if TYPE_CHECKING:
    from fmha.harness.see.launch_subject import LaunchSubject

HELP = f"""Write a modelled timeline of one CTA, or of those that an SM holds at once, for https://ui.perfetto.dev:
warps by role, copies, products, waits with who is waited for, and the critical path. docs/understand/timing.md says how
to read it. Of several launches it is the first, as the forward is where keys are split, or the one that --launch names.

{NAMES}

\b
Examples:
  fmha trace hd128_t128_sk4096_out-bf16 --output trace.json --svg trace.svg
  fmha trace hd128_t1_sk8192_out-bf16_splits8 --launch combine
  fmha trace kernel.ptx --launch launch.yaml --gpu h200
  fmha trace --launch 3 -- ./program
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Whose time: h200, h100, b200, gb200 or gb300.  [default: b200, or h200 of PTX for sm_90]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The file to write.  [default: .fmha/trace/ENTRY.json, which git does not see]")
    ] = None,
    launch: Which = None,
    arch: Arch = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")] = None,
    order: Annotated[str, typer.Option(help=ORDER)] = "ptx",
    json: Json = False,
) -> None:
    named = partial(subject, context, kernel, launch, None, arch)
    context.obj.action = partial(_run, named, gpu, output, svg, order, json)


def _run(
    named: Callable[[], LaunchSubject], gpu: str | None, output: Path | None, svg: Path | None, order: str, json: bool
) -> ExitCode:
    from fmha.harness.see import modelled  # here: no other command needs the machine
    from fmha.harness.see.call_time import seconds_of
    from fmha.harness.see.launch_subject import place_of
    from fmha.harness.see.timelines import drawn

    if gpu is not None:
        modelled.known_gpu(gpu)
    known = modelled.known_order(order)
    chosen = named()
    gpu = gpu or chosen.gpu
    time = chosen.time(gpu, known)
    place = place_of(chosen.which or "1", [entry for entry, _ in time.timings])
    entries = [short(entry) for entry, _ in time.timings]
    timeline, sources = modelled.timeline_of(time, place)
    if output is None:
        plain = "".join(c if c.isalnum() or c in "_-" else "_" for c in entries[place])
        output = account.made_in_checkout(home(), "trace") / f"{plain[:100]}.json"
    clock = time.architecture.clock_mhz.value
    listing = time.sass.get(time.timings[place][0])
    write_file(output, timeline.document(clock, sources, listing.by_line if listing else None))
    for line in modelled.matched(time):
        print(line, file=sys.stderr)
    if svg is not None:
        write_file(svg, drawn(f"{chosen.name}, {entries[place]}, modelled on {gpu.upper()}, cycles", timeline))
    launches = time.launches()
    whole = seconds_of(time.architecture, launches) * 1e6
    took = [made.seconds * 1e6 for made in launches]
    busy = sorted(timeline.busy.items(), key=lambda item: -item[1])
    shares = timeline.shares(timeline.critical_path())
    free = sorted(modelled.what_if(time).items(), key=lambda item: item[1])
    if json:
        fields = {
            "kernel": chosen.name,
            "gpu": gpu,
            "output": str(output),
            "svg": str(svg) if svg else None,
            "launch": place + 1,
            "launches": [{"entry": entry, "us": us} for entry, us in zip(entries, took, strict=True)],
            "cycles": timeline.cycles,
            "busy": dict(busy),
            "critical_path": shares,
            "call_us": whole,
            "free_us": dict(free),
        }
        print_json("trace", 1, fields)
        return ExitCode.PASS
    print(f"wrote {output}: {timeline.cycles:.0f} cycles, {len(timeline.operations)} operations beside the warps")
    if len(entries) > 1:
        print(f"launch {place + 1} of {len(entries)}, {entries[place]}; all of them: {_each(entries, took)}")
    print(f"at work: {', '.join(f'{what} {part:.0%}' for what, part in busy if part >= 0.005)}")
    print(f"modelled, the call takes {whole:.1f} us; of the critical path of this CTA:")
    for what, share in shares.items():
        if share >= 0.005:
            print(f"  {share:5.1%} {what}")
    print("the call, if this were free:")
    for what, micros in free:
        print(f"  {micros:8.1f} us ({micros / whole - 1:+.0%}) {what}")
    return ExitCode.PASS


def home() -> Path:
    """The checkout that we are in; the folder itself outside of one."""
    from fmha.harness.stages.preflight import checkout_of

    return checkout_of(Path.cwd())


def _each(entries: list[str], took: list[float]) -> str:
    from fmha.harness.see.launch_subject import MOST_TOLD

    told = [f"{n} {entry} {us:.1f} us" for n, (entry, us) in enumerate(zip(entries, took, strict=True), 1)]
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return ", ".join([*told[:MOST_TOLD], *more])
