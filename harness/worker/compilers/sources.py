"""The sources of a kernel, as one hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def hash_sources(root: Path, names: Sequence[str] = ("kernel",)) -> str:
    """sha256 over the names and bytes of files, and of every file under folders, hidden ones left out.

    Of a link that leads out of `root` it is over what the link says: nothing elsewhere is read.
    """
    digest, inside = hashlib.sha256(), root.resolve()
    for path in (path for name in names for path in _sources(root / name)):
        within = path.resolve().is_relative_to(inside)
        data = path.read_bytes() if within else os.fsencode(path.readlink() if path.is_symlink() else "")
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path
