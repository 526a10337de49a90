"""`fmha calibrate`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.errors import ExitCode, InfrastructureError

if TYPE_CHECKING:
    from fmha.harness.see.calibration import Measured

HELP = """Measure constants of the timing model on the GPU of this machine, and write those that the model should have
there. docs/understand/timing.md says what they are. It takes nvcc, seconds, and no root. No GPU has run it
yet. --probes reads what harness/see/probes.cu printed elsewhere.

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
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, gpu, output, probes, json)


def _run(name: str, output: Path, printed: Path | None, json: bool) -> ExitCode:
    from fmha.harness.see import calibration, modelled

    gpu = modelled.known_gpu(name)
    if printed is None:
        device = _device()
        with tempfile.TemporaryDirectory(prefix="fmha-calibrate-") as folder:
            probes = calibration.run(calibration.build(Path(folder), gpu.arch))
    else:
        device, probes = f"{gpu.gpu}, of {printed.name}", calibration.read(printed.read_text(encoding="utf-8"))
    measured = calibration.constants(probes, gpu)
    if json:
        told = [
            {"name": c.name, "value": c.value, "within": c.within, "modelled": c.was.value, "as_said": c.as_said}
            for c in measured
        ]
        print_json("calibrate", 1, {"gpu": name, "device": device, "constants": told})
    else:
        _print(measured)
    write_file(output, calibration.record(measured, probes, gpu, device))
    print(f"wrote {output}: {len(measured)} of {len(gpu.times) + 1} constants; give it as --gpu", file=sys.stderr)
    return ExitCode.PASS


def _print(measured: list[Measured]) -> None:
    print(f"{'constant':14}  {'measured':>9}  {'within':>6}  {'modelled':>9}  {'off':>6}")
    for constant in measured:
        said = "" if constant.as_said else f"  beyond its {constant.was.within}"
        print(
            f"{constant.name:14}  {constant.value:9.4g}  {constant.within:6.0%}  {constant.was.value:9.4g}  "
            f"{constant.off:+6.0%}{said}"
        )


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
