"""Waits for a change in a folder, by inotify(7)."""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path

POLL_SECONDS = 0.05  # where the kernel gives out no more watches
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x002, 0x080, 0x100


class Watch:
    """What changes from here on in `folder`, files in it being written, made, or moved there."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
        self._works = self._descriptor >= 0 and libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask) >= 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Returns after a change since the last call, or after `seconds`; it may also return without either."""
        if not self._works:
            select.select([], [], [], min(seconds, POLL_SECONDS))
        elif select.select([self._descriptor], [], [], seconds)[0]:
            os.read(self._descriptor, 1 << 16)
