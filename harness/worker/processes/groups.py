"""Process groups: start a command in a session of its own, and end everything it started.

Killing the process one has started is not enough: nvcc leaves cicc and ptxas behind, and a build that "timed out" goes
on using the machine. So a command gets its own session, the whole session is signalled, and we look whether anybody is
left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

POLL_SECONDS = 0.02
TICK_SECONDS = 0.1  # how late a limit or a cancellation may be noticed
GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 10.0  # for the kernel to carry out a SIGKILL
_PIECE = 1 << 20
MARK: Final = "| "  # before each line that a process beyond the wall has said
_PR_SET_PDEATHSIG = 1
_MESSAGE_CHARACTERS = 300


class ProcessGroupError(Exception):
    """Somebody of a group survived SIGKILL; the message names the processes."""


def spawn(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes] | None,
) -> subprocess.Popen[bytes]:
    """Starts `command` as the leader of a new session and process group, by default with nothing to read."""
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether `process` has ended. Unlike poll() it does not reap, so that its pid keeps naming its group."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for_exit(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits until `process` has ended, `seconds` at most; whether it has. Does not reap it."""
    if has_exited(process):
        return True
    descriptor = os.pidfd_open(process.pid)
    try:
        waiter = select.poll()
        waiter.register(descriptor, select.POLLIN)
        return bool(waiter.poll(max(0.0, 1000 * seconds)))
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended or was ended. `output` is its standard output and error, in the order they came; `flooded`
    says that it was ended because of them."""

    returncode: int
    output: str
    timed_out: bool
    seconds: float
    flooded: bool = False


def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    limit_seconds: float,
    env: Mapping[str, str] | None = None,
    cancel: threading.Event | None = None,
    heard: Callable[[bytes], None] = lambda data: None,
    limit_bytes: int | None = None,
) -> Completed:
    """Runs `command` to its end, or ends its whole group after `limit_seconds`, once `cancel` is set, or when it has
    written more than `limit_bytes`, of which the first are returned.

    `heard` is given the output as it comes, now and then also nothing.

    Whoever the command left running in its group is ended too, as is everybody when an exception, KeyboardInterrupt
    included, passes through here. Output goes to memory, not to a pipe that a left-over child could hold open, and not
    to a disk that may be full.
    """
    cancel = cancel or threading.Event()
    start = time.monotonic()
    with open(os.memfd_create("output"), "w+b") as output:
        process = spawn(command, cwd=cwd, env=env, stdout=output, stderr=output)
        at = 0
        try:
            timed_out = flooded = False
            while not wait_for_exit(process, TICK_SECONDS) and not cancel.is_set() and not (timed_out or flooded):
                timed_out = time.monotonic() - start > limit_seconds
                flooded = limit_bytes is not None and os.fstat(output.fileno()).st_size > limit_bytes
                at += _hand_on(output, at, heard, limit_bytes)
        finally:
            terminate_group(process)
        _hand_on(output, at, heard, limit_bytes)
        output.seek(0)
        flooded = flooded or (limit_bytes is not None and os.fstat(output.fileno()).st_size > limit_bytes)
        text = output.read(limit_bytes if flooded else None).decode("utf-8", errors="replace")
    return Completed(process.returncode, text, timed_out, time.monotonic() - start, flooded)


def _hand_on(output: IO[bytes], at: int, heard: Callable[[bytes], None], most: int | None) -> int:
    """What has come since `at`, in pieces, and up to `most`: a file can be made long without anything in it."""
    start = at
    while (most is None or at <= most) and (data := os.pread(output.fileno(), _PIECE, at)):
        heard(data)
        at += len(data)
    if at == start:
        heard(b"")  # of silence too
    return at - start


def group_members(pgid: int) -> tuple[int, ...]:
    """The live processes whose group or session is `pgid`.

    Zombies do not count: an orphan waits for its new parent to reap it, which in a container may never happen. Asked
    of each process of the machine whenever a command has ended: two system calls take a fifteenth of reading a file.
    """
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return tuple(pid for pid in pids if _is_of(pid, pgid) and _state(pid) not in "ZX")


def group_alive(pgid: int) -> bool:
    """Whether any live process is left in the group or session `pgid`."""
    return bool(group_members(pgid))


def terminate_group(process: subprocess.Popen[bytes], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ends `process`, which `spawn` started and nobody has reaped, and everything in its session; reaps it.

    SIGTERM first, SIGKILL to whoever is left after `grace_seconds`. Returns only when nobody is left, and raises
    ProcessGroupError when that does not come true.
    """
    if process.returncode is not None:
        return  # ended here before: the pid may be somebody else's by now
    members = group_members(process.pid)
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, KILL_SECONDS)):
        deadline = time.monotonic() + patience
        _signal(members, number)
        while members:
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)  # members fork: no set of pidfds is complete
            members = group_members(process.pid)
            if number == signal.SIGKILL:
                _signal(members, number)  # whoever was forked meanwhile
        else:
            process.wait()
            return
    left = ", ".join(map(str, members))
    raise ProcessGroupError(f"process group {process.pid} survives SIGKILL: {left}")


def die_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when the thread that started it ends (Linux only).

    `parent` is the pid of the process that was meant; if it is gone already, this process ends now.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os._exit(1)


def describe_exit(returncode: int) -> str:
    """`exit code 3` or `SIGKILL`, from a Popen return code."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def last_words(said: bytes) -> str:
    """The line of a process's standard error that says most: a fatal error's first, else the last one."""
    lines = [line.strip().removeprefix(MARK) for line in said.decode("utf-8", errors="replace").splitlines()]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or [line for line in lines if line] or [""])[-1][:_MESSAGE_CHARACTERS]


def memory_kills() -> int:
    """How many processes of this one's control group the kernel has killed since the group's memory ran out.

    0 where that cannot be known. See cgroups(7); `oom_kill` counts those of the groups below as well.
    """
    groups = _read("/proc/self/cgroup").splitlines()
    paths = {controllers: path.lstrip("/") for _, controllers, path in (line.split(":", 2) for line in groups)}
    files = [f"/sys/fs/cgroup/memory/{paths[name]}/memory.oom_control" for name in ("memory",) if name in paths]
    files += [f"/sys/fs/cgroup/{paths['']}/memory.events"] if "" in paths else []
    for file in files:
        for name, _, count in (line.partition(" ") for line in _read(file).splitlines()):
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _is_of(pid: int, pgid: int) -> bool:
    try:
        return os.getpgid(pid) == pgid or os.getsid(pid) == pgid
    except (ProcessLookupError, PermissionError):
        return False


def _state(pid: int) -> str:
    """State letter of `pid`; X when it is gone. See proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return "X"
    return text.rpartition(")")[2].split()[0]


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
