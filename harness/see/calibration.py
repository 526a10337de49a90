"""The timing model's constants as measured on a GPU that is at hand: what is below probes/, built, run and read."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from fmha.emulator.timing.architecture import Architecture, Constant
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.see.own_rows import Timed
from fmha.harness.worker.compilers.nvcc import find_nvcc

PROBES: Final = Path(__file__).parent / "probes" / "probes.cu"
SECONDS: Final = 300.0
_LEAST_WITHIN: Final = 0.025  # what loops around a chain and clocks that are read add
_QUEUED: Final = 2 * 4096  # bytes in flight an SM in the probe `hbm_queue`
_BULK: Final = 512  # bytes of a copy in the probes of latency
_OF_LAUNCHES: Final = ("launch_us", "combine_us")
_LAUNCH_US: Final = 0.3  # what graphs of the same launches differ by
_BUSY: Final = 0.98  # of the nominal clock: one that is above this under load is not held down by power


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


class Probes(dict[str, Probe]):
    """By name. UserError for one that is missing."""

    def __missing__(self, name: str) -> Probe:
        raise UserError(f"no probe {name}", next_step="run all of harness/see/probes")

    def each(self, name: str) -> float:
        """What one of what a probe does takes."""
        return self[name].median / self[name].size


@dataclass(frozen=True, slots=True)
class Measured:
    """A constant, beside what the model had."""

    name: str
    value: float
    within: float  # a part of the value
    was: Constant

    @property
    def off(self) -> float | None:
        """Of what the model had, relative to what was measured; None where that is nothing."""
        return self.was.value / self.value - 1 if self.value > 0 else None

    @property
    def as_said(self) -> bool:
        """Whether what the model had is as near as it said, both uncertainties together. What is a microsecond's part
        of a launch may be off by so much."""
        most = float(self.was.within.rstrip("%")) / 100
        apart = abs(self.was.value - self.value)
        room = self.within * abs(self.value) + most * abs(self.was.value)
        return apart <= room or (self.name in _OF_LAUNCHES and apart <= _LAUNCH_US)


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


def read(text: str) -> Probes:
    """What the program printed: lines of `name,size,repeat,...`. UserError for something else."""
    found = Probes()
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


def constants(probes: Probes, gpu: Architecture) -> list[Measured]:
    """The constants that the probes say something of. UserError where one of the probes is missing."""
    told = []
    for name, (value, of) in (_values(probes, gpu) | _of_launches(probes, gpu)).items():
        within = max(_LEAST_WITHIN, *(probes[probe].spread for probe in of))
        was = gpu.times[name] if name in gpu.times else getattr(gpu, name)
        told.append(Measured(name, max(0.0, value), within, was))
    return told


_Values = dict[str, tuple[float, tuple[str, ...]]]  # of a constant, and the probes that it is from


def _values(probes: Probes, gpu: Architecture) -> _Values:
    """Of what warps, copies and the tensor core take."""
    each = probes.each
    sms, was = gpu.multiprocessors, gpu.values
    hbm = sms / each("hbm")
    wake = each("arrivals") - was["mbarrier_arrive"]
    near, alone = (_BULK * each(name) for name in ("l2_latency", "hbm_latency"))
    # How long one of these copies takes, with the others under way: its own bytes from memory are no queue.
    waits = _QUEUED * each("hbm_queue") - alone
    queue = waits / (_QUEUED * sms / hbm)
    values: _Values = {
        "fma_latency": (each("fma_chain"), ("fma_chain",)),
        "alu_latency": (each("alu_chain"), ("alu_chain",)),
        "alu_interval": (each("alu_apart"), ("alu_apart",)),
        "mufu_latency": (each("ex2_chain"), ("ex2_chain",)),
        "mufu_interval": (each("ex2_apart"), ("ex2_apart",)),
        "pack_latency": (each("pack_chain"), ("pack_chain",)),
        "pack_interval": (each("pack_apart"), ("pack_apart",)),
        "convert_latency": (each("convert_chain"), ("convert_chain",)),
        "convert_interval": (each("convert_apart"), ("convert_apart",)),
        "shuffle_latency": (each("shuffle_chain"), ("shuffle_chain",)),
        "shared_latency": (each("shared_chain"), ("shared_chain",)),
        "l2_latency": (each("global_chain"), ("global_chain",)),
        "cluster_latency": (each("remote_chain"), ("remote_chain",)),
        "barrier_wake": (each("meetings"), ("meetings",)),
        "mbarrier_wake": (wake, ("arrivals",)),
        "port_bytes": (1 / each("port"), ("port",)),
        "l2_bytes": (sms / each("l2"), ("l2",)),
        "hbm_bytes": (hbm, ("hbm",)),
        "tma_box": (each("boxes"), ("boxes",)),
        "tma_row": (each("rows_16"), ("rows_16",)),
        "tma_latency": (near - _BULK * each("port") - each("boxes") - wake, ("l2_latency", "arrivals")),
        "hbm_latency": (alone - near, ("l2_latency", "hbm_latency")),
        "hbm_queue": (queue if queue > _OWN_BYTES else 0.0, ("hbm_queue", "hbm_latency")),
        "matrix_rate": (rows_of_product(gpu) * 256 * 16 / each("product_256"), ("product_256",)),
    }
    # Between two products of a chain: what sets the second one's flag, or on Blackwell its issue and the wait.
    waited = was["matrix_issue"] + was["mbarrier_wake"] if "columns" in probes else was["alu_latency"] + 2
    for name, chain in (("shared", "product_chain"), ("registers", "product_chain_registers")):
        values[f"matrix_latency_{name}"] = (each(chain) - each("product_128") - waited, (chain, "product_128"))
    if "columns" in probes:
        values["matrix_least"] = (each("product_256") / 256, ("product_256",))
        values["tmem_interval"] = (each("columns") / 32, ("columns",))
        values["tmem_latency"] = (each("columns_chain") - each("columns"), ("columns_chain", "columns"))
    return values


_OWN_BYTES: Final = 0.57  # of the bytes under way in `hbm_queue` half are a copy's own


def rows_of_product(gpu: Architecture) -> int:
    """M of the products that the probes multiply."""
    return 64 if gpu.arch == "sm_90a" else 128


def _of_launches(probes: Probes, gpu: Architecture) -> _Values:
    """Of launches and clocks. Calls twice as long tell apart what a call works and what its launch costs."""
    call, double, merged = (
        probes[name].median / probes[name].size for name in ("calls", "calls_double", "calls_merged")
    )
    values: _Values = {
        "launch_us": (2 * call - double, ("calls", "calls_double")),
        "combine_us": (merged - call, ("calls", "calls_merged")),
        "clock_mhz": (probes["clock"].median, ("clock",)),
    }
    load, products = probes["load_clock"], probes["load_products"]
    if load.median < _BUSY * probes["clock"].median:
        interval = rows_of_product(gpu) * 256 * 16 / gpu.times["matrix_rate"].value
        busy = interval * products.size / products.median
        values["power_clock_mhz"] = (load.median * busy ** (1 / 3), ("load_clock", "load_products"))
    return values


@dataclass(frozen=True, slots=True)
class Compared:
    """What the model has no constant of its own for, in cycles: what was measured, and what it would say."""

    name: str
    measured: float
    modelled: float

    @property
    def off(self) -> float:
        return self.modelled / self.measured - 1


def compared(probes: Probes, gpu: Architecture) -> list[Compared]:
    """Products by their size, and a row of a box by its bytes."""
    t, m = gpu.values, rows_of_product(gpu)

    def product(n: int, of_a: int) -> float:
        pipe = max(m * n * 16 / t["matrix_rate"], n * t["matrix_least"])
        return max(pipe, (32 * n + of_a) / t["shared_bytes"])

    said = {f"product_{n}": (f"product of {m} x {n} x 16", product(n, 32 * m)) for n in (64, 128, 256)}
    where = "registers" if gpu.arch == "sm_90a" else "tensor memory"
    said["product_registers"] = (f"the same of 128, A in {where}", product(128, 0))
    said["rows_64"] = ("row of 64 bytes of a box", max(t["tma_row"], 64 / t["port_bytes"]))
    return [Compared(what, probes.each(name), cycles) for name, (what, cycles) in said.items()]


def watts(probes: Probes) -> tuple[float, float] | None:
    """Power while all SMs multiply, and the limit that the GPU keeps; None where its driver tells neither."""
    if not {"load_watts", "limit_watts"} <= set(probes):
        return None
    return probes["load_watts"].median, probes["limit_watts"].median


def record(
    measured: Sequence[Measured],
    probes: Probes,
    calls: Sequence[Timed],
    gpu: Architecture,
    device: str,
) -> str:
    """A file of constants as those of emulator/timing, which `--gpu FILE` takes: what was measured over what `gpu` has,
    the probes themselves, and our calls beside the model before and with what was measured."""
    when = datetime.now(UTC).strftime("%Y-%m-%d")

    def entry(constant: Measured) -> dict[str, Any]:
        source = f"measured by fmha calibrate on {when}; the model had {constant.was.value:g}"
        return {"value": float(f"{constant.value:.4g}"), "within": f"{constant.within:.0%}", "from": source}

    times = {constant.name: entry(constant) for constant in measured if constant.name in gpu.times}
    rest = {constant.name: entry(constant) for constant in measured if constant.name not in gpu.times}
    document = {"like": gpu.name, "gpu": device, **rest, "times": times}
    raw = {probe.name: [probe.size, *probe.repeats] for probe in probes.values()}
    took = {
        call.name: {"measured_us": round(call.measured_us, 3), "modelled_us": round(call.modelled_us, 3)}
        for call in calls
    }
    return yaml.safe_dump(document | {"probes": raw, "calls": took}, sort_keys=False, width=118)
