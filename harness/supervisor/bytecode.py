"""Python's bytecode, kept by content: a run's worktree is new each time, and would have all of it compiled again.

A kept file is a hash-based pyc (PEP 552) that Python checks against the source before it believes it, so that what
is imported is what the commit says even if something here were wrong.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError

FOLDER = "bytecode"
_HEADER = 16  # magic number, flags, then eight bytes that say which source
_CHECKED_HASH = (0b11).to_bytes(4, "little")
_TIMESTAMP = bytes(4)


def provide(folder: Path, tree: Path, sha: str) -> None:
    """Links what is kept for the files of the commit into its worktree. What cannot be linked is compiled there."""
    kept: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder / FOLDER):
            kept.setdefault(name.partition(".")[0], []).append(name)
    if not kept:
        return
    for blob, path in Repository(folder).blobs(sha, ".py"):
        for name in kept.get(blob, ()):
            source = tree / path
            target = source.parent / "__pycache__" / f"{source.stem}.{name.partition('.')[2]}"
            with contextlib.suppress(OSError):
                target.parent.mkdir(exist_ok=True)
                os.link(folder / FOLDER / name, target)


def keep(folder: Path, tree: Path, sha: str) -> None:
    """Keeps what Python has compiled in a worktree that was proved to be as its commit."""
    home = folder / FOLDER
    with contextlib.suppress(OSError, HostError):  # without it the next run compiles once more
        home.mkdir(exist_ok=True)
        for blob, path in Repository(folder).blobs(sha, ".py"):
            for compiled in _compiled(tree / path):
                target = home / f"{blob}.{compiled.name.removeprefix(f'{Path(path).stem}.')}"
                if not target.exists() and (data := _hash_based(compiled, tree / path)):
                    _write(target, data)


def _compiled(source: Path) -> Iterator[Path]:
    return (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")


def _hash_based(compiled: Path, source: Path) -> bytes | None:
    """The content of a pyc that names its source by time and size, naming it by hash instead; None for any other."""
    data = compiled.read_bytes()
    state = source.stat()
    stamp = int(state.st_mtime).to_bytes(8, "little")[:4] + state.st_size.to_bytes(8, "little")[:4]
    if data[:_HEADER] != importlib.util.MAGIC_NUMBER + _TIMESTAMP + stamp:
        return None
    return data[:4] + _CHECKED_HASH + importlib.util.source_hash(source.read_bytes()) + data[_HEADER:]


def _write(target: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
