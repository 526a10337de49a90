"""Taking away a run or a folder, with what nobody else needs of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import RunDirectory, read_json, runs


def remove(repository: Repository, directory: RunDirectory) -> int | None:
    """Removes a run that has ended; its size in bytes, None where it lives or is gone."""
    try:
        lock = directory.hold()
    except (BlockingIOError, FileNotFoundError):
        return None
    try:
        size = size_of(directory.path)
        with contextlib.suppress(OSError, ValueError):
            others = [other for other in runs(directory.folder) if other.run != directory.run and other.exists()]
            needed = {sha for other in others for sha in _commits(other)}
            for sha in _commits(directory) - needed:
                repository.forget(sha)
        for tree in (directory.tree, directory.beside, directory.judge):
            if tree.exists():
                repository.remove(tree)
        shutil.rmtree(directory.path, ignore_errors=True)
    finally:
        os.close(lock)
    return size


def remove_folder(path: Path) -> int:
    """Removes a folder with all that is in it; its size in bytes."""
    size = size_of(path)
    shutil.rmtree(path, ignore_errors=True)
    return size


def _commits(directory: RunDirectory) -> set[str]:
    job = read_json(directory.path / "job.json")
    return {job["sha"], job.get("beside"), job.get("judge")} - {None}


def size_of(path: Path) -> int:
    """Bytes on the disk of a folder with all that is in it."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
