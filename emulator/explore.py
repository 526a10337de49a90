"""Running a launch under several schedules and merging what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fmha.emulator.device import Schedule
from fmha.emulator.launch_report import Finding, Report

# Sets up a Device of this schedule and seed, launches, and returns the report.
LaunchFn: TypeAlias = Callable[[Schedule, int], Report]


@dataclass(frozen=True, slots=True)
class Explored:
    """A finding, and the first schedule and seed that show it."""

    finding: Finding
    schedule: Schedule
    seed: int
    depth: int = 0  # of pct, and steps
    steps: int = 0

    def __str__(self) -> str:
        seed = f", seed {self.seed}" if self.schedule in ("random", "spurious", "pct") else ""
        depth = f", depth {self.depth}, steps {self.steps}" if self.schedule == "pct" else ""
        return f"{self.finding}\n  reproduced by schedule {self.schedule}{seed}{depth}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a launch did under each of several schedules."""

    findings: tuple[Explored, ...]  # one a rule and place, in the order of discovery
    runs: tuple[tuple[Schedule, int, Report], ...]

    @property
    def ok(self) -> bool:
        """Whether no run has an error that nobody accepted."""
        return all(report.ok for _, _, report in self.runs)


def schedules_of(count: int) -> list[tuple[Schedule, int]]:
    """The realistic, early and late schedules, then random ones with seeds 1, 2, ..."""
    if count < 1:
        raise ValueError(f"{count} schedules")
    fixed: list[tuple[Schedule, int]] = [("realistic", 0), ("early", 0), ("late", 0)]
    return (fixed + [("random", seed) for seed in range(1, count - 2)])[:count]


def explore(launch_fn: LaunchFn, schedules: int | Sequence[tuple[Schedule, int]] = 8) -> Exploration:
    """Runs `launch_fn` under so many schedules, or these. Findings that differ only in warp, CTA or count are one."""
    found: dict[tuple[object, ...], Explored] = {}
    runs: list[tuple[Schedule, int, Report]] = []
    for schedule, seed in schedules_of(schedules) if isinstance(schedules, int) else schedules:
        report = launch_fn(schedule, seed)
        runs.append((schedule, seed, report))
        for finding in report.findings:
            found.setdefault((finding.rule, finding.place, finding.other), Explored(finding, schedule, seed))
    return Exploration(tuple(found.values()), tuple(runs))
