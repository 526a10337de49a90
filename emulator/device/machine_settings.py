"""How a machine runs what it is given: the schedule, what it reports, how it sums; what of it is refused."""

from __future__ import annotations

from typing import Literal

from fmha.emulator import _core
from fmha.emulator.grids import tell_device

Schedule = Literal["realistic", "early", "late", "random", "spurious", "pct"]
Profile = Literal["strict", "lenient"]
MmaSums = Literal["fast", "silicon"]

SCHEDULES: tuple[Schedule, ...] = ("realistic", "early", "late", "random", "spurious")
_SEARCHING: tuple[Schedule, ...] = ("pct",)  # of fmha.emulator.search, with `depth` and `steps` of their own
PROFILES: tuple[Profile, ...] = ("strict", "lenient")
MMA_SUMS: tuple[MmaSums, ...] = ("fast", "silicon")
MAX_DEPTH = 32  # of a race that pct looks for


def machine_of(
    seed: int,
    schedule: Schedule,
    profile: Profile,
    checks: bool,
    max_instructions: int | None,
    threads: int,
    mma_sums: MmaSums,
    watch: bool,
    multiprocessors: int,
    depth: int,
    steps: int,
) -> _core.Machine:
    """A machine of the core, as Device's parameters of these names say. ValueError for a value that none has."""
    known = (*SCHEDULES, *_SEARCHING)
    if schedule not in known:
        raise ValueError(f"schedule {schedule!r} is not one of {', '.join(known)}")
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth is {depth}; 1 to {MAX_DEPTH} are allowed")
    if not 1 <= steps < 2**63:
        raise ValueError(f"steps is {steps}; at least 1 is needed")
    if profile not in PROFILES:
        raise ValueError(f"profile {profile!r} is not one of {', '.join(PROFILES)}")
    if mma_sums not in MMA_SUMS:
        raise ValueError(f"mma_sums {mma_sums!r} is not one of {', '.join(MMA_SUMS)}")
    if threads < 1:
        raise ValueError(f"threads is {threads}; at least 1 is needed")
    machine = _core.Machine()
    machine.threads = threads
    machine.multiprocessors = multiprocessors
    machine.seed = seed
    machine.schedule = known.index(schedule)
    machine.depth, machine.steps = depth, steps
    machine.profile = PROFILES.index(profile)
    machine.mma_sums = MMA_SUMS.index(mma_sums)
    machine.checks = checks
    machine.watched = watch
    tell_device(machine)
    if max_instructions is not None:
        machine.max_instructions = max_instructions
    return machine
