"""Times two builds beside each other, round by round, so that what drifts is the same for both."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

Side = Callable[[], float]  # runs one batch of launches; seconds a launch
Clock = Callable[[], float | None]  # MHz, now


@dataclass(slots=True)
class Rounds:
    """One value a round. Clocks are empty where they cannot be read."""

    base: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    base_clock: list[float] = field(default_factory=list)
    new_clock: list[float] = field(default_factory=list)


def interleave(base: Side, new: Side, rounds: int, clock: Clock, seed: int) -> Rounds:
    """Run both sides once a round, in random order: neither always comes second, onto a warmer chip and fuller caches.

    The first round warms up and is not kept.
    """
    found = Rounds()
    generator = random.Random(seed)
    sides = ((base, found.base, found.base_clock), (new, found.new, found.new_clock))
    for number in range(rounds + 1):
        for run, seconds, clocks in generator.sample(sides, 2):
            taken, mhz = run(), clock()
            if number > 0:
                seconds.append(taken)
                clocks += [] if mhz is None else [mhz]
    return found
