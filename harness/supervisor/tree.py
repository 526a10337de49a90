"""The files of a commit on disk: written as they are in it, and proved by their contents.

git's own checkout changes files where somebody's configuration, attributes or locale say so: line endings, filters,
links as plain files, expanded keywords. Here a file is the bytes of its blob and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.supervisor.rundir import HostError

MOST_NAMED = 10
PLAIN, EXECUTABLE, LINK = "100644", "100755", "120000"
_NOT_OURS = frozenset({b".git"})  # at the root: git's own note of which worktree this is


@dataclass(frozen=True)
class Entry:
    """A file of a commit: its mode and the id of its blob, as git has them."""

    mode: str
    blob: str


Entries = Mapping[bytes, Entry]


def write(entries: Entries, blobs: Iterable[bytes], tree: Path) -> None:
    """Writes the files of `entries`, whose contents are `blobs` in the same order, into the folder `tree`.

    Nothing may be there yet. Raises HostError for what is no file, and for a link that leads out of the tree.
    """
    root, made = os.fsencode(tree), {b""}
    links = []
    for (path, entry), data in zip(entries.items(), blobs, strict=True):
        folder = path.rpartition(b"/")[0]
        if {b"", b".", b".."} & set(path.split(b"/")) or path.split(b"/")[0] in _NOT_OURS:
            raise HostError(f"the commit has a file that no tree may have: {os.fsdecode(path)!r}")
        if folder not in made:
            os.makedirs(os.path.join(root, folder), exist_ok=True)
            made.add(folder)
        target = os.path.join(root, path)
        if entry.mode == LINK:
            os.symlink(data, target)
            links.append(path)
        elif entry.mode in (PLAIN, EXECUTABLE):
            mode = 0o777 if entry.mode == EXECUTABLE else 0o666
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            with open(descriptor, "wb", buffering=0) as file:
                file.write(data)
        else:
            raise HostError(f"the commit has {os.fsdecode(path)!r} as a submodule, which no run gets")
    inside = os.path.realpath(root)
    out = [path for path in links if not (os.path.realpath(os.path.join(root, path)) + b"/").startswith(inside + b"/")]
    if out:
        raise HostError(f"the commit has links that lead out of it: {named(out)}", "copy what they lead to")


def differences(entries: Entries, tree: Path, ignored: Callable[[list[bytes]], set[bytes]]) -> list[bytes]:
    """The files of `tree` that are not as in `entries`: changed, gone, or there without being in it or `ignored`."""
    root = os.fsencode(tree)
    different = [path for path, entry in entries.items() if not _same(os.path.join(root, path), entry)]
    added = [path for path in _files(root) if path not in entries]
    return different + (sorted(set(added) - ignored(added)) if added else [])


def named(paths: list[bytes]) -> str:
    shown = ", ".join(repr(os.fsdecode(path)) for path in paths[:MOST_NAMED])
    return shown + (f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else "")


def _same(path: bytes, entry: Entry) -> bool:
    """Whether mode and contents are those of the entry; the id of a blob is the digest of both its size and bytes."""
    try:
        if entry.mode == LINK:
            return _digest(os.readlink(path), entry) == entry.blob
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            mode = os.fstat(descriptor).st_mode
            executable = bool(mode & stat.S_IXUSR)
            if not stat.S_ISREG(mode) or executable != (entry.mode == EXECUTABLE):
                return False
            return _digest(file.readall(), entry) == entry.blob
    except OSError:
        return False


def _digest(data: bytes, entry: Entry) -> str:
    algorithm = hashlib.sha1 if len(entry.blob) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _files(root: bytes) -> list[bytes]:
    """Everything below `root` that is no folder, by its path from there."""
    found, folders = [], [b""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if path in _NOT_OURS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    found.append(path)
    return found
