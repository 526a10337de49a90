"""Where tests write: in memory, if there is room. They make and remove hundreds of thousands of files, each of which
costs a disk's file system twice as much."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # a whole run has 2 GiB at a time; programs need the rest
ROOM_FILES = 1 << 19
_NAMED = ("TMPDIR", "TEMP", "TMP", "PYTEST_DEBUG_TEMPROOT")


class InMemory:
    """A plugin that has a run take `folder` for files of a moment, unless somebody has named another or it will not do:
    it may have less than `room` bytes, as in a container, or forbid programs. Workers inherit what is chosen."""

    def __init__(self, folder: Path = SHARED_MEMORY, room: int = ROOM_BYTES) -> None:
        self.taken = not any(map(os.environ.get, _NAMED)) and _will_do(folder, room)
        if self.taken:
            os.environ["TMPDIR"] = str(folder)
            tempfile.tempdir = None  # what was found before

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Removes what tests have written, once the workers have ended, if all have passed. Not before: where a test
        has a path that another has had, a process would know what was there then."""
        written: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
        named = session.config.getoption("basetemp", None)
        if self.taken and exitstatus == pytest.ExitCode.OK and written is not None and not named:
            shutil.rmtree(written.getbasetemp(), ignore_errors=True)


def _will_do(folder: Path, room: int) -> bool:
    try:
        found = os.statvfs(folder)
        free = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return False
    allowed = os.access(folder, os.W_OK | os.X_OK) and not found.f_flag & os.ST_NOEXEC
    files = found.f_files == 0 or found.f_favail >= ROOM_FILES  # 0: no limit
    return allowed and files and free is not None and min(found.f_bavail * found.f_frsize, int(free[1]) << 10) >= room
