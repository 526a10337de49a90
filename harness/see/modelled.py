"""Configurations on the timing model: kernels are built, a few of their CTAs run, the model says how long it takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, get_args

from fmha.emulator.timing.architecture import NAMES, Architecture, architecture, known
from fmha.emulator.timing.timeline import Timeline
from fmha.harness import account
from fmha.harness.config import Matrix, parse_filter
from fmha.harness.contract.protocol import Cell, PeerCell
from fmha.harness.cpp_names import short
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import Configuration
from fmha.harness.kernel_side.launch import Call
from fmha.harness.see.call_time import CallTime, Order, model, of_timings, seconds_of
from fmha.harness.see.launch_subject import place_of
from fmha.harness.see.modelled_call import chosen, why_not
from fmha.harness.see.sass import find_nvdisasm
from fmha.harness.worker.compilers.build_kernels import build_variants

BUILD_SECONDS: Final = 600
# How far a modelled time may be off, for who sees it without docs/understand/timing.md.
_OTHERS: Final = (
    "held to no silicon of ours; 35 rows of public kernels that nothing was fitted to within 10% on the mean and 24% "
    "at worst"
)
WITHIN: Final[Mapping[str, str]] = {
    "h200": "within 6% on the mean and 19% at worst, over 62 shapes",
    "h100": "within 7% on the mean and 21% at worst, over 62 shapes",
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
    "memory": ("l2_latency", "hbm_latency", "hbm_queue", "tma_latency", "tma_box", "tma_row"),
    "barriers": ("mbarrier_arrive", "mbarrier_wake", "barrier_wake"),
    "code": ("code_miss", "code_jump", "branch_gap"),
}
_UNBOUNDED: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor": ("matrix_rate", "shared_bytes"),
    "memory": ("port_bytes", "l2_bytes", "hbm_bytes", "bytes_in_flight"),
}


@dataclass(frozen=True, slots=True)
class ModelledRow:
    """A configuration, or what else was named, on a GPU. Microseconds."""

    name: str
    splits: int | None  # None where it is no call of attention
    modelled_us: float
    bound: str
    memory_floor_us: float
    product_floor_us: float
    bytes: float  # that have to come from memory once
    flop: float | None
    forced: int
    measured_us: float | None = None
    measured_splits: int | None = None  # None where nobody has said
    launches: tuple[tuple[str, float], ...] = ()  # the time of each by itself, by its entry
    free: Mapping[str, float] | None = None  # what the call gains if a thing cost nothing, as a part of its time
    gpu: str = "b200"
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of a configuration

    @property
    def floor_us(self) -> float:
        """The time below which no kernel comes, microseconds."""
        return max(self.memory_floor_us, self.product_floor_us)

    @property
    def error(self) -> float | None:
        """Of the model, relative to what was measured, where that was the same call."""
        return None if self.measured_us is None or self.other_call else self.modelled_us / self.measured_us - 1

    @property
    def other_call(self) -> bool:
        """Whether what was measured had other splits."""
        return self.measured_splits not in (None, self.splits)


def known_gpu(gpu: str) -> Architecture:
    """UserError for a GPU that the model does not know."""
    if not known(gpu):
        raise UserError(f"--gpu: {gpu!r} is not one of {', '.join(NAMES)}")
    return architecture(gpu)


def known_order(order: str) -> Order:
    """UserError for an order that is none, or that takes what this machine has not, before anything is built."""
    orders: tuple[Order, ...] = get_args(Order)
    for one in orders:
        if one == order:
            if one == "sass":
                find_nvdisasm()
            return one
    raise UserError(f"--order: {order!r} is not one of {', '.join(orders)}")


def of_suite(matrix: Matrix, suite: str, filters: Sequence[str], gpu: str) -> tuple[list[Cell], dict[str, int]]:
    """The configurations of suites that the model has an answer for; of the others, how many for which reason.
    UserError for an unknown suite, or where nothing is left."""
    matrix.known(suite)
    cells = parse_filter(filters, matrix.keys).select(matrix.configurations(suite, matrix.seed), f"suite {suite}")
    target, found, left_out = architecture(gpu), list[Cell](), Counter[str]()
    for item in cells:
        reason = why_not(item, target) if isinstance(item, Configuration) else None
        if isinstance(item, PeerCell):
            reason = "a library's function is called, and none of its launches is seen"
        if reason is None:
            found.append(item)
        else:
            left_out[reason] += 1
    if not found:
        raise UserError(f"suite {suite}: the model has an answer for none of it", next_step="; ".join(left_out))
    return found, dict(left_out)


def modelled(
    root: Path, configurations: Sequence[Configuration], gpu: str, say: Callable[[str], None], order: Order = "ptx"
) -> Iterator[tuple[Configuration, Call, CallTime]]:
    """Each configuration's call, once the kernels are built; UserError for one that no kernel runs."""
    target = architecture(gpu)
    calls = [(item, chosen(item, target)) for item in configurations]
    variants = tuple(dict.fromkeys(one.variant for _, one in calls))
    built = {b.variant.name: b for b in build_variants(root, variants, account.folder("builds"), BUILD_SECONDS, 2, say)}
    for item, one in calls:
        result = built[one.variant.name]
        if result.error:
            raise UserError(f"it does not build: {result.error.strip()}", where=one.variant.name)
        yield item, one.call, model(gpu, one.variant, Path(result.ptx), one.call, order, one.of)


def matched(time: CallTime) -> list[str]:
    """Of each launch whose warps execute in the order of SASS, how much of that is known."""
    return [
        f"{short(entry)}: in the order of {len(sass.instructions)} SASS instructions, "
        f"{sass.matched(timing.sources):.1%} of them of a PTX instruction"
        for entry, timing in time.timings
        if (sass := time.sass.get(entry)) is not None
    ]


def row_of(
    item: Configuration, call: Call, time: CallTime, beside: MeasuredCall | None = None, free: bool = False
) -> ModelledRow:
    """Of a call of attention."""
    found = replace(row_of_launches(item.id, time, free), splits=call.splits, parameters=item.parameters)
    return found if beside is None else replace(found, measured_us=beside.us, measured_splits=beside.splits)


def row_of_launches(name: str, time: CallTime, free: bool = False) -> ModelledRow:
    """Of whatever has launches whose time is modelled."""
    launches, gpu = time.launches(), time.architecture
    longest = max(launches, key=lambda m: m.cycles)
    clock = gpu.clock_mhz.value
    if time.flop is None:
        products = sum(timing.product_cycles() for _, timing in time.timings) / clock
    else:
        products = time.flop / 2 / gpu.times["matrix_rate"].value / gpu.multiprocessors / clock
    return ModelledRow(
        name,
        None,
        seconds_of(gpu, launches) * 1e6,
        longest.bound,
        time.bytes / gpu.times["hbm_bytes"].value / clock,
        products,
        time.bytes,
        time.flop,
        sum(m.forced for m in launches),
        None,
        None,
        tuple((entry, m.seconds * 1e6) for (entry, _), m in zip(time.timings, launches, strict=True)),
        _gains(time, seconds_of(gpu, launches) * 1e6) if free else None,
        gpu.name,
    )


def _gains(time: CallTime, whole: float) -> dict[str, float]:
    """Of a call of so many microseconds, the largest first."""
    gains = {what: 1 - micros / whole for what, micros in what_if(time).items()}
    return dict(sorted(gains.items(), key=lambda item: -item[1]))


def what_if(time: CallTime) -> dict[str, float]:
    """Microseconds of the call if one thing were free, by the thing."""
    return {name: time.seconds(free(time.architecture, name)) * 1e6 for name in FREE}


def free(gpu: Architecture, name: str) -> dict[str, float]:
    """The constants that make a thing free."""
    return dict.fromkeys(FREE[name], 0.0) | dict.fromkeys(_UNBOUNDED.get(name, ()), 1e12)


def timeline_of(time: CallTime, place: int) -> tuple[Timeline, Any]:
    """Of the CTA in the middle of the launch at a place, from 0; the program's sources too."""
    _, timing = time.timings[place]
    return Timeline.of(timing), timing.sources


def only(time: CallTime, which: str | None) -> CallTime:
    """The launch that `which` means and no other; all of them where it is None. UserError where there is none."""
    if which is None:
        return time
    one = time.timings[place_of(which, [entry for entry, _ in time.timings])]
    return replace(of_timings(time.architecture.name, [one]), sass=time.sass)


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """A call of a record."""

    us: float
    splits: int | None  # None where the record has them not


def as_measured(item: Configuration, beside: MeasuredCall | None, gpu: str) -> Configuration:
    """The configuration with the splits that were measured, where its call takes others today. One that was measured
    without splits cannot ask for that, and one whose kernel is gone stays as it is: `other_call` says so of both."""
    target = architecture(gpu)
    if beside is None or beside.splits is None or item.splits > 1 or why_not(item, target) is not None:
        return item
    call, pinned = chosen(item, target).call, replace(item, splits=beside.splits)
    if call.splits == beside.splits or call.balance is not None or why_not(pinned, target) is not None:
        return item
    return pinned


def measured(path: Path, say: Callable[[str], None] = lambda line: None) -> dict[str, MeasuredCall]:
    """Calls by configuration, of a record of `fmha bench --peer`; UserError for another file. Rows of packed sequences
    and of heads beside one another are left out, and said to be: no configuration's name has their lengths. Of
    those without their splits it is said how many there are."""
    try:
        every = json.loads(path.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in every if not (row.get("lengths") or row.get("by_token"))]
        if len(rows) < len(every):
            say(f"{len(every) - len(rows)} rows left out: no configuration's name says their lengths or layout")
        found = {configuration_of(row).id: _of_record(row["results"]["ours"]) for row in rows}
        if unknown := sum(one.splits is None for one in found.values()):
            say(f"of {unknown} rows the record has no splits: they may be other calls than those that are modelled")
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("this is no record of `fmha bench --peer`", where=str(path)) from error


def _of_record(ours: Mapping[str, Any]) -> MeasuredCall:
    splits = ours.get("splits")
    return MeasuredCall(float(ours["median_us"]), None if splits is None else int(splits))


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
