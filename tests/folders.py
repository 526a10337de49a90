"""Where tests write: in memory, if there is room. They make and remove hundreds of thousands of files, each of which
costs a disk's file system several times as much."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # a whole run has 2 GiB at a time; programs need the rest


def write_in_memory(folder: Path = SHARED_MEMORY, room: int = ROOM_BYTES) -> bool:
    """Has this process, and what it starts, take `folder` for files of a moment, unless somebody has named another or
    it will not do: it may be too small, as in a container, or forbid programs."""
    if os.environ.get("TMPDIR") or not _will_do(folder, room):
        return False
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # what was found before
    return True


def _will_do(folder: Path, room: int) -> bool:
    try:
        found = os.statvfs(folder)
        free = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return False
    allowed = os.access(folder, os.W_OK | os.X_OK) and not found.f_flag & os.ST_NOEXEC
    return allowed and free is not None and min(found.f_bavail * found.f_frsize, int(free[1]) << 10) >= room
