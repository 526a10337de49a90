"""`fmha calibrate`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.errors import ExitCode, InfrastructureError
from fmha.harness.stages.preflight import project_of

if TYPE_CHECKING:
    from fmha.emulator.timing.architecture import Architecture
    from fmha.harness.see.evaluated import ComparedConstant, MeasuredConstant
    from fmha.harness.see.own_rows import OwnTime
    from fmha.harness.see.probed import Probes

HELP = """Measure the timing model's constants on the GPU of this machine, time calls of our kernels there, and say how
far the model was off. The file that it writes has the constants that the model should have there.
docs/understand/timing.md says what they are. It takes nvcc, a minute or two, and no root. --probes reads what
harness/see/probes printed elsewhere; then no call is timed.

\b
Examples:
  fmha calibrate --gpu b200 --output mine.yaml
  fmha roofline --gpu mine.yaml hd128_t1_sk8192_b16_h128_out-bf16
"""


def command(
    context: typer.Context,
    gpu: Annotated[str, typer.Option(help="What it is held to: h200, h100, b200, gb200 or gb300.")] = "b200",
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("calibrated.yaml"),
    probes: Annotated[Path | None, typer.Option(metavar="FILE", help="What the probes printed elsewhere.")] = None,
    calls: Annotated[bool, typer.Option("--calls/--no-calls", help="Time calls of our kernels, too.")] = True,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, gpu, output, probes, calls, json)


def _run(name: str, output: Path, printed: Path | None, calls: bool, json: bool) -> ExitCode:
    from fmha.harness.see import calibration, evaluated, modelled, probed

    gpu = modelled.known_gpu(name)
    if printed is None:
        device = _device()
        with tempfile.TemporaryDirectory(prefix="fmha-calibrate-") as folder:
            probes = calibration.run(calibration.build(Path(folder), gpu.arch))
    else:
        device, probes = f"{gpu.gpu}, of {printed.name}", probed.read(printed.read_text(encoding="utf-8"))
    measured, beside = evaluated.constants(probes, gpu), evaluated.compared(probes, gpu)
    if not json:
        _print(measured, beside, probes)
    write_file(output, calibration.record(measured, probes, (), gpu, device))
    timed = _timed(gpu, say=not json) if calls and printed is None else []
    if timed:
        write_file(output, calibration.record(measured, probes, timed, gpu, device))
    if json:
        _print_json(name, device, measured, beside, timed)
    print(f"wrote {output}: {len(measured)} of {len(gpu.times) + 4} constants; give it as --gpu", file=sys.stderr)
    return ExitCode.PASS


def _timed(gpu: Architecture, say: bool) -> list[OwnTime]:
    """Calls of our kernels, each told as soon as it is there."""
    from fmha.harness.see import own_rows

    found = []
    if say:
        print(f"\n{'call':42}  {'measured us':>11}  {'within':>6}  {'modelled':>9}  {'off':>6}")
    for one in own_rows.timed(project_of(Path.cwd()), gpu, partial(print, file=sys.stderr)):
        found.append(one)
        if say:
            numbers = f"{one.measured_us:11.2f}  {one.within:6.1%}  {one.modelled_us:9.2f}  {one.off:+6.0%}"
            print(f"{one.name:42}  {numbers}", flush=True)
    if say and found:
        errors = [abs(one.off) for one in found]
        print(f"the model is {sum(errors) / len(errors):.1%} off in the mean, {max(errors):.0%} at most")
    return found


def _print(measured: Sequence[MeasuredConstant], beside: Sequence[ComparedConstant], probes: Probes) -> None:
    from fmha.harness.see.evaluated import watts

    print(f"{'constant':23}  {'measured':>9}  {'within':>9}  {'modelled':>9}  {'within':>7}  {'off':>6}")
    for constant in measured:
        said = "" if constant.as_said else "  beyond both"
        off = "" if constant.off is None else f"{constant.off:+6.0%}"
        was = f"{constant.was.value:9.4g}  {constant.was.within:>7}"
        print(f"{constant.name:23}  {constant.value:9.4g}  {constant.uncertainty:9.2g}  {was}  {off:6}{said}")
    print(f"\n{'cycles of a':32}  {'measured':>9}  {'modelled':>9}  {'off':>6}")
    for one in beside:
        print(f"{one.name:32}  {one.measured:9.4g}  {one.modelled:9.4g}  {one.off:+6.0%}")
    if power := watts(probes):
        print(f"\n{power[0]:.0f} W while all SMs multiply, of {power[1]:.0f} W", end="")
    print(
        f"\n{probes['load_clock'].median:.0f} MHz while all SMs multiply, {probes['clock'].median:.0f} MHz without load"
    )


def _print_json(
    name: str,
    device: str,
    measured: Sequence[MeasuredConstant],
    beside: Sequence[ComparedConstant],
    timed: Sequence[OwnTime],
) -> None:
    told = [
        {"name": c.name, "value": c.value, "within": c.uncertainty, "modelled": c.was.value, "as_said": c.as_said}
        for c in measured
    ]
    cycles = [{"name": one.name, "measured": one.measured, "modelled": one.modelled} for one in beside]
    calls = [
        {"name": one.name, "measured_us": one.measured_us, "within": one.within, "modelled_us": one.modelled_us}
        for one in timed
    ]
    print_json("calibrate", 1, {"gpu": name, "device": device, "constants": told, "cycles": cycles, "calls": calls})


def _device() -> str:
    """This machine's GPU; InfrastructureError without one."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InfrastructureError("there is no GPU here", next_step="run it where one is, or give --probes") from error
    if done.returncode or not done.stdout.strip():
        raise InfrastructureError("no GPU answers", where="nvidia-smi", next_step="`fmha doctor` says what is missing")
    return done.stdout.splitlines()[0].strip()
