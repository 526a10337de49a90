"""Starts a run's supervisor detached from the connection, with a keeper beside it.

The keeper does nothing but wait. When the supervisor dies without a final status, killed by somebody or by the kernel
for want of memory, the keeper ends what it leaves behind and says so in the status.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fmha.harness.supervisor import processes
from fmha.harness.supervisor.inotify import Watch
from fmha.harness.supervisor.run import ended, supervise
from fmha.harness.supervisor.rundir import HostError, RunDirectory, read_json, write_json
from fmha.harness.worker.processes.groups import describe_exit

CANCEL_SECONDS = 30.0
PATIENCE = 3  # silences of the client's that a stopped supervisor is waited for
SILENCE_SECONDS = 20.0  # of a run whose job does not say
_STOPPED = ("T", "t")
_LOOK_SECONDS = 0.2  # for what changes no file: the run's processes are killed


def launch(directory: RunDirectory, lock: int, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
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
            code = _keep(directory, secrets)
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
    told = False
    start = time.monotonic()
    with Watch(directory.path) as watch:
        while directory.status() is None and directory.live():
            # One that has just been forked is not known yet, one that somebody has stopped hears nothing.
            told = told or (_signal(directory, signal.SIGTERM) and _signal(directory, signal.SIGCONT))
            if time.monotonic() - start > 2 * CANCEL_SECONDS:
                raise HostError(
                    f"run {directory.run} does not end, not even by SIGKILL", "see its processes on the host"
                )
            if time.monotonic() - start > CANCEL_SECONDS:
                _signal(directory, signal.SIGKILL)
            watch.wait(_LOOK_SECONDS)
    recover(directory)
    return True


class Stopped:
    """How long supervisor or keeper have been stopped (SIGSTOP): nobody else would end the wait for them."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._patience = patience(directory)
        self._since: float | None = None

    def end(self) -> None:
        """To be called now and then: ends the run once they have been stopped for too long."""
        me = _supervisor(self._directory)
        if not any(_state(pid) in _STOPPED for pid in (me.get("pid", 0), me.get("keeper", 0))):
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > self._patience:
            for pid, start in ((me["pid"], me["start"]), (me["keeper"], me["keeper_start"])):
                if _start_time(pid) == start:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            processes.end(self._directory.run)
            ended(self._directory)
            self._directory.finish(*_after_stop(self._directory, self._patience))


def patience(directory: RunDirectory) -> float:
    """Seconds that a stopped supervisor is waited for: it may be a moment's, for a debugger."""
    return PATIENCE * float(directory.job().get("silence", SILENCE_SECONDS))


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
        ended(directory)
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


def _keep(directory: RunDirectory, secrets: Mapping[str, str]) -> int:
    processes.become_keeper()
    gc.freeze()  # a collection would touch, and so copy, every page that the two share
    child = os.fork()
    if child == 0:
        try:
            pid, keeper = os.getpid(), os.getppid()
            me = {"pid": pid, "start": _start_time(pid), "keeper": keeper, "keeper_start": _start_time(keeper)}
            write_json(directory.path / "supervisor.json", me, durable=False)
            supervise(directory, secrets)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    seconds = patience(directory)
    status, stopped = _attend(child, seconds)
    if directory.status() is None:
        left = processes.end(directory.run)
        tasks = ended(directory)
        state, reason = _after_stop(directory, seconds) if stopped else _after_death(directory, status)
        stuck = f"; processes {', '.join(map(str, left))} survive SIGKILL" if left else ""
        stuck += f"; {tasks}" if tasks else ""
        directory.finish(state, f"{reason}{stuck}")
    return 0


def _attend(child: int, seconds: float) -> tuple[int, bool]:
    """Waits for a process to end, and kills it when it has been stopped for `seconds`: its wait status, and whether it
    was. Reaps whoever else has come to us."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    deadline, killed = None, False
    while True:
        while (answer := os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED))[0]:
            pid, status = answer
            if pid != child:
                continue
            if os.WIFSTOPPED(status):
                deadline = time.monotonic() + seconds
            elif os.WIFCONTINUED(status):
                deadline = None
            else:
                return status, killed
        if deadline is None:
            signal.sigwaitinfo({signal.SIGCHLD})
        elif (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
        else:
            deadline, killed = None, True
            os.kill(child, signal.SIGKILL)


def _after_stop(directory: RunDirectory, seconds: float) -> tuple[str, str]:
    if directory.cancel.exists():
        return "cancelled", "cancelled"
    return "lost", f"the supervisor was stopped (SIGSTOP) for {seconds:g} s, and killed"


def _after_death(directory: RunDirectory, status: int) -> tuple[str, str]:
    how = f"the supervisor ended with {describe_exit(os.waitstatus_to_exitcode(status))}"
    if directory.cancel.exists():  # it was not there yet to hear that, or did not obey
        return "cancelled", f"cancelled; {how}"
    return "lost", how


def _supervisor(directory: RunDirectory) -> dict[str, Any]:
    try:
        me: dict[str, Any] = read_json(directory.path / "supervisor.json")
    except FileNotFoundError:
        return {}
    return me


def _signal(directory: RunDirectory, number: signal.Signals) -> bool:
    """Whether the supervisor was there to be signalled."""
    me = _supervisor(directory)
    if not me or _start_time(me["pid"]) != me["start"]:
        return False
    try:
        os.kill(me["pid"], number)
    except ProcessLookupError:
        return False
    return True


def _state(pid: int) -> str:
    """Field 3 of proc(5)'s stat; empty for a process that is gone."""
    return (_stat(pid) or [""])[0]


def _start_time(pid: int) -> str:
    """Field 22 of proc(5)'s stat: with it a pid names one process, until the next boot."""
    return _stat(pid)[19] if _stat(pid) else ""


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat from the third on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
