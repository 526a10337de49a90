"""What the probes below probes/ print."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fmha.harness.errors import UserError


@dataclass(frozen=True, slots=True)
class Probe:
    """`size` is what one CTA does: links of a chain, bytes, launches. A repeat is the time that it took."""

    name: str
    size: float
    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the repeats."""
        return statistics.median(self.repeats)


class Probes(dict[str, Probe]):
    """By name. UserError for one that is missing."""

    def __missing__(self, name: str) -> Probe:
        raise UserError(f"no probe {name}", next_step="run all of harness/see/probes")

    def each(self, name: str) -> float:
        """What one of what a probe does takes."""
        return self[name].median / self[name].size

    def with_one(self, name: str, repeat: float) -> Probes:
        """As if this probe had taken so long."""
        return Probes(self | {name: Probe(name, self[name].size, (repeat,))})


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
