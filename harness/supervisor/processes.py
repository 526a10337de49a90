"""Everything a run has started, wherever it has got to: found by a mark in the environment, not by group alone.

A compiler's helper that made a session of its own, or whose parent died, still carries its environment. One that has
dropped that too (`env -i setsid`) still descends from the run's keeper, which adopts whoever has lost a parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

from fmha.harness.worker.processes.groups import GRACE_SECONDS, KILL_SECONDS, POLL_SECONDS

MARK = "FMHA_RUN"
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_keeper: int | None = None  # that of the run whose keeper or supervisor this process is


def marked(run: str) -> tuple[int, ...]:
    """The live processes of a run, but for its keeper and supervisor; zombies do not count."""
    wanted = f"{MARK}={run}".encode()
    kin = _descendants(_keeper) - {os.getpid()} if _keeper is not None else set()
    return tuple(pid for pid in _pids() if (pid in kin or wanted in _environment(pid)) and _alive(pid))


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
    global _keeper
    _keeper = os.getpid()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def shrink() -> None:
    """Gives memory that this process does not use back to the system, for one that is going to wait for long.

    A checkout leaves some 10 MB of freed blocks behind, which glibc keeps.
    """
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _alive(pid: int) -> bool:
    return (found := _state_and_parent(pid)) is not None and found[0] not in "ZX"


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    if not (text := _read(pid, "stat")):
        return None
    state, parent, _ = text.rpartition(b")")[2].split(maxsplit=2)
    return state.decode(), int(parent)


def _descendants(ancestor: int) -> set[int]:
    parents: dict[int, int] = {}
    gone = True
    while gone:  # a parent that ended while we read has left its children to another one
        found = {pid: pair[1] for pid in _pids() if (pair := _state_and_parent(pid)) is not None}
        gone = bool(set(found.values()) - found.keys() - {0}) and found != parents
        parents = found
    kin = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in kin} - kin:
        kin |= more
    return kin - {ancestor}


def _environment(pid: int) -> list[bytes]:
    return _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    """A file of /proc of a process, empty where it is gone or somebody else's. Of every process of the machine some are
    read before a run has its final status: without a buffer and a decoder that takes a third."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
