"""Runs of a working folder: what there is, what it said, and the removal of what is old, never of what is live."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fmha.harness.supervisor import bytecode, environments, keeper, upload
from fmha.harness.supervisor.removal import remove, size_of
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import RunDirectory, runs

MOST_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class StorageLimits:
    """What may stay: nothing older than `age_seconds`, and no more than `size_bytes` of all, the oldest going first."""

    age_seconds: float
    size_bytes: int


def listing(folder: Path) -> list[dict[str, Any]]:
    """Every run, newest first, with its state, or its last event's while it lives."""
    listed = []
    for directory in runs(folder):
        try:
            keeper.recover(directory)
            job, status = directory.job(), directory.status()
        except (OSError, ValueError):
            continue  # being made or being removed
        state = status["state"] if status else _last_state(directory)
        listed.append(
            {
                "run": directory.run,
                "host": job["work"]["host"],
                "sha": job["sha"],
                "label": job["label"],
                "state": state,
                "reason": status["reason"] if status else "",
                "live": directory.live(),
                "age_seconds": max(0.0, time.time() - directory.path.stat().st_ctime),
                "silent_seconds": _silence(directory),
            }
        )
    return listed[::-1]


def logs(directory: RunDirectory) -> Iterator[tuple[str, str]]:
    """The run's own log and the standard error of its workers, each its last MOST_LOG_BYTES."""
    for path in [directory.log, *sorted((directory.path / "workers").rglob("*.stderr"))]:
        if (file := _own_file(path, directory.path)) is not None:
            with file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_LOG_BYTES))
                yield str(path.relative_to(directory.path)), file.read().decode("utf-8", "replace")


def _own_file(path: Path, folder: Path) -> BinaryIO | None:
    """A file that lies in `folder`, opened; None for any other. What is enclosed writes there, links and pipes too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    real = os.path.realpath(f"/proc/self/fd/{descriptor}")
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and real.startswith(f"{os.path.realpath(folder)}/"):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def clean(folder: Path, limits: StorageLimits, *, dry: bool) -> list[dict[str, Any]]:
    """Removes finished runs, then environments and build caches, that are too old or too much. Says what went."""
    repository = Repository(folder)
    now = time.time()
    finished = [directory for directory in runs(folder) if not directory.live()]
    sized = [(directory, size_of(directory.path)) for directory in finished]
    total = sum(size for _, size in sized)
    removed = []
    for directory, size in sized:
        age = now - directory.path.stat().st_ctime
        if age <= limits.age_seconds and total <= limits.size_bytes:
            continue
        if dry or remove(repository, directory) is not None:
            removed.append({"kind": "run", "name": directory.run, "bytes": size})
            total -= size
    if not any(directory.live() for directory in runs(folder)):
        removed += _clean_caches(folder, limits, total, now, dry=dry)
    if removed and not dry:
        repository.prune()
    return removed


def _clean_caches(folder: Path, limits: StorageLimits, total: int, now: float, *, dry: bool) -> list[dict[str, Any]]:
    """Environments by their last use, entries of the build cache by their making; the oldest first."""
    found = [(environments.last_used(path), "environment", path) for path in environments.names(folder)]
    found += [(path.stat().st_mtime, "bytecode", path) for path in (folder / bytecode.FOLDER,) if path.is_dir()]
    incoming = folder / upload.FOLDER
    if incoming.is_dir() and any(incoming.iterdir()):
        found.append((incoming.stat().st_mtime, "upload", incoming))
    found += [(path.stat().st_mtime, "build", path) for path in (folder / "cache").glob("*-*") if path.is_dir()]
    sized = [(used, kind, path, size_of(path)) for used, kind, path in sorted(found)]
    total += sum(size for *_, size in sized)
    removed = []
    for used, kind, path, size in sized:
        if now - used <= limits.age_seconds and total <= limits.size_bytes:
            continue
        with environments.unused(path) if kind == "environment" else contextlib.nullcontext(True) as free:
            if not free:
                continue
            if not dry:
                shutil.rmtree(path, ignore_errors=True)
        removed.append({"kind": kind, "name": path.name, "bytes": size})
        total -= size
    return removed


def _last_state(directory: RunDirectory) -> str:
    state = "starting"
    with contextlib.suppress(OSError):
        for line in directory.events.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event["kind"] == "state":
                    state = event["state"]
                elif event["kind"] == "waiting":
                    state = f"queued at {event['position']}: {event['reason']}"
    return state


def _silence(directory: RunDirectory) -> float:
    try:
        return max(0.0, time.time() - directory.heartbeat.stat().st_mtime)
    except OSError:
        return 0.0
