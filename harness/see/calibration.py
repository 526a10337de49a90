"""The timing model's constants as measured on a GPU that is at hand: probes.cu, built, run and read.

No silicon has run the probes yet: their kernels compile for sm_90a and sm_100a and run on the emulator.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from fmha.emulator.timing.architecture import Architecture, Constant
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.worker.compilers.nvcc import find_nvcc

PROBES: Final = Path(__file__).with_name("probes.cu")
SECONDS: Final = 300.0
_LEAST_WITHIN: Final = 0.01
_QUEUED: Final = 4 * 8192  # bytes in flight an SM in the probe `hbm_queue`


@dataclass(frozen=True, slots=True)
class Probe:
    """`size` is what one CTA does: links of a chain, bytes, launches. A repeat is the time that it took."""

    name: str
    size: float
    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.repeats)

    @property
    def spread(self) -> float:
        """How far the farthest repeat is from the median, as a part of that."""
        return max(abs(repeat / self.median - 1) for repeat in self.repeats)


@dataclass(frozen=True, slots=True)
class Measured:
    """A constant, beside what the model had."""

    name: str
    value: float
    within: float  # a part of the value
    was: Constant

    @property
    def off(self) -> float:
        """Of what the model had, relative to what was measured."""
        return self.was.value / self.value - 1

    @property
    def as_said(self) -> bool:
        """Whether what the model had is as near as it said, both uncertainties together."""
        return abs(self.off) <= float(self.was.within.rstrip("%")) / 100 + self.within


def build(folder: Path, arch: str, options: Sequence[str] = ()) -> Path:
    """The program of the probes; InfrastructureError where nvcc does not compile it."""
    program = folder / "probes"
    command = [str(find_nvcc().path), "-std=c++17", "-O2", f"-arch={arch}", *options, "-o", str(program), str(PROBES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InfrastructureError(f"nvcc: {done.stderr.strip()[:400]}", where=str(PROBES))
    return program


def run(program: Path) -> dict[str, Probe]:
    """On this machine's GPU; InfrastructureError where there is none or it fails."""
    try:
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"the probes took longer than {SECONDS:.0f} s", where=str(program)) from error
    if done.returncode:
        what = done.stderr.strip() or f"the probes ended with {done.returncode}"
        raise InfrastructureError(what, next_step="`fmha doctor` says what the GPU lacks")
    return read(done.stdout)


def read(text: str) -> dict[str, Probe]:
    """What the program printed: lines of `name,size,repeat,...`. UserError for something else."""
    found = {}
    for line in text.splitlines():
        name, *numbers = line.split(",")
        try:
            size, *repeats = map(float, numbers)
        except ValueError as error:
            raise UserError(f"{line!r} is no probe", next_step="give what probes.cu printed") from error
        if not repeats or min(repeats) <= 0:
            raise UserError(f"{line!r} has no time", next_step="run the probes on a GPU")
        found[name] = Probe(name, size, tuple(repeats))
    return found


def constants(probes: Mapping[str, Probe], gpu: Architecture) -> list[Measured]:
    """The constants that the probes say something of. UserError where one is missing."""
    if missing := {"ex2_chain", "ex2_apart", "fma_chain", "port", "l2", "hbm", *_LATENCIES, "clock"} - set(probes):
        raise UserError(f"no probe {', '.join(sorted(missing))}", next_step="run all of probes.cu")
    sms, told = gpu.multiprocessors, []
    each = {name: probe.median / probe.size for name, probe in probes.items() if probe.size}
    hbm = sms / each["hbm"]
    alone, near = (512 * each[name] for name in ("hbm_latency", "l2_latency"))
    queued = _QUEUED * each["hbm_queue"]  # how long one of these copies takes, with the others under way
    before = gpu.times["tma_box"].value + gpu.times["mbarrier_wake"].value
    values = {
        "fma_latency": (each["fma_chain"], ("fma_chain",)),
        "mufu_latency": (each["ex2_chain"], ("ex2_chain",)),
        "mufu_interval": (each["ex2_apart"], ("ex2_apart",)),
        "port_bytes": (1 / each["port"], ("port",)),
        "l2_bytes": (sms / each["l2"], ("l2",)),
        "hbm_bytes": (hbm, ("hbm",)),
        "tma_latency": (near - before, ("l2_latency",)),
        "hbm_latency": (alone - near, ("l2_latency", "hbm_latency")),
        "hbm_queue": (max(0.0, queued - alone) / (_QUEUED * sms / hbm), ("hbm", *_LATENCIES)),
    }
    for name, (value, of) in values.items():
        within = max(_LEAST_WITHIN, *(probes[probe].spread for probe in of))
        told.append(Measured(name, value, within, gpu.times[name]))
    clock = probes["clock"]
    told.append(Measured("clock_mhz", clock.median, max(_LEAST_WITHIN, clock.spread), gpu.clock_mhz))
    return [constant for constant in told if constant.value > 0]


_LATENCIES: Final = ("l2_latency", "hbm_latency", "hbm_queue")


def record(measured: list[Measured], probes: Mapping[str, Probe], gpu: Architecture, device: str) -> str:
    """A file of constants as those of emulator/timing, which `--gpu FILE` takes: what was measured over what `gpu` has,
    and the probes themselves."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")

    def entry(constant: Measured) -> dict[str, Any]:
        source = f"measured by fmha calibrate on {when}; the model had {constant.was.value:g}"
        return {"value": float(f"{constant.value:.4g}"), "within": f"{constant.within:.0%}", "from": source}

    times = {constant.name: entry(constant) for constant in measured if constant.name in gpu.times}
    rest = {constant.name: entry(constant) for constant in measured if constant.name not in gpu.times}
    document = {"like": gpu.name, "gpu": device, **rest, "times": times}
    raw = {probe.name: [probe.size, *probe.repeats] for probe in probes.values()}
    return yaml.safe_dump(document | {"probes": raw}, sort_keys=False, width=118)
