"""sha256 of files that seldom change, known again by what stat(2) says of them.

Git's rule for what is racy holds here too: a file that changed less than two seconds before it was hashed may change
again without stat showing it, so that its hash is not kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

RACY_NS = 2_000_000_000
NAME = ".hashes.json"
MOST = 20_000  # files that are remembered

Facts = tuple[int, int, int, int, int]


class Hashes:
    """What files and folders hold now. Every question asks stat(2); several threads may ask."""

    def __init__(self, folder: Path) -> None:
        """Remembers in `folder`, which is this account's alone."""
        self._file = folder / NAME
        self._files: dict[str, tuple[Facts, str]] = {}
        self._folders: dict[str, tuple[Facts, frozenset[str]]] = {}
        self._new = False
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            known = json.loads(self._file.read_text(encoding="utf-8"))
            self._files = {str(path): (_five(facts), str(digest)) for path, (facts, digest) in known.items()}

    def of(self, path: str) -> str:
        """The sha256 of what is at `path`; empty where no file is."""
        try:
            found = os.stat(path)  # a commit may ask for any path: a FIFO is not waited for, nor a device opened
            if not stat.S_ISREG(found.st_mode) or found.st_dev in _made_up():
                return ""
            facts = _facts(found)
            known = self._files.get(path)
            if known and known[0] == facts:
                return known[1]
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    return ""
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                after = _facts(os.fstat(file.fileno()))
        except OSError:
            return ""
        if _facts(before) == after == facts and _settled(facts):
            self._files[path] = (facts, digest)
            self._new = True
        return digest

    def names(self, folder: str) -> frozenset[str]:
        """What is in `folder`; nothing where none is."""
        try:
            facts = _facts(os.stat(folder))
            known = self._folders.get(folder)
            if known and known[0] == facts:
                return known[1]
            found = frozenset(os.listdir(folder))
        except OSError:
            return frozenset()
        if _settled(facts):
            self._folders[folder] = (facts, found)
        return found

    def save(self) -> None:
        """Keeps what has been learned. A cache that cannot be written costs time and nothing else."""
        if not self._new:
            return
        self._new = False
        kept = dict(list(self._files.items())[-MOST:])
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=NAME, dir=self._file.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump(kept, file, separators=(",", ":"))
                os.replace(name, self._file)
            except OSError:
                os.unlink(name)
                raise


@functools.cache
def _made_up() -> frozenset[int]:
    """File systems whose files the kernel makes up, some of them without an end."""
    return frozenset(os.stat(path).st_dev for path in ("/proc", "/sys") if os.path.isdir(path))


def _facts(found: os.stat_result) -> Facts:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


def _five(facts: list[int]) -> Facts:
    size, modified, changed, inode, device = map(int, facts)
    return (size, modified, changed, inode, device)


def _settled(facts: Facts) -> bool:
    return time.time_ns() - max(facts[1], facts[2]) > RACY_NS
