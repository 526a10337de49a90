"""Which tests `make test` leaves to `make test-all`: those of nightly.txt get the mark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("nightly.txt")


@dataclass(frozen=True, slots=True)
class Line:
    """The beginning of tests' ids; every `keep`-th of them stays in make test, none where that is 0."""

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


def mark(items: list[pytest.Item]) -> None:
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for line in listed():
        named = tests.get(line.start.partition("[")[0], [])
        for place, item in enumerate(item for item in named if line.matches(item.nodeid)):
            if not line.keep or place % line.keep:
                item.add_marker(pytest.mark.nightly)
