"""Everything a run has started, wherever it has got to: found by a mark in the environment, not by group alone.

A compiler's helper that made a session of its own, or whose parent died, still carries its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from harness.worker.process import GRACE_SECONDS, KILL_SECONDS, POLL_SECONDS

MARK = "FMHA_RUN"
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def marked(run: str) -> tuple[int, ...]:
    """The live processes of a run; zombies do not count."""
    wanted = f"{MARK}={run}".encode()
    return tuple(pid for pid in _pids() if _alive(pid) and wanted in _environment(pid))


def end(run: str, grace_seconds: float = GRACE_SECONDS) -> tuple[int, ...]:
    """Ends every process of a run: SIGTERM, then SIGKILL after `grace_seconds`. Returns those that survive that."""
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, KILL_SECONDS)):
        deadline = time.monotonic() + patience
        sent: set[int] = set()
        while left := marked(run):
            for pid in left:
                if pid not in sent or number == signal.SIGKILL:
                    sent.add(pid)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)  # new ones may appear until the last is gone: no set of pidfds is complete
        else:
            return ()
    return marked(run)


def become_keeper() -> None:
    """Makes this process the parent of whoever its descendants leave behind; none of them can gain privileges.

    Without new privileges sudo and su have no effect, whatever a setup command or a kernel's build tries.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
