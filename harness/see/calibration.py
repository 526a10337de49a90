"""`fmha calibrate`: what is below probes/, built and run on the GPU of this machine, and the record of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from fmha.emulator.timing.architecture import Architecture
from fmha.harness.errors import InfrastructureError
from fmha.harness.see.evaluated import MeasuredConstant
from fmha.harness.see.own_rows import OwnTime
from fmha.harness.see.probed import Probes, read
from fmha.harness.worker.compilers.nvcc import find_nvcc

PROBES: Final = Path(__file__).parent / "probes" / "probes.cu"
SECONDS: Final = 300.0


def build(folder: Path, arch: str, options: Sequence[str] = ()) -> Path:
    """The program of the probes; InfrastructureError where nvcc does not compile it."""
    program = folder / "probes"
    command = [
        str(find_nvcc().path),
        "-std=c++17",
        "-O2",
        f"-arch={arch}",
        *options,
        "-o",
        str(program),
        str(PROBES),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InfrastructureError(f"nvcc: {done.stderr.strip()[:400]}", where=str(PROBES))
    return program


def run(program: Path) -> Probes:
    """On this machine's GPU; InfrastructureError where there is none or it fails."""
    try:
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"the probes took longer than {SECONDS:.0f} s", where=str(program)) from error
    if done.returncode:
        what = done.stderr.strip() or f"the probes ended with {done.returncode}"
        raise InfrastructureError(what, next_step="`fmha doctor` says what the GPU lacks")
    return read(done.stdout)


def record(
    measured: Sequence[MeasuredConstant],
    probes: Probes,
    calls: Sequence[OwnTime],
    gpu: Architecture,
    device: str,
) -> str:
    """A file of constants as those of emulator/timing, which `--gpu FILE` takes: what was measured over what `gpu` has,
    the probes themselves, and our calls beside the model before and with what was measured."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")

    def entry(constant: MeasuredConstant) -> dict[str, Any]:
        source = f"measured by fmha calibrate on {when}; the model had {constant.was.value:g}"
        return {"value": float(f"{constant.value:.4g}"), "within": f"{constant.uncertainty:.2g}", "from": source}

    times = {constant.name: entry(constant) for constant in measured if constant.name in gpu.times}
    rest = {constant.name: entry(constant) for constant in measured if constant.name not in gpu.times}
    document = {"like": gpu.name, "gpu": device, **rest, "times": times}
    raw = {probe.name: [probe.size, *probe.repeats] for probe in probes.values()}
    took = {
        call.name: {"measured_us": round(call.measured_us, 3), "modelled_us": round(call.modelled_us, 3)}
        for call in calls
    }
    return yaml.safe_dump(document | {"probes": raw, "calls": took}, sort_keys=False, width=118)
