"""Starts a run's supervisor detached from the connection, with a keeper beside it.

The keeper does nothing but wait. When the supervisor dies without a final status, killed by somebody or by the kernel
for want of memory, the keeper ends what it leaves behind and says so in the status.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from harness.supervisor import processes
from harness.supervisor.run import supervise
from harness.supervisor.rundir import HostError, RunDirectory, read_json, write_json
from harness.supervisor.watch import Watch
from harness.worker.process import describe_exit

CANCEL_SECONDS = 30.0
_LOOK_SECONDS = 0.2  # for what changes no file: the run's processes are killed


def launch(directory: RunDirectory, lock: int) -> None:
    """Starts keeper and supervisor. `lock` is what RunDirectory.hold returned; both keep it to their end.

    Call it before any thread is started.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lock)
        return
    code = 1
    try:
        os.setsid()
        if os.fork():
            code = 0
        else:
            _detach(directory, lock)
            code = _keep(directory)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def cancel(directory: RunDirectory, who: str) -> bool:
    """Ends a live run and waits for its final status; whether it was live. One that does not obey is killed."""
    if not directory.live():
        return False
    with contextlib.suppress(OSError):  # a full disk does not keep anybody from cancelling
        directory.cancel.write_text(who, encoding="utf-8")
    _signal(directory, signal.SIGTERM)
    start = time.monotonic()
    with Watch(directory.path) as watch:
        while directory.status() is None and directory.live():
            if time.monotonic() - start > 2 * CANCEL_SECONDS:
                raise HostError(
                    f"run {directory.run} does not end, not even by SIGKILL", "see its processes on the host"
                )
            if time.monotonic() - start > CANCEL_SECONDS:
                _signal(directory, signal.SIGKILL)
            watch.wait(_LOOK_SECONDS)
    recover(directory)
    return True


def recover(directory: RunDirectory) -> None:
    """Gives a run whose keeper and supervisor are gone its final status, and ends what is left of it."""
    if directory.status() is not None or not directory.exists():
        return
    try:
        lock = directory.hold()
    except BlockingIOError:
        return
    try:
        if not (directory.path / "supervisor.json").exists():
            directory.finish("lost", "the run was never started: the connection ended before", started=False)
            return
        processes.end(directory.run)
        directory.finish("lost", "supervisor and keeper were killed, or the host went down")
    finally:
        os.close(lock)


def _detach(directory: RunDirectory, lock: int) -> None:
    """Lets go of everything that belongs to the connection."""
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a runner that has gone is an error like others; Popen undoes it
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(directory.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.closerange(3, lock)
    os.closerange(lock + 1, 1 << 16)
    sys.stdout = sys.stderr = os.fdopen(2, "w")


def _keep(directory: RunDirectory) -> int:
    processes.become_keeper()
    child = os.fork()
    if child == 0:
        try:
            me = {"pid": os.getpid(), "start": _start_time(os.getpid()), "keeper": os.getppid()}
            write_json(directory.path / "supervisor.json", me, durable=False)
            supervise(directory)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    if directory.status() is None:
        left = processes.end(directory.run)
        how = describe_exit(os.waitstatus_to_exitcode(status))
        stuck = f"; processes {', '.join(map(str, left))} survive SIGKILL" if left else ""
        directory.finish("lost", f"the supervisor ended with {how}{stuck}")
    return 0


def _signal(directory: RunDirectory, number: signal.Signals) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        me = read_json(directory.path / "supervisor.json")
        if _start_time(me["pid"]) == me["start"]:
            os.kill(me["pid"], number)


def _start_time(pid: int) -> str:
    """Field 22 of proc(5)'s stat: with it a pid names one process, until the next boot."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
