"""Line coverage as it crosses from the worker: which lines of a file hold code, and which of these were executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Lines:
    """Line numbers of one file or entry; `executed` is a part of `all`."""

    all: frozenset[int] = frozenset()
    executed: frozenset[int] = frozenset()

    def __or__(self, other: Lines) -> Lines:
        return Lines(self.all | other.all, self.executed | other.executed)

    @property
    def missing(self) -> str:
        """What nothing executed, as `spell` writes it."""
        return spell(self.all - self.executed)

    def as_json(self) -> list[str]:
        """Two texts, of all lines and of those executed."""
        return [spell(self.all), spell(self.executed)]

    @staticmethod
    def of(lines: Mapping[int, bool]) -> Lines:
        """From whether each line was executed."""
        return Lines(frozenset(lines), frozenset(line for line, done in lines.items() if done))

    @staticmethod
    def read(data: Any) -> Lines:
        """From what `as_json` gave."""
        everything, executed = data
        return Lines(read(everything), read(executed))


def spell(lines: Iterable[int]) -> str:
    """`3-5, 9` for 3, 4, 5 and 9."""
    parts: list[list[int]] = []
    for line in sorted(lines):
        if parts and line == parts[-1][1] + 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def read(text: str) -> frozenset[int]:
    """The lines that `spell` has written."""
    lines: set[int] = set()
    for part in text.split(", ") if text else ():
        first, _, last = part.partition("-")
        lines.update(range(int(first), int(last or first) + 1))
    return frozenset(lines)
