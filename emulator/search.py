"""Searching the interleavings of a launch for one that shows a finding: probabilistic concurrency testing.

A run draws priorities for warps and for what works beside them, and changes some of them at a few steps (core/machine/
search.hpp). What goes wrong only where d steps come in one order, a run with d - 1 changes, n warps and k steps shows
with a probability of at least 1 / (n k^(d - 1)).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from fmha.emulator.device import Device
from fmha.emulator.launch_report import Finding, Report

DEPTHS = (1, 2, 3, 4)  # taken in turns: most bugs need few steps in order


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """One run of a search: the same again shows the same."""

    seed: int
    depth: int
    steps: int

    def device(self, **options: Any) -> Device:
        """A device that runs it. `options` are those of `Device`."""
        return Device(seed=self.seed, schedule="pct", depth=self.depth, steps=self.steps, **options)

    def __str__(self) -> str:
        return f"schedule pct, seed {self.seed}, depth {self.depth}, steps {self.steps}"


# Sets up the trial's device, launches once, and returns the report.
SearchFn: TypeAlias = Callable[[SearchTrial], Report]


@dataclass(frozen=True, slots=True)
class Search:
    """What a search through schedules found, and how much of them it saw."""

    found: tuple[tuple[Finding, SearchTrial], ...]  # one a rule and place, with the first trial that shows it
    trials: int
    interleavings: int  # distinct ones among them
    steps: int  # of the longest

    @property
    def ok(self) -> bool:
        """Whether no error is left that nobody accepted."""
        return all(finding.severity != "error" or finding.waived for finding, _ in self.found)

    def __str__(self) -> str:
        return "".join(f"{finding}\n  reproduced by {trial}\n" for finding, trial in self.found) + self.told

    @property
    def told(self) -> str:
        """How many runs, how many of them different, how long the longest."""
        runs = f"{self.trials:,} run{'s' if self.trials != 1 else ''}"
        return f"{runs}, {self.interleavings:,} distinct interleavings of up to {self.steps:,} steps"


def search(
    launch_fn: SearchFn,
    seconds: float | None = None,
    trials: int | None = None,
    depths: Sequence[int] = DEPTHS,
    everything: bool = False,
) -> Search:
    """Tries interleavings for so long, or so many, and ends with the first that fails unless `everything` is wanted.

    The first trial has no change of priorities and tells how many steps there are. Of each trial that takes more than
    any before, later ones take the number of steps.
    """
    if seconds is None and trials is None:
        raise ValueError("a search needs an end: seconds or trials")
    if not depths:
        raise ValueError("a search needs a depth")
    end = None if seconds is None else time.monotonic() + seconds
    found: dict[tuple[object, ...], tuple[Finding, SearchTrial]] = {}
    seen: set[float] = set()
    steps, done = 1, 0
    for seed in count():
        if done and ((trials is not None and done >= trials) or (end is not None and time.monotonic() >= end)):
            break
        trial = SearchTrial(seed, depths[seed % len(depths)] if done else 1, steps)
        report = launch_fn(trial)
        done += 1
        seen.add(report.stats["interleaving"])
        steps = max(steps, int(report.stats["steps"]))
        for finding in report.findings:
            found.setdefault((finding.rule, finding.place, finding.other), (finding, trial))
        if not everything and not report.ok:
            break
    return Search(tuple(found.values()), done, len(seen), steps)
