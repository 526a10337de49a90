"""Plain text for terminals and pipes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fmha.harness.text import one_line, printable


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines to be shown, their cells aligned to the left."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield one_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def duration(seconds: float) -> str:
    """For example `12 s`, `5 min`, `3 h` or `9 d`."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
