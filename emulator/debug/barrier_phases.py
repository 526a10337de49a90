"""What happened to the mbarriers of a launch: who arrives, who waits, in which phases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fmha.emulator.debug.observe import Log, Seen


@dataclass(frozen=True, slots=True)
class Party:
    """Who does something to an mbarrier, and where: warps of a CTA, or what they issued."""

    warps: tuple[int, ...]
    line: str
    how: str  # "arrives", "commit", "copy", "expects", "waits"

    def __str__(self) -> str:
        return f"{warps_named(self.warps)} at {self.line}"


@dataclass(slots=True)
class Barrier:
    """One mbarrier of a CTA."""

    cta: int
    offset: int
    line: str  # of its initialisation
    count: int
    phases: int = 0
    arrivals: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))  # by line and how
    waits: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # by line
    parities: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    bytes: Counter[int] = field(default_factory=Counter)  # that copies brought, by phase
    expected: Counter[int] = field(default_factory=Counter)  # that were announced, by phase

    @property
    def arriving(self) -> tuple[Party, ...]:
        """Who has arrived: warps by the line and the form of their arrival."""
        return tuple(Party(tuple(sorted(set(w))), line, how) for (line, how), w in self.arrivals.items())

    @property
    def waiting(self) -> tuple[Party, ...]:
        """Who waits, by line."""
        return tuple(Party(tuple(sorted(set(w))), line, "waits") for line, w in self.waits.items())


def warps_named(warps: Iterable[int]) -> str:
    """`warp 4`, `warps 0-3`, `warps 0, 2`."""
    numbers = sorted(set(warps))
    if len(numbers) == 1:
        return f"warp {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"warps {numbers[0]}-{numbers[-1]}"
    return "warps " + ", ".join(map(str, numbers))


def barriers_of(log: Log) -> dict[tuple[int, int], Barrier]:
    """By CTA and offset in its shared memory. `log` has BARRIERS."""
    found: dict[tuple[int, int], Barrier] = {}
    for event in log.of("barrier"):
        key = (event["cta"], event["offset"])
        if event["what"] == "init":
            found[key] = Barrier(*key, log.line(event["pc"]), event["amount"])
        elif key in found:
            _note(found[key], event, log)
    return found


def _note(barrier: Barrier, event: Seen, log: Log) -> None:
    what, line, warp = event["what"], log.line(event["pc"]), event["warp"]
    if what == "phase":
        barrier.phases = event["phase"]
    elif what == "arrive":
        barrier.arrivals[line, "commit" if event["async"] else "arrives"].append(warp)
    elif what == "expect":
        barrier.expected[event["phase"]] += event["amount"]
        barrier.arrivals[line, "expects"].append(warp)
    elif what == "bytes":
        barrier.bytes[event["phase"]] += event["amount"]
        barrier.arrivals[line, "copy"].append(warp)
    elif what in ("wait", "pass"):
        barrier.waits[line].append(warp)
        barrier.parities[line][event["amount"]] += what == "pass"
