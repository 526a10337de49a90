"""Runs a job in worker processes: streams their events, and replaces a worker that crashes or hangs.

A job has one seat or several: places for one worker at a time, a GPU each or a share of this machine's cores. Each
worker is handed one configuration after the other, from the one queue of the job, so that all seats end together. A
configuration that takes its worker down costs itself alone. Nothing a worker does reaches the caller as anything but an
event, apart from WorkerError: no worker can be had at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fmha.harness import isolate
from fmha.harness.contract.codec import CodecError, event_from_line, write_job
from fmha.harness.contract.protocol import Event, Job
from fmha.harness.errors import InfrastructureError
from fmha.harness.worker.pool.parts import whole
from fmha.harness.worker.processes.groups import (
    GRACE_SECONDS,
    describe_exit,
    has_exited,
    last_words,
    memory_kills,
    spawn,
    terminate_group,
    wait_for_exit,
)

TICK_SECONDS = 0.1  # how late a limit or a death may be noticed
MAXIMUM_LINE = 16 << 20  # bytes; beyond it a line is garbage, not an event
FRUITLESS_STARTS = 2  # workers in a row that end before they start a configuration
_TAIL_BYTES = 1 << 16


class WorkerError(InfrastructureError):
    """Workers end before they start anything; the message has the last thing one of them said."""


class _LostWorkerError(Exception):
    """The worker is of no further use. `status` is what its running configuration is charged with."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class _StoppedError(Exception):
    """Nobody wants more events."""


@dataclasses.dataclass(frozen=True, slots=True)
class Seat:
    """A place for one worker at a time: what its environment has in addition, and the `place` of its events."""

    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    place: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Limits:
    silence: float
    total: float


def run_worker(
    job: Job,
    run_dir: Path,
    silence_seconds: float,
    total_seconds: float,
    cwd: Path,
    seats: Sequence[Seat] = (Seat(),),
    places: Iterable[int] | None = None,
) -> Generator[Event, None, None]:
    """The events of `job`, one `result` or `error` a configuration, then one `done`.

    Configurations are handed out in the job's order, to whichever seat is free; with several seats they end in another.
    `run_dir` receives the job file, the events and the standard error of every worker started. `cwd` is where the
    package `harness` is looked for first. `total_seconds` bounds a configuration, and what comes before the first one;
    a worker that for `silence_seconds` writes neither an event nor a line to its standard error is ended too. Whoever
    closes the generator, or interrupts it, ends the workers and everything they started. Workers also end with this
    process. `places` are those in the job of the configurations to run, taken one by one as seats are free; all where
    it is not given. A seat on which nothing starts is given up, which a `note` says; WorkerError when it is the last.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        count = len(job.configurations) * job.parts
        handed = range(count) if places is None else places
        pool = _Pool(job, run_dir, _Limits(silence_seconds, total_seconds), cwd, _Queue(handed))
        with contextlib.closing(pool.serve(seats[:count])) as events:
            yield from events if job.parts == 1 else whole(events, job)
    except OSError as error:
        raise WorkerError(f"cannot run workers: {error.strerror or error}", where=str(run_dir)) from error
    yield Event("done")


class _Queue:
    """The configurations that nobody has started, handed out by their place in the job."""

    def __init__(self, places: Iterable[int]) -> None:
        self._places = iter(places)
        self._waiting: deque[int] = deque()
        self._offered = 0  # handed to a worker that has not started them yet: they may come back
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> int | None:
        """The next one, waited for as long as one may come back; None when there is none any more."""
        with self._changed:
            while not self._closed:
                if not self._waiting:
                    self._waiting.extend(itertools.islice(self._places, 1))
                if self._waiting:
                    self._offered += 1
                    return self._waiting.popleft()
                if not self._offered:
                    return None
                self._changed.wait()
            return None

    def started(self) -> None:
        with self._changed:
            self._offered -= 1
            self._changed.notify_all()

    def give_back(self, place: int) -> None:
        with self._changed:
            self._offered -= 1
            self._waiting.appendleft(place)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def empty(self) -> bool:
        """Whether nothing is left; takes one more to find out."""
        if not self._waiting:
            self._waiting.extend(itertools.islice(self._places, 1))
        return not self._waiting


class _Pool:
    """The seats of a job, a thread each, and what they say in the order in which it happens."""

    def __init__(self, job: Job, run_dir: Path, limits: _Limits, cwd: Path, waiting: _Queue) -> None:
        self._job, self._run_dir, self._limits, self._cwd, self._queue = job, run_dir, limits, cwd, waiting
        self._said: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()  # None: a seat has ended
        self._numbers = itertools.count(1)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._given_up: WorkerError | None = None

    def serve(self, seats: Sequence[Seat]) -> Generator[Event, None, None]:
        threads = [threading.Thread(target=self._seat, args=(seat,), daemon=True) for seat in seats]
        working = 0
        try:
            for thread in threads:
                thread.start()
                working += 1
            while working:
                said = self._said.get()
                if isinstance(said, BaseException):
                    raise said
                if said is None:
                    working -= 1
                else:
                    yield said
            if self._given_up is not None and not self._queue.empty:
                raise self._given_up
        finally:
            os.eventfd_write(self._stop, 1)
            self._queue.close()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            os.close(self._stop)

    def _seat(self, seat: Seat) -> None:
        try:
            for event in self._events(seat):
                self._said.put(dataclasses.replace(event, place=seat.place) if seat.place else event)
        except _StoppedError:
            pass
        except BaseException as error:
            self._said.put(error)
        finally:
            self._said.put(None)

    def _events(self, seat: Seat) -> Iterator[Event]:
        """Starts workers until no configuration is left for this seat."""
        fruitless = 0
        while fruitless < FRUITLESS_STARTS:
            if (first := self._queue.take()) is None:
                return
            fruitless += 1
            stem = self._run_dir / f"worker-{next(self._numbers):03}"
            try:
                worker = _Worker(self._job, stem, self._cwd, seat.env, self._queue, first, self._stop)
            except BaseException:
                self._queue.give_back(first)
                raise
            with worker:
                for event in worker.events(self._limits):
                    fruitless = 0
                    yield event
        what = f"workers end before they start a configuration: {worker.reason}"
        self._given_up = WorkerError(what, where=seat.place, next_step=f"see {worker.stderr_path}")
        yield Event("note", message=f"{seat.place or 'a worker'} is given up: {what}")


class _Worker:
    """One worker process and its stream of events."""

    def __init__(
        self, job: Job, stem: Path, cwd: Path, env: Mapping[str, str], waiting: _Queue, first: int, stop: int
    ) -> None:
        self.stderr_path = stem.with_suffix(".stderr")
        self.reason = ""
        self._configurations, self._parts = job.configurations, job.parts
        self._queue, self._stop = waiting, stop
        self._handed: int | None = first
        self._running = ""
        self._event_at = self._heard_at = time.monotonic()
        self._stderr_bytes = 0
        self._memory_kills = memory_kills()
        job_path = stem.with_suffix(".json")
        write_job(job, job_path)
        self._log = stem.with_suffix(".events").open("wb", buffering=0)
        # -P: what is judged may be a tree with a package of that name, and the working folder would come first.
        command = [sys.executable, "-P", "-m", "fmha.harness.worker"]
        command += [str(job_path), "--parent", str(os.getpid()), "--handed"]
        with self.stderr_path.open("wb") as stderr:
            # A configuration's matrices are small: BLAS's threads would spend twice the processor time on waiting.
            threads = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            env = os.environ | threads | isolate.handed_on() | dict(env)
            self._process = spawn(
                command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            terminate_group(self._process)
        finally:
            if self._handed is not None:
                self._queue.give_back(self._handed)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._log.close()

    def events(self, limits: _Limits) -> Iterator[Event]:
        """Events until no configuration is left, or the worker is of no more use."""
        try:
            self._hand()
            for line in self._lines(limits):
                event = self._checked(line)
                if event.event == "done":
                    self._wait_for_exit()
                    return
                self._follow(event)
                yield event
        except _LostWorkerError as end:
            self.reason = end.reason
            terminate_group(self._process)
            if self._running:
                yield self._charge(end)

    def _hand(self) -> None:
        """Tells the worker which configuration is its next, or that there is none."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its end is noticed when its output ends
            if self._handed is None:
                self._process.stdin.close()
            else:
                self._process.stdin.write(b"%d\n" % self._handed)
                self._process.stdin.flush()

    def _follow(self, event: Event) -> None:
        self._event_at = time.monotonic()
        if event.event == "started":
            self._running, self._handed = event.config, None
            self._queue.started()
        else:
            self._running = ""
            self._handed = self._queue.take()
            self._hand()

    def _charge(self, end: _LostWorkerError) -> Event:
        """The last event of the configuration that the worker took down with it."""
        name, self._running = self._running, ""
        seconds = time.monotonic() - self._event_at
        return Event("error", name, status=end.status, message=end.reason, seconds=seconds)

    def _checked(self, line: bytes) -> Event:
        """The event of `line`, if the worker may send it now: one that talks nonsense is treated as crashed."""
        try:
            event = event_from_line(line)
        except CodecError as error:
            raise self._ended("crash", f"worker wrote a line that is no event ({error})") from error
        if event.event == "started":
            in_turn = self._handed is not None and event.config == self._configurations[self._handed // self._parts].id
        elif event.event == "done":
            in_turn = not self._running and self._handed is None
        else:
            in_turn = event.event in ("result", "error") and bool(self._running) and event.config == self._running
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
            selector.register(self._stop, selectors.EVENT_READ)
            while True:
                exited = has_exited(self._process)  # asked first: what it wrote before is then still to be read
                ready = [key.fd for key, _ in selector.select(0 if exited else TICK_SECONDS)]
                if self._stop in ready:
                    raise _StoppedError
                if not ready:
                    if exited:  # a child of the worker may hold the pipe open: do not wait for its end
                        raise self._end_of_output(pending)
                    self._enforce(limits)
                    continue
                data = os.read(descriptor, 1 << 16)
                self._heard_at = time.monotonic()
                with contextlib.suppress(OSError):  # for whoever looks afterwards: a full disk costs nobody a result
                    self._log.write(data)
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
        if self._process.returncode == -signal.SIGKILL and memory_kills() > self._memory_kills:
            what += ": the memory that it may take was used up"
        return self._ended("crash", f"{what}, in the middle of a line" if pending else what)

    def _wait_for_exit(self) -> bool:
        """Gives a worker that has said its last a moment to end by itself; whether it did."""
        return wait_for_exit(self._process, GRACE_SECONDS)

    def _ended(self, status: str, reason: str) -> _LostWorkerError:
        said = self._last_words()
        return _LostWorkerError(status, f"{reason}; it last said: {said}" if said else reason)

    def _last_words(self) -> str:
        with self.stderr_path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return last_words(file.read())
