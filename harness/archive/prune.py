"""Keeps an archive small: removes or compresses old runs. Baselines are not among them."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from fmha.harness.archive.index import Index, RunRow
from fmha.harness.archive.record_files import read, replace
from fmha.harness.errors import InfrastructureError


def prunable(index: Index, *, keep: int, older_than: timedelta | None, now: datetime) -> list[RunRow]:
    """Runs beyond the newest `keep` of their host and suite that are also older than the limit, if there is one."""
    seen: dict[tuple[str, str], int] = {}
    chosen = []
    for row in index.runs():
        place = seen[row.host, row.suite] = seen.get((row.host, row.suite), 0) + 1
        if place > keep and (older_than is None or now - row.started > older_than):
            chosen.append(row)
    return chosen


def remove(folder: Path, rows: Sequence[RunRow]) -> None:
    """Remove the files of runs; one that is gone already is no error."""
    for row in rows:
        with _removing(folder):
            (folder / row.name).unlink(missing_ok=True)


def compress(folder: Path, rows: Sequence[RunRow]) -> int:
    """Rewrite `.json` runs as `.json.gz`, each proven to read as before; returns the bytes saved."""
    saved = 0
    for row in rows:
        path = folder / row.name
        record = read(path)
        packed = path.with_name(f"{row.name}.gz")
        content = gzip.compress(path.read_bytes(), 9, mtime=0)
        replace(content, packed)
        if read(packed) != record:
            raise AssertionError(f"{packed} does not hold what {path} does")
        saved += row.size - len(content)
        with _removing(folder):
            path.unlink()
    return saved


@contextlib.contextmanager
def _removing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"cannot remove runs: {error.strerror}", where=str(folder)) from error
