"""Times a build beside another commit's on one device: the same inputs at the same addresses, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fmha.harness.reference import Reference
from fmha.harness.worker.apart import Launcher
from fmha.harness.worker.configuration import Configuration
from fmha.harness.worker.devices.base import Device, LoadedModule, Stopwatch
from fmha.harness.worker.inputs import Inputs
from fmha.harness.worker.interleave import Side, interleave
from fmha.harness.worker.launch import launch_attention
from fmha.harness.worker.measure import measure
from fmha.harness.worker.protocol import Beside, BuildResult, Timed
from fmha.harness.worker.run import call_of, place, run_attention

ROUNDS: Final = 40
BATCH_SECONDS: Final = 1e-3  # of launches between two events, whose own resolution is about 0.5 us
MOST_LAUNCHES: Final = 200  # a batch
WARM_SECONDS: Final = 0.1  # of both builds, for the clocks to rise
LEAST_COSINE: Final = 0.999  # of the other build, whose own gates are not known here


class UntimedError(Exception):
    """There is nothing to time, or its time would mean nothing; the message says why."""


def time_beside(
    device: Device,
    build: BuildResult,
    beside: Beside,
    configuration: Configuration,
    inputs: Inputs,
    expected: Reference,
    launcher: Launcher = launch_attention,
) -> Timed:
    """Times `build` and the variant of the same name in `beside`. Raises UntimedError."""
    if not isinstance(device, Stopwatch):
        raise UntimedError(f"device {device.name} has no clock of its own")
    if configuration.before:
        raise UntimedError("most of the launch is not looked at")
    builds = (_other(build, beside), build)
    modules = [device.load(_artifact(device, item)) for item in builds]
    _prove(device, modules[0], builds[0], beside, configuration, inputs, expected)
    call = call_of(configuration, inputs, build.variant.arch)
    addresses = place(device, call, inputs)

    def launching(module: LoadedModule, build: BuildResult, how: Launcher) -> Callable[[], object]:
        return lambda: how(device, module, build.variant, call, addresses)

    hows = (launch_attention, launcher)
    base, new = _sides(device, [launching(*each) for each in zip(modules, builds, hows, strict=True)])
    rounds = interleave(base, new, ROUNDS, device.clock, seed=0)
    return Timed(
        tuple(rounds.new), tuple(rounds.new_clock), beside.commit, tuple(rounds.base), tuple(rounds.base_clock)
    )


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


def _prove(
    device: Device,
    module: LoadedModule,
    other: BuildResult,
    beside: Beside,
    configuration: Configuration,
    inputs: Inputs,
    expected: Reference,
) -> None:
    """A kernel that is launched otherwise than it was meant to be may be very fast."""
    found = measure(configuration, run_attention(device, module, other.variant, configuration, inputs), expected)
    if found.unwritten or found.nonfinite_mismatches or not found.cosine >= LEAST_COSINE:
        raise UntimedError(f"commit {beside.commit[:12]} computes something else: its cosine is {found.cosine:.6f}")


def _sides(device: Stopwatch, works: Sequence[Callable[[], object]]) -> list[Side]:
    """A batch of launches each, as many for one as for the other, on a device that is warm."""
    once = [device.batch(work) for work in works]
    quickest = min(run() for _ in range(3) for run in once)
    launches = min(MOST_LAUNCHES, max(1, round(BATCH_SECONDS / quickest)))
    sides = [_side(device.batch(_repeated(work, launches)), launches) for work in works]
    spent = 0.0
    while spent < WARM_SECONDS:
        spent += sum(side() for side in sides) * launches
    return sides


def _side(batch: Callable[[], float], launches: int) -> Side:
    return lambda: batch() / launches


def _repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat
