"""The run directory: everything that is known about one run on its host, in files that outlive every process.

Whether a run is live is not read from a pid, which may be another process's by now, nor from a clock: its keeper and
its supervisor hold a lock on the directory's `lock` file, and the kernel drops it with the last of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}-[0-9a-f]{8}")
RESERVE_BYTES = 64 << 10
APPEND_SECONDS = 60.0  # how long a full disk is waited for
_RETRY_SECONDS = 0.5


class HostError(Exception):
    """An expected failure on the host: one line for the user, and what to do about it."""

    def __init__(self, what: str, next_step: str = "", *, usage: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        self.usage = usage  # the request was wrong, not the machinery


class RunDirectory:
    """The files of one run. `job.json` is written first, `status.json` last; nothing in between is ever rewritten."""

    def __init__(self, folder: Path, run: str) -> None:
        if not RUN_ID.fullmatch(run):
            raise HostError(f"{run!r} is no run", "fmha ps lists the runs", usage=True)
        self.folder = folder
        self.run = run
        self.path = folder / "runs" / run
        self.tree = self.path / "tree"
        self.judge = self.path / "judge"  # the worktree of the commit that judges, where it is another
        self.beside = self.path / "beside"  # the worktree of the commit that is timed beside the run's
        self.events = self.path / "events.jsonl"
        self.log = self.path / "run.log"
        self.cancel = self.path / "cancel"
        self.heartbeat = self.path / "heartbeat"
        self._reserve = self.path / "reserve"
        self._status = self.path / "status.json"
        self._lock = self.path / "lock"
        self._fetched = self.path / "fetched"

    def create(self, job: dict[str, Any]) -> None:
        """Makes the directory. The reserve is disk space for the last words, should the disk be full by then."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._reserve.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        (self.path / "finish.lock").touch()
        write_json(self.path / "job.json", job)

    def previous_tree(self) -> Path | None:
        """The worktree of the latest run but this one, if there is any."""
        with contextlib.suppress(FileNotFoundError):
            others = sorted((name for name in os.listdir(self.path.parent) if name != self.run), reverse=True)
            return next((tree for name in others if (tree := self.path.parent / name / "tree").is_dir()), None)
        return None

    def exists(self) -> bool:
        """Whether a run has begun in this folder."""
        return (self.path / "job.json").is_file()

    def job(self) -> dict[str, Any]:
        """The run's job, as it was written."""
        job: dict[str, Any] = read_json(self.path / "job.json")
        return job

    def status(self) -> dict[str, Any] | None:
        """The final status; None while there is none."""
        try:
            status: dict[str, Any] = read_json(self._status)
        except FileNotFoundError:
            return None
        return status

    def finish(self, state: str, reason: str = "", **more: Any) -> dict[str, Any]:
        """Writes the final status, with size and sha256 of the events, unless there is one. Returns what is there."""
        with (self.path / "finish.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (earlier := self.status()) is not None:
                return earlier
            data = self.events.read_bytes() if self.events.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]  # a torn last line is no event
            status = {
                "state": state,
                "reason": reason,
                "events_bytes": len(whole),
                "events_sha256": hashlib.sha256(whole).hexdigest(),
                "finished": time.time(),
                **more,
            }
            try:
                write_json(self._status, status)
            except OSError:
                self._reserve.unlink(missing_ok=True)
                write_json(self._status, status)
            return status

    def mark_fetched(self) -> None:
        """Says that a client has had all of it."""
        with contextlib.suppress(OSError):
            self._fetched.touch()

    def fetched(self) -> bool:
        """Whether the client has read all of the run."""
        return self._fetched.exists()

    def hold(self) -> int:
        """Takes the lock that says that the run is live; BlockingIOError when somebody has it."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def live(self) -> bool:
        """Whether the run's keeper or supervisor lives."""
        try:
            os.close(self.hold())
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False


class EventLog:
    """Appends whole lines to `events.jsonl`: a line is there with its newline, or not at all."""

    def __init__(self, directory: RunDirectory) -> None:
        self._descriptor = os.open(directory.events, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.lseek(self._descriptor, 0, os.SEEK_END)
        self._count = 0

    def add(self, kind: str, **fields: Any) -> None:
        """Appends one event. A full disk is waited for, APPEND_SECONDS at most; then OSError."""
        self._count += 1
        event = {"n": self._count, "at": round(time.time(), 3), "kind": kind, **fields}
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        deadline = time.monotonic() + APPEND_SECONDS
        while True:
            try:
                if os.pwrite(self._descriptor, line, self._size) == len(line):
                    self._size += len(line)
                    return
                reason: OSError | None = None
            except OSError as error:
                reason = error
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            if time.monotonic() > deadline:
                raise reason or OSError(28, os.strerror(28))
            time.sleep(_RETRY_SECONDS)  # a full disk tells nobody when it has room again


def runs(folder: Path) -> Iterator[RunDirectory]:
    """All runs of a working folder, oldest first."""
    try:
        names = sorted(os.listdir(folder / "runs"))
    except FileNotFoundError:
        return
    for name in names:
        if RUN_ID.fullmatch(name):
            yield RunDirectory(folder, name)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Writes a file whole or not at all; one that is not `durable` may be neither after a power cut."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, separators=(",", ":"))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def read_json(path: Path) -> Any:
    """The contents of a file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
