"""What the trends need of each record, kept in a file of its own so that a record is read once.

The file is derived and may be deleted: then the records are read again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness.archive.index import RUN_NAME
from fmha.harness.archive.record_files import document
from fmha.harness.errors import UserError
from fmha.harness.judge.comparison.comparison import NOT_THE_KERNELS
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.numbers import NAMES

CACHE_FILE = ".trends.sqlite3"
_VERSION = 2
# What a box copies, or multiplies, in a time: that of a kernel, whatever box of a model it was timed on.
BOX_RATES = {"box_copies_meanwhile": "bytes_per_second", "box_multiplies_meanwhile": "operations_per_second"}
_MACHINES = frozenset({"seconds", "product_seconds", "thread_seconds"})  # how fast the emulator was, not the kernel
_BATCH = 64
_TABLE = f"""
CREATE TABLE runs (name TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, error TEXT, facts BLOB) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, without what no trend shows. `figures` are errors, counters and times by configuration, `variants` sizes
    and build seconds by variant, `bits` the start of the outputs' hashes."""

    name: str
    started: str
    sha: str
    dirty: bool
    host: str
    gpu: str
    uuid: str
    schedule: str
    suite: str
    seed: int
    word: str
    words: str
    passed: int
    total: int
    axes: Mapping[str, Mapping[str, int | str]]
    status: Mapping[str, str]
    figures: Mapping[str, Mapping[str, float]]
    variants: Mapping[str, Mapping[str, float]]
    bits: Mapping[str, str]
    rates: Mapping[str, float]  # of the box beside its times, by BOX_RATES


def facts(folder: Path) -> tuple[list[RunFacts], dict[str, str]]:
    """Every run of the archive, the oldest first, and what is wrong with files that are none, by name."""
    with contextlib.closing(_opened(folder)) as database:
        _update(database, folder)
        rows = database.execute("SELECT error, facts, name FROM runs ORDER BY name").fetchall()
    good = [RunFacts(**json.loads(zlib.decompress(row[1]))) for row in rows if row[0] is None]
    return sorted(good, key=lambda item: (item.started, item.name)), {row[2]: row[0] for row in rows if row[0]}


def _update(database: sqlite3.Connection, folder: Path) -> None:
    present = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if RUN_NAME.fullmatch(entry.name):
                stat = entry.stat()
                present[entry.name] = (stat.st_size, stat.st_mtime_ns)
    known = {row[0]: row[1:] for row in database.execute("SELECT name, size, mtime_ns FROM runs")}
    with database:
        database.executemany("DELETE FROM runs WHERE name = ?", [(name,) for name in known.keys() - present.keys()])
    changed = [folder / name for name, stamp in sorted(present.items()) if known.get(name) != stamp]
    for path, error, blob in _read(changed):
        with database:
            row = (path.name, *present[path.name], error, blob)
            database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", row)


def _read(paths: Sequence[Path]) -> Iterable[tuple[Path, str | None, bytes | None]]:
    if len(paths) < _BATCH:
        yield from map(_extracted, paths)
        return
    with ProcessPoolExecutor(min(4, len(os.sched_getaffinity(0)))) as pool:
        yield from pool.map(_extracted, paths, chunksize=_BATCH // 4)


def _extracted(path: Path) -> tuple[Path, str | None, bytes | None]:
    try:
        found = _facts(path.name, document(path))
        return path, None, zlib.compress(json.dumps(found).encode("utf-8", "replace"), 1)
    except UserError as error:
        return path, error.what, None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return path, f"is no run record: {type(error).__name__} {error}", None


def _facts(name: str, data: Any) -> dict[str, Any]:
    commit, host, selection, verdict = data["commit"], data["host"], data["selection"], data["verdict"]
    gpu, held = host.get("gpu") or {}, data.get("regress") or {}
    items = data["configurations"]
    return {
        "name": name,
        "started": str(data["started"]),
        "sha": str(commit["sha"]),
        "dirty": bool(commit["dirty"]) or bool(commit.get("installed")),
        "host": str(host["name"]),
        "gpu": str(gpu.get("name", "")),
        "uuid": str(gpu.get("uuid", "")),
        "schedule": str(selection["schedule"]),
        "suite": str(selection["suite"]),
        "seed": int(selection["seed"]),
        "word": "REGRESSED" if held.get("regressions") else str(verdict["word"]),
        "words": str(held.get("words", "")),
        "passed": int(verdict["passed"]),
        "total": int(verdict["total"]),
        "axes": {str(item["id"]): _axes(item["parameters"]) for item in items},
        "status": {str(item["id"]): str(item["status"]) for item in items},
        "figures": {str(item["id"]): _figures(item) for item in items},
        "variants": {str(item["name"]): _sizes(item) for item in data["variants"]},
        "rates": _rates(items),
        "bits": {str(item["id"]): str(item["metrics"]["output_hash"])[:8] for item in items if item["metrics"]},
    }


def _axes(parameters: Mapping[str, Any]) -> dict[str, int | str]:
    return {str(name): value for name, value in parameters.items() if isinstance(value, int | str)}


def _figures(item: Mapping[str, Any]) -> dict[str, float]:
    metrics, timing = item["metrics"] or {}, item.get("timing")
    found: dict[str, float] = {}
    for name, metric in METRICS.items():
        value = metrics.get(name)
        if value is not None:
            found[name] = float(f"{metric.error(float(NAMES.get(value, value))):.5g}")
    for name, value in item["stats"].items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _MACHINES | NOT_THE_KERNELS:
            found[str(name)] = value
    if timing:
        seconds = statistics.median(timing["seconds"])
        found["time"] = float(f"{seconds:.6g}")
        for figure, rate in BOX_RATES.items():
            if timing.get(rate):
                found[figure] = float(f"{seconds * timing[rate]:.6g}")
    return found


def _rates(items: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for figure, rate in BOX_RATES.items():
        measured = [item["timing"][rate] for item in items if item.get("timing") and item["timing"].get(rate)]
        if measured:
            found[figure] = float(f"{statistics.median(measured):.6g}")
    return found


def _sizes(variant: Mapping[str, Any]) -> dict[str, float]:
    sizes = {str(name): float(value) for name, value in (variant["resources"] or {}).items()}
    if variant.get("shared_dynamic") is not None:
        sizes["shared_dynamic"] = float(variant["shared_dynamic"])
    if not variant["cached"] and not variant["error"]:
        sizes["build_seconds"] = float(f"{variant['seconds']:.4g}")
    return sizes


def _opened(folder: Path) -> sqlite3.Connection:
    path: Path | str = folder / CACHE_FILE if folder.is_dir() and os.access(folder, os.W_OK) else ":memory:"
    if isinstance(path, Path):
        with contextlib.suppress(sqlite3.DatabaseError):
            database = sqlite3.connect(path, timeout=60)
            if database.execute("PRAGMA user_version").fetchone() == (_VERSION,):
                return database
            database.close()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    database = sqlite3.connect(path, timeout=60)
    database.execute("PRAGMA synchronous = OFF")
    database.executescript(_TABLE)
    return database
