"""The index of an archive: what lists and histories need, so that they open no file.

It is derived from the files alone and brought up to date with every use. A file that cannot be read is kept as a row
with its error: it is named, and stops nothing. It lies in the account's folder: a commit could bring one that lay
beside the files, with rows that no file has, or with queries that never end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fmha.harness import account
from fmha.harness.archive.record import RunRecord
from fmha.harness.archive.record_files import read
from fmha.harness.errors import FmhaError, InfrastructureError
from fmha.harness.judge.metrics import METRICS

INDEXES = "indexes"  # of the account's folder
MOST_INDEXES = 64  # of archives: those that were made last stay
RUN_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{12}-[A-Za-z0-9._-]+?\.json(\.gz)?")
_BATCH = 200  # files a transaction: an interrupted first use keeps what it has read
_TABLES = f"""
CREATE TABLE runs (
  name TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, error TEXT, started REAL, sha TEXT,
  dirty INTEGER, host TEXT, kind TEXT, suite TEXT, filter TEXT, seed INTEGER, schedule TEXT, word TEXT, passed INTEGER,
  total INTEGER, lenient INTEGER
) WITHOUT ROWID;
CREATE TABLE configurations (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE numbers (
  configuration INTEGER NOT NULL, run TEXT NOT NULL, status TEXT NOT NULL, hazards INTEGER NOT NULL, hash TEXT,
  lenient INTEGER NOT NULL,
  {", ".join(f"{metric} REAL" for metric in METRICS)}, PRIMARY KEY (configuration, run)
) WITHOUT ROWID;
CREATE INDEX numbers_run ON numbers (run);
CREATE INDEX runs_sha ON runs (sha);
"""
_VERSION = zlib.crc32(_TABLES.encode()) >> 1  # an index that has other tables is made anew


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the index knows it."""

    name: str
    size: int
    started: datetime
    sha: str
    dirty: bool
    host: str
    kind: str
    suite: str
    filter: str
    seed: int
    schedule: str
    word: str
    passed: int
    total: int
    lenient: bool  # whether any of its configurations was held to the lenient rules


@dataclass(frozen=True, slots=True)
class NumbersRow:
    """One configuration in one run. Metrics are None when it has none; `hash` is the start of the outputs' sha256."""

    run: RunRow
    status: str
    hazards: int
    hash: str
    lenient: bool
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file with the name of a run that is none."""

    name: str
    error: str


class Index:
    """The archive in `folder`, up to date as of opening. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._database = _opened(folder)
        try:
            self._update()
        except sqlite3.DatabaseError as error:  # the files are what counts
            self._database.close()
            damaged = not isinstance(error, sqlite3.OperationalError)  # else locked for good, or a disk that is full
            self._database = _anew(folder) if damaged else _fresh(":memory:")
            self._update()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def runs(self, *, sha: str | None = None, host: str | None = None, schedule: str | None = None) -> list[RunRow]:
        """The newest first."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM runs WHERE error IS NULL AND (:sha IS NULL OR sha = :sha)"
            " AND (:host IS NULL OR host = :host OR kind = :host) AND (:schedule IS NULL OR schedule = :schedule)"
            " ORDER BY started DESC, name DESC",
            {"sha": sha, "host": host, "schedule": schedule},
        )
        return [_run(row) for row in rows]

    def unreadable(self) -> list[Unreadable]:
        """Files that hold no run, and why."""
        rows = self._database.execute("SELECT name, error FROM runs WHERE error IS NOT NULL ORDER BY name")
        return [Unreadable(*row) for row in rows]

    def history(self, configuration: str, *, host: str | None = None) -> list[NumbersRow]:
        """A configuration in every run that has it, the newest first."""
        columns = ", ".join(f"runs.{name}" for name in _COLUMNS.split(", "))
        rows = self._database.execute(
            f"SELECT {columns}, status, hazards, hash, numbers.lenient, {', '.join(METRICS)} FROM numbers"
            " JOIN runs ON runs.name = numbers.run"
            " WHERE configuration = (SELECT key FROM configurations WHERE id = :id)"
            " AND (:host IS NULL OR runs.host = :host OR runs.kind = :host) ORDER BY started DESC, name DESC",
            {"id": configuration, "host": host},
        )
        width = len(_COLUMNS.split(", "))
        return [
            NumbersRow(
                _run(row[:width]),
                row[width],
                row[width + 1],
                row[width + 2] or "",
                bool(row[width + 3]),
                dict(zip(METRICS, row[width + 4 :], strict=True)),
            )
            for row in rows
        ]

    def configurations(self) -> list[str]:
        """Every id there is."""
        rows = self._database.execute("SELECT id FROM configurations ORDER BY key")
        return [row[0] for row in rows]

    def _update(self) -> None:
        """Read what is new or has changed, forget what is gone."""
        present = _files(self.folder)
        known = {row[0]: row[1:] for row in self._database.execute("SELECT name, size, mtime_ns FROM runs")}
        with self._database:
            self._forget(known.keys() - present.keys())
        changed = [name for name, stamp in present.items() if known.get(name) != stamp]
        for start in range(0, len(changed), _BATCH):
            batch = changed[start : start + _BATCH]
            with self._database:
                self._forget(batch)
                for name in batch:
                    self._add(name, present[name])

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._database.execute("DELETE FROM numbers WHERE run = ?", (name,))
            self._database.execute("DELETE FROM runs WHERE name = ?", (name,))

    def _add(self, name: str, stamp: tuple[int, int]) -> None:
        try:
            record = read(self.folder / name)
            datetime.fromtimestamp(record.started.timestamp(), UTC)
            self._database.execute(
                f"INSERT INTO runs (mtime_ns, {_COLUMNS}) VALUES ({', '.join('?' * 16)})",
                (stamp[1], name, stamp[0], *_summary(record)),
            )
        except (FmhaError, OverflowError, ValueError) as error:
            what = error.what if isinstance(error, FmhaError) else "has a number that is too large"
            self._database.execute(
                "INSERT INTO runs (name, size, mtime_ns, error) VALUES (?, ?, ?, ?)", (name, *stamp, what)
            )
            return
        self._database.executemany(
            f"INSERT OR REPLACE INTO numbers VALUES ({', '.join('?' * (6 + len(METRICS)))})",
            self._numbers(name, record),
        )

    def _numbers(self, name: str, record: RunRecord) -> Iterator[Sequence[object]]:
        for item in record.configurations:
            self._database.execute("INSERT OR IGNORE INTO configurations (id) VALUES (?)", (item.id,))
            (key,) = self._database.execute("SELECT key FROM configurations WHERE id = ?", (item.id,)).fetchone()
            metrics = item.metrics
            hazards = sum(finding.severity == "error" for finding in item.findings)
            digest = metrics.output_hash[:16] if metrics else None
            # SQLite stores NaN as NULL; an infinity stays one.
            yield (
                key,
                name,
                item.status,
                hazards,
                digest,
                item.lenient,
                *(getattr(metrics, metric, None) for metric in METRICS),
            )


_COLUMNS = "name, size, started, sha, dirty, host, kind, suite, filter, seed, schedule, word, passed, total, lenient"


def _summary(record: RunRecord) -> tuple[object, ...]:
    commit, host, selection, verdict = record.commit, record.host, record.selection, record.verdict
    where = (commit.sha, commit.dirty, host.name, host.kind)
    what = (selection.suite, selection.filter, selection.seed, selection.schedule)
    return (
        record.started.timestamp(),
        *where,
        *what,
        record.headword,
        verdict.passed,
        verdict.total,
        any(item.lenient for item in record.configurations),
    )


def _run(row: Sequence[object]) -> RunRow:
    values = dict(zip(_COLUMNS.split(", "), row, strict=True))
    values["started"] = datetime.fromtimestamp(float(str(values["started"])), UTC)
    values |= {name: bool(values[name]) for name in ("dirty", "lenient")}
    return RunRow(**values)  # type: ignore[arg-type]  # the tables have the types


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file that has the name of a run. A folder that is not there has none."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if RUN_NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    facts = entry.stat()
                    found[entry.name] = (facts.st_size, facts.st_mtime_ns)
    return found


def index_file(folder: Path) -> Path:
    """Where the index of an archive is. Raises InfrastructureError where the account has no folder for it."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return account.folder(INDEXES) / f"{name}.sqlite3"


def _opened(folder: Path) -> sqlite3.Connection:
    """The archive's index, made anew when it is damaged or of another version; in memory where none can be."""
    if not folder.is_dir():
        return _fresh(":memory:")
    with contextlib.suppress(sqlite3.DatabaseError, InfrastructureError):
        path = index_file(folder)
        database = sqlite3.connect(path, timeout=60)
        if database.execute("PRAGMA user_version").fetchone() == (_VERSION,):
            return database
        database.close()
    return _anew(folder)


def _anew(folder: Path) -> sqlite3.Connection:
    with contextlib.suppress(OSError, sqlite3.DatabaseError, InfrastructureError):
        path = index_file(folder)
        path.unlink(missing_ok=True)
        others = sorted(path.parent.glob("*.sqlite3"), key=lambda each: each.stat().st_mtime, reverse=True)
        for old in others[MOST_INDEXES - 1 :]:
            old.unlink(missing_ok=True)
        return _fresh(path)
    return _fresh(":memory:")


def _fresh(where: Path | str) -> sqlite3.Connection:
    database = sqlite3.connect(where, timeout=60)
    database.execute("PRAGMA synchronous = OFF")  # a crash of the machine costs a rebuild
    database.executescript(f"{_TABLES}PRAGMA user_version = {_VERSION};")
    return database
