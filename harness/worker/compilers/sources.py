"""The sources of a kernel, as one hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fmha.harness.isolate import VARIABLE

_PIECE = 1 << 20


def hash_sources(root: Path, names: Sequence[str] = ("kernel",)) -> str:
    """sha256 over the names and bytes of files, and of every file under folders, hidden ones left out.

    Of a link that leads out of `root` it is over what the link says: nothing elsewhere is read.
    """
    digest, inside = hashlib.sha256(), root.resolve()
    for path in files_of(root, names):
        name = os.fsencode(path.relative_to(root).as_posix())  # of any bytes
        if path.resolve().is_relative_to(inside):
            with path.open("rb") as file:  # in pieces: a commit may bring one that is longer than any memory
                digest.update(b"%s\0%d\0" % (name, os.fstat(file.fileno()).st_size))
                while piece := file.read(_PIECE):
                    digest.update(piece)
        else:
            text = os.fsencode(path.readlink() if path.is_symlink() else "")
            digest.update(b"%s\0%d\0%s" % (name, len(text), text))
    return digest.hexdigest()


def counted(sources: Sequence[str]) -> tuple[str, ...]:
    """The sources by whose contents what a compiler in Python makes is known, beside what it says that it has read: all
    of the tree, where commits of several people meet, since it could read anything of it and not say so."""
    return (".",) if os.environ.get(VARIABLE) == "require" else tuple(sources)


def files_of(root: Path, names: Sequence[str]) -> Iterator[Path]:
    """The files of these names, and those below folders of these names, hidden ones left out."""
    return (path for name in names for path in _sources(root / name))


def _sources(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path
