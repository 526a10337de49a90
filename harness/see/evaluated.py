"""The timing model's constants from what probes took, and how uncertain each is.

A measured constant's uncertainty comes from the run itself, by rules that hold for all of them:

- each probe that it is from is put at its fastest and at its slowest repeat, and what that changes counts;
- so does what the probe takes beside what it is about (`beside`): two readings of the clock, the last copy's or
  product's latency where many are under way, a taken branch a turn where a loop waits for its links;
- and so does each of the model's own constants that is subtracted, as far as its source says that it may be off.

What these come to is added up. The model's constant is as said if it is no farther from the measured one than that and
what its own source says together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from fmha.emulator.timing.architecture import Architecture, Constant
from fmha.harness.see.probed import Probe, Probes

_QUEUED: Final = 2 * 4096  # bytes in flight an SM in the probe `hbm_queue`
_OWN: Final = 0.5  # of those: a copy's own, which wait for memory's rate even where memory has no queue
_BULK: Final = 512  # bytes of a copy in the probes of latency
_BUSY: Final = 0.98  # of the nominal clock: one that is above this under load is not held down by power
# Turns of the loops of probes that wait for each link: probes/ has how far they are unrolled.
_CHAINS: Final = 8.0
_TURNS: Final = MappingProxyType(
    {
        "arrivals": 64.0,
        "product_chain": 512.0,
        "product_chain_registers": 512.0,
        "l2_latency": 1024.0,
        "hbm_latency": 1024.0,
        "columns": 512.0,
        "columns_chain": 4096.0,
    }
)
_STREAMS: Final = {"port": "l2_latency", "l2": "l2_latency", "hbm": "hbm_latency", "hbm_queue": "hbm_latency"}


@dataclass(frozen=True, slots=True)
class MeasuredConstant:
    """A constant, beside what the model had. `uncertainty` is in the constant's own unit: evaluate.py says what of."""

    name: str
    value: float
    uncertainty: float
    was: Constant

    @property
    def off(self) -> float | None:
        """Of what the model had, relative to what was measured; None where that is nothing."""
        return self.was.value / self.value - 1 if self.value > 0 else None

    @property
    def as_said(self) -> bool:
        """Whether what the model had is as near as its source says, beside the measurement's own uncertainty."""
        return abs(self.was.value - self.value) <= self.uncertainty + self.was.room


def constants(probes: Probes, gpu: Architecture) -> list[MeasuredConstant]:
    """The constants that the probes say something of. UserError where one of the probes is missing."""
    found, uncertain = values(probes, gpu), uncertainties(probes, gpu)
    told = []
    for name, value in found.items():
        was = gpu.times[name] if name in gpu.times else getattr(gpu, name)
        room = uncertain[name]
        if name == "hbm_queue" and value - room <= _OWN:  # as long as copies take that wait for nobody
            value, room = 0.0, value + room
        told.append(MeasuredConstant(name, max(0.0, value), room, was))
    return told


def uncertainties(probes: Probes, gpu: Architecture) -> dict[str, float]:
    """Of each constant, in its own unit."""
    around = values(probes, gpu)
    total = dict.fromkeys(around, 0.0)

    def count(changed: list[dict[str, float]]) -> None:
        for name, value in around.items():
            total[name] += max(abs(one.get(name, value) - value) for one in changed)

    for name, probe in probes.items():
        count([values(probes.with_one(name, r), gpu) for r in (min(probe.repeats), max(probe.repeats))])
        count([values(probes.with_one(name, probe.median - beside(probes, probe, gpu)), gpu)])
    for name, constant in gpu.times.items():
        if constant.room:
            other = replace(constant, value=constant.value + constant.room)
            count([values(probes, replace(gpu, times={**gpu.times, name: other}))])
    return total


def beside(probes: Probes, probe: Probe, gpu: Architecture) -> float:
    """What a probe may take beside what it is about: cycles of what it tells as its time."""
    if probe.name in _OTHERS:
        return 0.0
    turn = gpu.times["branch_gap"].value + gpu.times["branch_gap"].room
    took = probes["nothing"].median
    if probe.name in _STREAMS:
        took += _BULK * probes.each(_STREAMS[probe.name])
    elif probe.name in _ALL_AT_ONCE:
        took += probes.each("product_chain")
    else:
        took += turn * _TURNS.get(probe.name, _CHAINS)
    return min(took, probe.median / 2)


_ALL_AT_ONCE: Final = ("product_64", "product_128", "product_256", "product_registers", "load_products")
_OTHERS: Final = frozenset(  # that are not timed by a clock of cycles
    {"nothing", "clock", "load_clock", "load_watts", "limit_watts"}
    | {"calls", "calls_double", "calls_alone", "calls_merged"}
)


def values(probes: Probes, gpu: Architecture) -> dict[str, float]:
    """Of what warps, copies, the tensor core, launches and clocks take. UserError where a probe is missing."""
    each = probes.each
    sms, was = gpu.multiprocessors, gpu.values
    hbm = sms / each("hbm")
    wake = each("arrivals") - was["mbarrier_arrive"]
    near, alone = (_BULK * each(name) for name in ("l2_latency", "hbm_latency"))
    # How long one of these copies takes, with the others under way: its own bytes from memory are no queue.
    waits = _QUEUED * each("hbm_queue") - alone
    found = {
        **{constant: each(probe) for constant, probe in _ITSELF.items()},
        "mbarrier_wake": wake,
        "port_bytes": 1 / each("port"),
        "l2_bytes": sms / each("l2"),
        "hbm_bytes": hbm,
        "tma_latency": near - _BULK * each("port") - each("boxes") - wake,
        "hbm_latency": alone - near,
        "hbm_queue": waits / (_QUEUED * sms / hbm),
        "matrix_rate": rows_of_product(gpu) * 256 * 16 / each("product_256"),
    }
    # Between two products of a chain: what sets the second one's flag, or on Blackwell its issue and the wait.
    waited = was["matrix_issue"] + was["mbarrier_wake"] if "columns" in probes else was["alu_latency"] + 2
    for name, chain in (("shared", "product_chain"), ("registers", "product_chain_registers")):
        found[f"matrix_latency_{name}"] = each(chain) - each("product_128") - waited
    if "columns" in probes:
        found["matrix_least"] = each("product_256") / 256
        found["tmem_interval"] = each("columns") / 32
        found["tmem_latency"] = each("columns_chain") - each("columns")
    return found | _of_launches(probes, gpu)


_ITSELF: Final = {  # constants that are what one link of a probe takes
    "fma_latency": "fma_chain",
    "alu_latency": "alu_chain",
    "alu_interval": "alu_apart",
    "mufu_latency": "ex2_chain",
    "mufu_interval": "ex2_apart",
    "pack_latency": "pack_chain",
    "pack_interval": "pack_apart",
    "convert_latency": "convert_chain",
    "convert_interval": "convert_apart",
    "shuffle_latency": "shuffle_chain",
    "shared_latency": "shared_chain",
    "l2_latency": "global_chain",
    "cluster_latency": "remote_chain",
    "barrier_wake": "meetings",
    "tma_box": "boxes",
    "tma_row": "rows_16",
}


def rows_of_product(gpu: Architecture) -> int:
    """M of the products that the probes multiply."""
    return 64 if gpu.arch == "sm_90a" else 128


def _of_launches(probes: Probes, gpu: Architecture) -> dict[str, float]:
    """Of launches and clocks. Calls twice as long tell apart what a call works and what its launch costs."""
    call, double, merged = (probes.each(name) for name in ("calls", "calls_double", "calls_merged"))
    found = {"launch_us": 2 * call - double, "combine_us": merged - call, "clock_mhz": probes["clock"].median}
    load, products = probes["load_clock"], probes["load_products"]
    if load.median < _BUSY * probes["clock"].median:
        interval = rows_of_product(gpu) * 256 * 16 / gpu.times["matrix_rate"].value
        busy = interval * products.size / products.median
        always = gpu.power_always.value
        found["power_clock_mhz"] = load.median * (always + (1 - always) * busy) ** (1 / 3)
    return found


@dataclass(frozen=True, slots=True)
class ComparedConstant:
    """What the model has no constant of its own for, in cycles: what was measured, and what it would say."""

    name: str
    measured: float
    modelled: float

    @property
    def off(self) -> float:
        """How far the model is off, as a share of what was measured."""
        return self.modelled / self.measured - 1


def compared(probes: Probes, gpu: Architecture) -> list[ComparedConstant]:
    """Products by their size, and a row of a box by its bytes."""
    t, m = gpu.values, rows_of_product(gpu)

    def product(n: int, of_a: int) -> float:
        pipe = max(m * n * 16 / t["matrix_rate"], n * t["matrix_least"])
        return max(pipe, (32 * n + of_a) / t["shared_bytes"])

    said = {f"product_{n}": (f"product of {m} x {n} x 16", product(n, 32 * m)) for n in (64, 128, 256)}
    where = "registers" if gpu.arch == "sm_90a" else "tensor memory"
    said["product_registers"] = (f"the same of 128, A in {where}", product(128, 0))
    said["memory_chain"] = ("load that L2 has not", t["l2_latency"] + t["hbm_latency"])
    said["rows_64"] = ("row of 64 bytes of a box", max(t["tma_row"], 64 / t["port_bytes"]))
    return [ComparedConstant(what, probes.each(name), cycles) for name, (what, cycles) in said.items()]


def watts(probes: Probes) -> tuple[float, float] | None:
    """Power while all SMs multiply, and the limit that the GPU keeps; None where its driver tells neither."""
    if not {"load_watts", "limit_watts"} <= set(probes):
        return None
    return probes["load_watts"].median, probes["limit_watts"].median
