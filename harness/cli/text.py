"""Plain text for terminals and pipes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines, their cells aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def duration(seconds: float) -> str:
    """For example `12 s`, `5 min`, `3 h` or `9 d`."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def shown(text: str) -> str:
    """One line without control characters, whatever a host sent."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
