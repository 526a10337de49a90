"""Configurations on the timing model: kernels are built, a few of their CTAs run, the model says how long it takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from fmha.emulator.timing.architecture import NAMES, Architecture, architecture
from fmha.emulator.timing.timeline import Timeline
from fmha.harness import account
from fmha.harness.config import Matrix, parse_filter
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.kernel_side.launch import Call
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.call_time import CallTime, call_for, model
from fmha.harness.worker.compilers.build import build_variants

BUILD_SECONDS: Final = 600
# How far a modelled time may be off, for who sees it without docs/understand/timing.md.
_OTHERS: Final = (
    "held to no silicon of ours; 34 rows of public kernels that nothing was fitted to within 11% on the mean and 30% "
    "at worst, but for boxes with rows of 16 bytes"
)
WITHIN: Final[Mapping[str, str]] = {
    "h200": "within 8% on the mean and 21% at worst, over 64 shapes",
    "h100": "within 8% on the mean and 22% at worst, over 62 shapes",
    "b200": _OTHERS,
    "gb200": _OTHERS,
    "gb300": "held to nothing; a GB200 with twice the exponentials and a guess of its clock",
}
# What is made free, one at a time, and the constants that do it; bytes and rates become large, cycles none.
FREE: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor": ("matrix_least", "matrix_latency_registers", "matrix_latency_shared"),
    "mufu": ("mufu_interval",),
    "fma": ("fma_interval",),
    "alu": ("alu_interval",),
    "convert": ("pack_interval", "convert_interval"),
    "memory": ("l2_latency", "hbm_latency", "tma_latency", "tma_box"),
    "barriers": ("mbarrier_arrive", "mbarrier_wake", "barrier_wake"),
    "code": ("code_miss", "code_jump", "branch_gap"),
}
_UNBOUNDED: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor": ("matrix_rate", "shared_bytes"),
    "memory": ("port_bytes", "l2_bytes", "hbm_bytes", "bytes_in_flight"),
}

# What a call may have that changes its time and that nothing here draws: refused, never left out of the time.
_NOT_MODELLED: Final[Mapping[str, Callable[[Configuration], bool]]] = {
    "lists of sparse keys": lambda item: item.topk > 0,
    "pages and no packed sequences": lambda item: item.scattered,
    "lengths of batch entries": lambda item: item.kv_lens != "full" or item.q_lens != "full",
    "query offsets": lambda item: item.query_offsets != "aligned",
    "balanced splits": lambda item: item.merge == "balanced",
    "splits that a cluster merges": lambda item: item.merge == "cluster",
    "tensors in other layouts": lambda item: item.layout != "bshd",
    "tensors with entries before the call's": lambda item: item.before > 0,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration on a GPU. Microseconds."""

    configuration: Configuration
    splits: int
    modelled_us: float
    bound: str
    memory_floor_us: float
    product_floor_us: float
    bytes: float  # that have to come from memory once
    flop: float
    forced: int
    measured_us: float | None = None
    launches: tuple[tuple[str, float], ...] = ()  # the time of each by itself, by its entry
    free: Mapping[str, float] | None = None  # what the call gains if a thing cost nothing, as a part of its time

    @property
    def floor_us(self) -> float:
        return max(self.memory_floor_us, self.product_floor_us)

    @property
    def error(self) -> float | None:
        """Of the model, relative to what was measured."""
        return None if self.measured_us is None else self.modelled_us / self.measured_us - 1


def configurations_of(names: list[str], gpu: str) -> list[Configuration]:
    """The configurations of names; UserError for one that is none, or for a GPU that the model does not know."""
    if gpu not in NAMES:
        raise UserError(f"--gpu: {gpu!r} is not one of {', '.join(NAMES)}")
    found = []
    for name in names:
        try:
            found.append(parse_id(name))
        except ValueError as error:
            raise UserError(str(error), where=name) from error
    return found


def of_suite(
    matrix: Matrix, suite: str, filters: Sequence[str], gpu: str
) -> tuple[list[Configuration], dict[str, int]]:
    """The configurations of suites that the model has an answer for; of the others, how many for which reason.
    UserError for an unknown suite or GPU, or where nothing is left."""
    configurations_of([], gpu)
    for name in matrix.named(suite):
        if name not in matrix.suite_names:
            raise UserError(f"no suite is named {name!r}", next_step=f"matrix.yaml has {', '.join(matrix.suite_names)}")
    cells = parse_filter(filters, matrix.keys).select(matrix.configurations(suite, matrix.seed), f"suite {suite}")
    target, found, left_out = architecture(gpu), [], Counter[str]()
    for item in cells:
        if not isinstance(item, Configuration):
            left_out["the timing model knows calls of attention alone"] += 1
            continue
        chosen = _chosen(item, target)
        if isinstance(chosen, str):
            left_out[chosen] += 1
        else:
            found.append(item)
    if not found:
        raise UserError(f"suite {suite}: the model has an answer for none of it", next_step="; ".join(left_out))
    return found, dict(left_out)


def _chosen(item: Configuration, target: Architecture) -> tuple[Call, Variant] | str:
    """The call and its kernel, or why there is none."""
    for absent, there in _NOT_MODELLED.items():
        if there(item):
            return f"the timing model draws no {absent}"
    call = call_for(item, target)
    variant = variant_for(replace(item, splits=call.splits), target.arch)
    return variant if isinstance(variant, str) else (call, variant)


def modelled(
    root: Path, configurations: Sequence[Configuration], gpu: str, say: Callable[[str], None]
) -> Iterator[tuple[Configuration, Call, CallTime]]:
    """Each configuration's call, once the kernels are built; UserError for one that no kernel runs."""
    target = architecture(gpu)
    chosen: list[tuple[Configuration, Call, Variant]] = []
    for item in configurations:
        found = _chosen(item, target)
        if isinstance(found, str):
            raise UserError(found, where=item.id)
        chosen.append((item, *found))
    variants = tuple(dict.fromkeys(variant for *_, variant in chosen))
    built = {b.variant.name: b for b in build_variants(root, variants, account.folder("builds"), BUILD_SECONDS, 2, say)}
    for item, call, variant in chosen:
        result = built[variant.name]
        if result.error:
            raise InfrastructureError(result.error.splitlines()[0], where=variant.name)
        yield item, call, model(gpu, variant, Path(result.ptx), call)


def row_of(
    item: Configuration, call: Call, time: CallTime, measured_us: float | None = None, free: bool = False
) -> Row:
    launches, gpu = time.launches(), time.architecture
    longest = max(launches, key=lambda m: m.cycles)
    clock = gpu.clock_mhz.value
    return Row(
        item,
        call.splits,
        time.seconds() * 1e6,
        longest.bound,
        time.bytes / gpu.times["hbm_bytes"].value / clock,
        time.flop / 2 / gpu.times["matrix_rate"].value / gpu.multiprocessors / clock,
        time.bytes,
        time.flop,
        sum(m.forced for m in launches),
        measured_us,
        tuple((entry, m.seconds * 1e6) for (entry, _), m in zip(time.timings, launches, strict=True)),
        _gains(time) if free else None,
    )


def _gains(time: CallTime) -> dict[str, float]:
    """The largest first."""
    whole = time.seconds() * 1e6
    gains = {what: 1 - micros / whole for what, micros in what_if(time).items()}
    return dict(sorted(gains.items(), key=lambda item: -item[1]))


def what_if(time: CallTime) -> dict[str, float]:
    """Microseconds of the call if one thing were free, by the thing."""
    return {name: time.seconds(free(time.architecture, name)) * 1e6 for name in FREE}


def free(gpu: Architecture, name: str) -> dict[str, float]:
    """The constants that make a thing free."""
    return dict.fromkeys(FREE[name], 0.0) | dict.fromkeys(_UNBOUNDED.get(name, ()), 1e12)


def timeline_of(time: CallTime, entry: str) -> tuple[Timeline, Any]:
    """Of the CTA in the middle of the launch of `entry`; the program's sources too."""
    timing = next(timing for name, timing in time.timings if name == entry)
    return Timeline.of(timing), timing.sources


def launch_of(time: CallTime, named: str | None) -> str:
    """The entry of the launch whose entry holds `named`; without a name the first, which is the forward. UserError."""
    entries = [entry for entry, _ in time.timings]
    found = [entry for entry in entries if named is None or named in entry]
    if named is not None and len(found) != 1:
        what = "is of no launch of the call" if not found else "is of several launches of the call"
        raise UserError(f"--launch: {named!r} {what}", next_step=f"there are {', '.join(entries)}")
    return found[0]


def measured(path: Path) -> dict[str, float]:
    """Microseconds by configuration, of a record of `fmha bench --peer`; UserError for another file."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {configuration_of(row).id: float(row["results"]["ours"]["median_us"]) for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("this is no record of `fmha bench --peer`", where=str(path)) from error


def configuration_of(row: Mapping[str, Any]) -> Configuration:
    """The configuration of a row of such a record: query heads that share a K/V head are rows of one batch entry."""
    return Configuration(
        head_dim=row["head_dim"],
        t=row["t"],
        s_k=row["s_k"],
        batch=row["batch"] * row["kv_heads"],
        heads=row["heads"] // row["kv_heads"],
        mask="causal" if row["causal"] else "none",
        output="bf16",
        kv="shared" if row.get("shared_kv") else "separate",
    )
