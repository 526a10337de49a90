"""Times a build beside another commit's on one device: the same inputs at the same addresses, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from fmha.harness.contract.device import Ceilings, Device, LoadedModule, Rated, Stopwatch
from fmha.harness.contract.protocol import Beside, BuildResult, Measurement, Timed, Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import Inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.reference import Reference
from fmha.harness.kernel_side.launch import Call, launch_attention
from fmha.harness.worker.launch.interleave import Side, interleave
from fmha.harness.worker.launch.run_attention import call_of, place, poison_again, read_back, run_attention
from fmha.harness.worker.launch.scatter import scattered
from fmha.harness.worker.planner.sides import Launcher

ROUNDS: Final = 40
BATCH_SECONDS: Final = 1e-3  # of launches between two events, whose own resolution is about 0.5 us
MOST_LAUNCHES: Final = 200  # a batch
WARM_SECONDS: Final = 0.1  # of both builds, for the clocks to rise
LEAST_COSINE: Final = 0.999  # of the other build, whose own gates are not known here
LESS_COSINE: Final = 1e-3  # than of the launch that is judged, of one that was timed: sums may have another order


Batch = Callable[[int], Callable[[], float]]  # so many times: what does it, and says how many seconds it took


class UntimedError(Exception):
    """There is nothing to time, or its time would mean nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is timed, and how to look at what it leaves."""

    launch: Callable[[], object]  # once
    poison: Callable[[], object]  # what launches write holds what it held before the first one
    measured: Callable[[], Measurement]  # of what it holds now
    repeats: bool = True  # launches one after the other leave what one does


Proved = Callable[[LoadedModule, BuildResult], Measurement]
Worker = Callable[[LoadedModule, BuildResult], Work]


def time_beside(
    device: Device,
    build: BuildResult,
    beside: Beside,
    configuration: Configuration,
    inputs: Inputs,
    expected: Reference,
    judged: Measurement,
    launcher: Launcher = launch_attention,
) -> Timed:
    """Times `build` and the variant of the same name in `beside`. `judged` is of the launch of `build` that the verdict
    is about. Raises UntimedError."""
    _require_all(configuration)

    def proved(module: LoadedModule, other: BuildResult) -> Measurement:
        return measure(configuration, run_attention(device, module, other.variant, configuration, inputs), expected)

    places: list[tuple[Call, dict[str, int]]] = []

    def work(module: LoadedModule, built: BuildResult) -> Work:
        if not places:  # both over the same memory
            call = call_of(configuration, inputs, build.variant.arch)
            places.append((call, place(device, call, inputs, scattered(configuration, inputs), configuration.stored)))
        how = launcher if built is build else launch_attention
        return _work(device, module, built.variant, configuration, inputs, expected, places[0], how)

    return time_both(device, build, beside, proved, work, judged)


def time_ours(
    device: Device,
    build: BuildResult,
    configuration: Configuration,
    inputs: Inputs,
    expected: Reference,
    judged: Measurement,
    launcher: Launcher = launch_attention,
) -> Timed:
    """Times `build` alone. Raises UntimedError."""
    _require_all(configuration)

    def work(module: LoadedModule) -> Work:
        call = call_of(configuration, inputs, build.variant.arch)
        there = call, place(device, call, inputs, scattered(configuration, inputs), configuration.stored)
        return _work(device, module, build.variant, configuration, inputs, expected, there, launcher)

    return time_build(device, build, work, judged)


def _work(
    device: Device,
    module: LoadedModule,
    variant: Variant,
    configuration: Configuration,
    inputs: Inputs,
    expected: Reference,
    there: tuple[Call, dict[str, int]],
    launcher: Launcher,
) -> Work:
    (call, addresses), stored = there, configuration.stored
    return Work(
        lambda: launcher(device, module, variant, call, addresses),
        lambda: poison_again(device, call, addresses, stored),
        lambda: measure(configuration, read_back(device, call, inputs, addresses, stored), expected),
    )


def time_both(
    device: Device, build: BuildResult, beside: Beside, proved: Proved, work: Worker, judged: Measurement
) -> Timed:
    """Times `build` and the variant of the same name in `beside`, whose numbers are looked at first: a kernel that is
    launched otherwise than it was meant to be may be very fast. Raises UntimedError."""
    clocked = _clocked(device)
    builds = (_other(build, beside), build)
    modules = [device.load(_artifact(device, item)) for item in builds]
    found = proved(modules[0], builds[0])
    if found.unwritten or found.nonfinite_mismatches or not found.cosine >= LEAST_COSINE:
        raise UntimedError(f"commit {beside.commit[:12]} computes something else: its cosine is {found.cosine:.6f}")
    works = [work(*each) for each in zip(modules, builds, strict=True)]
    base, new = _sides([partial(_batch, clocked, each.launch) for each in works])
    rounds = interleave(base, new, ROUNDS, clocked.clock, seed=0)
    _look_again(works[0], base, found, f"of commit {beside.commit[:12]}")
    _look_again(works[1], new, judged, "that were timed")
    return Timed(
        tuple(rounds.new), tuple(rounds.new_clock), beside.commit, tuple(rounds.base), tuple(rounds.base_clock),
        _ceilings(device),
    )  # fmt: skip


def time_build(device: Device, build: BuildResult, work: Callable[[LoadedModule], Work], judged: Measurement) -> Timed:
    """Times what a build is launched for, alone. Raises UntimedError."""
    clocked, made = _clocked(device), work(device.load(_artifact(device, build)))
    (side,) = _sides([partial(_batch, clocked, made.launch)])
    timed = _rounds(device, side)
    _look_again(made, side, judged, "that were timed")
    return timed


def _look_again(work: Work, side: _Side, judged: Measurement, which: str) -> None:
    """Raises UntimedError where launches do not leave what the judged one left. What is written is poisoned, and the
    very batch that was timed is made again; so is a launch alone, since of a batch some could do nothing."""
    for run in (side.batch, side.once, side.once) if work.repeats else (side.once, side.once):
        work.poison()
        run()
        found = work.measured()
        if found.output_hash == judged.output_hash:
            continue
        worse = not found.cosine >= judged.cosine - LESS_COSINE
        if found.unwritten > judged.unwritten or found.nonfinite_mismatches > judged.nonfinite_mismatches or worse:
            raise UntimedError(
                f"launches {which} compute something else than the one that is judged: {found.unwritten} elements "
                f"unwritten, cosine {found.cosine:.6f} and not {judged.cosine:.6f}"
            )


def time_alone(device: Device, batch: Batch) -> Timed:
    """Times what `batch` does so many times, on a device that is warm. Raises UntimedError."""
    (side,) = _sides([batch])
    return _rounds(device, side)


def _rounds(device: Device, side: Side) -> Timed:
    clocked = _clocked(device)
    seconds, clocks = [], []
    for _ in range(ROUNDS):
        seconds.append(side())
        clocks += [] if (mhz := clocked.clock()) is None else [mhz]
    return Timed(tuple(seconds), tuple(clocks), "", (), (), _ceilings(device))


def _ceilings(device: Device) -> Ceilings | None:
    return device.ceilings() if isinstance(device, Rated) else None


def _clocked(device: Device) -> Stopwatch:
    if not isinstance(device, Stopwatch):
        raise UntimedError(f"device {device.name} has no clock of its own")
    return device


def _require_all(configuration: Configuration) -> None:
    if configuration.before:
        raise UntimedError("most of the launch is not looked at")


def _other(build: BuildResult, beside: Beside) -> BuildResult:
    name = build.variant.name
    found = next((item for item in beside.builds if item.variant.name == name), None)
    if found is None:
        raise UntimedError(beside.reason or f"commit {beside.commit[:12]} has no variant {name}")
    if found.error is not None:
        raise UntimedError(f"{name} of commit {beside.commit[:12]} does not build: {found.error.splitlines()[0]}")
    return found


def _artifact(device: Device, build: BuildResult) -> Path:
    return Path(build.ptx if device.artifact == "ptx" else build.cubin)


@dataclass(frozen=True, slots=True)
class _Side:
    """Seconds of a launch, in a batch of so many."""

    once: Callable[[], float]  # a launch alone
    batch: Callable[[], float]
    launches: int

    def __call__(self) -> float:
        return self.batch() / self.launches


def _sides(batches: Sequence[Batch]) -> list[_Side]:
    """As many times for one as for the other, on a device that is warm."""
    once = [batch(1) for batch in batches]
    quickest = min(run() for _ in range(3) for run in once)
    launches = min(MOST_LAUNCHES, max(1, round(BATCH_SECONDS / quickest)))
    sides = [_Side(run, batch(launches), launches) for run, batch in zip(once, batches, strict=True)]
    spent = 0.0
    while spent < WARM_SECONDS:
        spent += sum(side() for side in sides) * launches
    return sides


def _batch(device: Stopwatch, work: Callable[[], object], times: int) -> Callable[[], float]:
    return device.batch(_repeated(work, times))


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat
