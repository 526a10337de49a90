"""Runs a job in worker processes: streams their events, and replaces a worker that crashes or hangs.

A configuration that takes its worker down costs itself alone. Nothing a worker does reaches the caller as anything
but an event, apart from WorkerError: no worker can be had at all.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

from fmha.harness.errors import InfrastructureError
from fmha.harness.worker.codec import CodecError, event_from_line, write_job
from fmha.harness.worker.process import (
    GRACE_SECONDS,
    describe_exit,
    has_exited,
    spawn,
    terminate_group,
    wait_for_exit,
)
from fmha.harness.worker.protocol import Cell, Event, Job

TICK_SECONDS = 0.1  # how late a limit or a death may be noticed
MAXIMUM_LINE = 16 << 20  # bytes; beyond it a line is garbage, not an event
FRUITLESS_STARTS = 2  # workers in a row that end before they start a configuration
_MESSAGE_CHARACTERS = 300
_TAIL_BYTES = 1 << 16


class WorkerError(InfrastructureError):
    """Workers end before they start anything; the message has the last thing one of them said."""


class _LostWorkerError(Exception):
    """The worker is of no further use. `status` is what its running configuration is charged with."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class _Limits:
    silence: float
    total: float


def run_worker(
    job: Job, run_dir: Path, silence_seconds: float, total_seconds: float, cwd: Path
) -> Generator[Event, None, None]:
    """The events of `job`, one `result` or `error` a configuration, then one `done`.

    `run_dir` receives the job file, the events and the standard error of every worker started. `cwd` is where the
    package `harness` is looked for first. `total_seconds` bounds a configuration, and what comes before the first one;
    a worker that for `silence_seconds` writes neither an event nor a line to its standard error is ended too. Whoever
    closes the generator, or interrupts it, ends the worker and everything it started. Workers also end with the thread
    that consumes the events. Raises WorkerError.
    """
    limits = _Limits(silence_seconds, total_seconds)
    try:
        yield from _run_all(job, run_dir, limits, cwd)
    except OSError as error:
        raise WorkerError(f"cannot run workers: {error.strerror or error}", where=str(run_dir)) from error
    yield Event("done")


def _run_all(job: Job, run_dir: Path, limits: _Limits, cwd: Path) -> Iterator[Event]:
    """Starts workers until every configuration has its last event."""
    run_dir.mkdir(parents=True, exist_ok=True)
    remaining = {configuration.id: configuration for configuration in job.configurations}
    attempt = fruitless = 0
    while remaining:
        attempt += 1
        fruitless += 1
        part = dataclasses.replace(job, configurations=tuple(remaining.values()))
        with _Worker(part, run_dir / f"worker-{attempt:03}", cwd) as worker:
            for event in worker.events(remaining, limits):
                fruitless = 0
                yield event
        if fruitless == FRUITLESS_STARTS:
            what = f"workers end before they start a configuration: {worker.reason}"
            raise WorkerError(what, next_step=f"see {worker.stderr_path}")


class _Worker:
    """One worker process and its stream of events."""

    def __init__(self, job: Job, stem: Path, cwd: Path) -> None:
        self.stderr_path = stem.with_suffix(".stderr")
        self.reason = ""
        self._running = ""
        self._event_at = self._heard_at = time.monotonic()
        self._stderr_bytes = 0
        job_path = stem.with_suffix(".json")
        write_job(job, job_path)
        self._log: IO[bytes] = stem.with_suffix(".events").open("wb")
        command = [sys.executable, "-m", "fmha.harness.worker", str(job_path), "--parent", str(os.getpid())]
        with self.stderr_path.open("wb") as stderr:
            # A configuration's matrices are small: BLAS's threads would spend twice the processor time on waiting.
            env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            self._process = spawn(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=stderr)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            terminate_group(self._process)
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._log.close()

    def events(self, remaining: dict[str, Cell], limits: _Limits) -> Iterator[Event]:
        """Events until the worker is done or of no more use; takes from `remaining` what has its last event."""
        try:
            for line in self._lines(limits):
                event = self._checked(line, remaining)
                if event.event == "done":
                    self._wait_for_exit()
                    return
                self._follow(event, remaining)
                yield event
        except _LostWorkerError as end:
            self.reason = end.reason
            terminate_group(self._process)
            if self._running:
                yield self._charge(end, remaining)

    def _follow(self, event: Event, remaining: dict[str, Cell]) -> None:
        self._event_at = time.monotonic()
        if event.event == "started":
            self._running = event.config
        else:
            self._running = ""
            del remaining[event.config]

    def _charge(self, end: _LostWorkerError, remaining: dict[str, Cell]) -> Event:
        """The last event of the configuration that the worker took down with it."""
        name, self._running = self._running, ""
        del remaining[name]
        seconds = time.monotonic() - self._event_at
        return Event("error", name, status=end.status, message=end.reason, seconds=seconds)

    def _checked(self, line: bytes, remaining: dict[str, Cell]) -> Event:
        """The event of `line`, if the worker may send it now: one that talks nonsense is treated as crashed."""
        try:
            event = event_from_line(line)
        except CodecError as error:
            raise self._ended("crash", f"worker wrote a line that is no event ({error})") from error
        if event.event == "started":
            in_turn = not self._running and event.config in remaining
        elif event.event == "done":
            in_turn = not remaining
        else:
            in_turn = bool(self._running) and event.config == self._running
        if not in_turn:
            raise self._ended("crash", f"worker sent {event.event!r} for {event.config!r} out of turn")
        return event

    def _lines(self, limits: _Limits) -> Iterator[bytes]:
        """Whole lines of the worker's output. Raises _LostWorkerError when no more will come, or too late."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        pending = bytearray()  # of a line that has not ended
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                exited = has_exited(self._process)  # asked first: what it wrote before is then still to be read
                if not selector.select(0 if exited else TICK_SECONDS):
                    if exited:  # a child of the worker may hold the pipe open: do not wait for its end
                        raise self._end_of_output(pending)
                    self._enforce(limits)
                    continue
                data = os.read(descriptor, 1 << 16)
                self._heard_at = time.monotonic()
                self._log.write(data)
                self._log.flush()
                pending += data
                if b"\n" in data:
                    *lines, pending = pending.split(b"\n")
                    yield from map(bytes, lines)
                if not data:
                    raise self._end_of_output(pending)
                if len(pending) > MAXIMUM_LINE:
                    raise self._ended("crash", f"worker wrote a line of more than {MAXIMUM_LINE} bytes")

    def _enforce(self, limits: _Limits) -> None:
        """Raises _LostWorkerError when the worker has been at it for too long."""
        now = time.monotonic()
        size = os.stat(self.stderr_path).st_size
        if size != self._stderr_bytes:
            self._stderr_bytes, self._heard_at = size, now
        if now - self._event_at > limits.total:
            raise self._ended("timeout", f"exceeded {limits.total:g} s, killed")
        if now - self._heard_at > limits.silence:
            raise self._ended("timeout", f"silent for {limits.silence:g} s, killed")

    def _end_of_output(self, pending: bytearray) -> _LostWorkerError:
        """Why the output ended, with the worker's exit status."""
        if not self._wait_for_exit():
            return self._ended("crash", "worker closed its output and did not end")
        terminate_group(self._process)
        how = describe_exit(self._process.returncode)
        what = f"worker killed by {how}" if self._process.returncode < 0 else f"worker ended early with {how}"
        return self._ended("crash", f"{what}, in the middle of a line" if pending else what)

    def _wait_for_exit(self) -> bool:
        """Gives a worker that has said its last a moment to end by itself; whether it did."""
        return wait_for_exit(self._process, GRACE_SECONDS)

    def _ended(self, status: str, reason: str) -> _LostWorkerError:
        said = self._last_words()
        return _LostWorkerError(status, f"{reason}; it last said: {said}" if said else reason)

    def _last_words(self) -> str:
        """The line of standard error that says most: a fatal error's first, else the last one."""
        with self.stderr_path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", errors="replace").splitlines()]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        return (fatal or [line for line in lines if line] or [""])[-1][:_MESSAGE_CHARACTERS]
