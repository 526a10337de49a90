"""The build cache: one directory an entry, named by what was asked for and by what the build of it has read.

An entry is built in a directory beside it, flushed, and renamed into place; its manifest is written last and names the
sha256 of every artefact. An entry whose manifest does not match its name and its files is no entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fmha.harness.errors import InfrastructureError

MANIFEST = "manifest.json"
_TEMPORARY = "tmp-"
_LOCK = ".lock"
_DIGITS = 20  # of a hash, in a name
MOST_BYTES = 4 << 30
KEPT_SECONDS = 6 * 3600.0


class CacheError(InfrastructureError):
    """The cache cannot be read or written: no space, no permission, a failing disk."""


def cache_error(cache: Path, error: OSError) -> CacheError:
    """`error` as the user should read it."""
    reason = error.strerror or str(error)
    return CacheError(
        f"cannot use the build cache: {reason}", where=str(cache), next_step="free space or move the cache"
    )


def name_of(variant: str, asked: str, key: str) -> str:
    """The name of an entry. `asked` is the hash of what is known before a build, `key` also of what it has read."""
    return f"{variant}-{asked[:_DIGITS]}-{key[:_DIGITS]}"


def candidates(cache: Path, variant: str, asked: str) -> list[Path]:
    """The entries of what was asked for, the one that was used last first."""
    found = cache.glob(f"{glob.escape(variant)}-{asked[:_DIGITS]}-*")
    return sorted(found, key=_used, reverse=True)


def read_manifest(entry: Path) -> dict[str, Any] | None:
    """What the entry says of itself; None where it says nothing."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def touch(entry: Path) -> None:
    """Says that it was used now."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def discard(entry: Path) -> None:
    """Removes an entry."""
    with _locked(entry.parent):
        _removed(entry)


def _removed(entry: Path) -> None:
    """Removes an entry, or the link to one of the host's that a run's own cache has."""
    if entry.is_symlink():
        entry.unlink()
    else:
        shutil.rmtree(entry, ignore_errors=True)


def trim(
    cache: Path,
    most_bytes: int = MOST_BYTES,
    kept_seconds: float = KEPT_SECONDS,
    age_seconds: float = math.inf,
    *,
    dry: bool = False,
) -> dict[Path, int]:
    """Removes entries that were not used for `age_seconds`, and those first that were not used for longest until
    `most_bytes` are left. None goes that was used in the last `kept_seconds`, since a run may load it still. Says what
    went, with its size; `dry` only says."""
    gone = {}
    with _locked(cache):
        entries = sorted((path for path in cache.glob("*-*-*") if path.is_dir() and not path.is_symlink()), key=_used)
        sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in entries}
        total = sum(sizes.values())
        for path in entries:
            unused = time.time() - _used(path)
            if unused < kept_seconds or (total <= most_bytes and unused <= age_seconds):
                break
            if not dry:
                shutil.rmtree(path, ignore_errors=True)
            gone[path] = sizes[path]
            total -= sizes[path]
    return gone


def _used(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0


def lookup(entry: Path, key: str) -> dict[str, Any] | None:
    """The manifest of a whole entry built under `key`; None when it is missing, partial or corrupt."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        files: dict[str, str] = manifest["files"]
        whole = manifest["key"] == key and all(_sha256(entry / name) == digest for name, digest in files.items())
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if whole else None


@contextlib.contextmanager
def workspace(cache: Path) -> Iterator[Path]:
    """An empty directory inside the cache, removed at the end whatever happens.

    It is locked while it is in use, so that one whose owner was killed can be told apart and swept by the next.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(cache):
        _sweep(cache)
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=cache))
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def publish(work: Path, entry: Path, key: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Makes the files of the directory `work` the entry, and returns its manifest.

    When another process has published the same key meanwhile, its entry stays and is returned.
    """
    names = sorted(path.name for path in work.iterdir())
    manifest = {**facts, "key": key, "files": {name: _sha256(work / name) for name in names}}
    for name in names:
        _flush(work / name)
    (work / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    _flush(work / MANIFEST)
    _flush(work)
    with _locked(entry.parent):
        if (existing := lookup(entry, key)) is not None:
            return existing
        if entry.is_symlink():
            entry.unlink()
        if entry.exists():  # corrupt: moved aside first, so that no reader finds half of it
            entry.rename(work.parent / "replaced")
        work.rename(entry)
        _flush(entry.parent)
    return manifest


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[None]:
    # What runs enclosed as a whole writes there: a link is not followed, nor is anything cut short.
    descriptor = os.open(cache / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb+", buffering=0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(cache: Path) -> None:
    """Removes the directories of builders that no longer live. Needs the cache's lock."""
    for path in cache.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
