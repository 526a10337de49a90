"""Which tests `make test` leaves to `make test-all`: those of nightly.txt get the mark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("nightly.txt")


@dataclass(frozen=True, slots=True)
class Line:
    """The beginning of tests' ids; every `keep`-th of them that nothing else leaves to the night stays in make test,
    none where that is 0."""

    start: str
    keep: int

    def matches(self, nodeid: str) -> bool:
        """A name is matched whole; an open bracket takes all parameters that begin so."""
        return nodeid.startswith(self.start) and ("[" in self.start or nodeid[len(self.start) :][:1] in ("", "["))


def listed() -> list[Line]:
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            start, _, keep = line.partition(" keep ")
            found.append(Line(start, int(keep or 0)))
    return found


lost: list[str] = []  # found when tests were marked: what `lost_of` says


def mark(items: list[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    lost.clear()
    for line in listed():
        named = [item for item in tests.get(line.start.partition("[")[0], []) if line.matches(item.nodeid)]
        named = [item for item in named if item.get_closest_marker("nightly") is None]
        for place, item in enumerate(named):
            if not line.keep or place % line.keep:
                item.add_marker(pytest.mark.nightly)
        if line.keep:
            values = [_values(item) for item in named]
            lost.extend(f"{line.start} keep {line.keep}: {value}" for value in lost_of(values, line.keep))


def lost_of(values: list[frozenset[str]], keep: int) -> list[str]:
    """Values of parameters that no `keep`-th test has, though many have them: a step that divides how often a value
    comes leaves the same ones every time."""
    all_of, kept = Counter(_each(values)), Counter(_each(values[::keep]))
    return [value for value, count in all_of.items() if count >= 2 * keep and not kept[value]]


def _each(values: Iterable[frozenset[str]]) -> Iterable[str]:
    return (value for of_one in values for value in sorted(of_one))


def _values(item: pytest.Item) -> frozenset[str]:
    callspec = getattr(item, "callspec", None)
    params = callspec.params.items() if callspec else ()
    return frozenset(f"{name} = {value!r}" for name, value in params if isinstance(value, str | int))
