"""A job on the nodes of a Slurm cluster, seen from its login node: arrays of tasks, followed through what they write.

A round is one array over the configurations that remain. Its tasks take them from a folder that all nodes share
(harness/worker/pool/node.py). What a task did is in its own event file; the scheduler only says which tasks there still
are.
A configuration runs again only after Slurm has said of every task of the round that it is over, or after none has given
a sign of life for long: nothing runs twice without our knowledge, and of what did run twice, both are looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fmha.harness.back_off import BackOff
from fmha.harness.config import Limits
from fmha.harness.contract.codec import CodecError, decode, write_job
from fmha.harness.contract.protocol import Cell, Event, Job
from fmha.harness.errors import InfrastructureError
from fmha.harness.supervisor import slurm
from fmha.harness.supervisor.rundir import HostError
from fmha.harness.worker.pool import node
from fmha.harness.worker.pool.worker_shares import spread

TICK_SECONDS: Final = 0.2  # between looks into the shared folder, which tells nobody
READS_A_SECOND: Final = 100  # of tasks' files, at the most: a file server has others to serve
FIRST_POLL_SECONDS: Final = 1.0  # between questions to Slurm, which has other users: more the longer nothing changes
LONGEST_POLL_SECONDS: Final = 20.0
ALIVE_SECONDS: Final = 10.0  # how often whoever waits for us hears that we are there
KILLED_SECONDS: Final = 3.0  # for the last words of a task that was ended, which as a rule has none
LEAVE_SECONDS: Final = 15.0  # for tasks to end by themselves when nothing remains for them
MOST_FRUITLESS: Final = 3  # rounds in a row without any result
MOST_BEGINNINGS: Final = 2  # of a configuration that the end of a task interrupts, whoever is to blame
OUTSIDE: Final = "it was cancelled from outside"


@dataclass(slots=True)
class _Attempt:
    """One start of one task, as its folder tells."""

    path: Path
    offset: int = 0
    running: dict[str, None] = field(default_factory=dict)  # begun, and not ended
    silent: bool = False  # it has said its last word, and nothing of it was running
    node: str = ""
    over: str = ""  # "end" or why it failed, by its own word
    beat: str = ""
    heard: float = field(default_factory=lambda: time.monotonic())

    @property
    def key(self) -> tuple[int, int]:
        array, _, index = self.path.name.partition(".")[0].partition("_")
        return int(array), int(index)

    @property
    def restarts(self) -> int:
        return int(self.path.name.partition(".")[2])


@dataclass(slots=True)
class _Round:
    folder: Path
    job: Job
    tasks: int
    arrays: set[int] = field(default_factory=set)
    attempts: dict[str, _Attempt] = field(default_factory=dict)
    states: dict[tuple[int, int], slurm.SlurmTask] = field(default_factory=dict)
    ended: dict[tuple[int, int], float] = field(default_factory=dict)  # when Slurm was first seen to call a task over
    asked: bool = False  # Slurm has answered since the submission
    results: int = 0

    def latest(self, key: tuple[int, int]) -> _Attempt | None:
        """The last start of a task."""
        found = [attempt for attempt in self.attempts.values() if attempt.key == key]
        return max(found, key=lambda attempt: attempt.restarts, default=None)

    def state_of(self, attempt: _Attempt) -> str:
        """Its task's, as far as that is about this start of it."""
        if self.latest(attempt.key) is not attempt:
            return "REQUEUED"
        task = self.states.get(attempt.key)
        if task is None:
            return "forgotten by Slurm"
        return "REQUEUED" if task.state in slurm.WAITING else task.state  # it has begun: it waits once more


class Cluster:
    """Runs jobs of one run. `say` hears, in the supervisor's words, what stands between two events."""

    def __init__(self, run: str, folder: Path, wish: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
        self._run, self._folder, self._wish, self._say = run, folder, wish, say
        self._job = 0
        self._told: tuple[str, ...] = ()
        self._known: set[int] = set()  # arrays of all rounds
        self._alive = time.monotonic()

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        """One `result` or `error` a configuration, then `done`. Closing it ends all tasks."""
        self._job += 1
        remaining = {item.id: item for item in job.configurations}
        begun: dict[str, int] = {}
        hashes: dict[str, tuple[str, str]] = {}  # by configuration: of its outputs, and where
        rounds: list[_Round] = []
        fruitless = 0
        try:
            while remaining:
                part = replace(job, configurations=tuple(remaining.values()))
                rounds.append(self._start(part, limits, len(rounds) + 1))
                yield from self._follow(rounds, remaining, begun, hashes)
                if not remaining:
                    break
                fruitless = 0 if rounds[-1].results else fruitless + 1
                yield from self._settle(rounds[-1], remaining, begun, fruitless)
        finally:
            for each in rounds:
                (each.folder / node.CLOSED).touch()
            if left := slurm.end(self._run, leave_seconds=0.0 if remaining else LEAVE_SECONDS):
                self._note(left)
        yield Event("done")

    def _start(self, job: Job, limits: Limits, number: int) -> _Round:
        folder = self._folder / str(self._job) / str(number)
        for name in (node.CLAIMS, node.TASKS, node.AGAIN):
            (folder / name).mkdir(parents=True)
        most = job.workers or self._wish["tasks"]
        ordered, tasks = spread(replace(job, workers=0), min(most, len(job.configurations)))
        write_job(ordered, folder / "job.json")
        seconds = {"silence_seconds": limits.silence_seconds, "total_seconds": limits.total_seconds}
        (folder / "limits.json").write_text(json.dumps(seconds), encoding="utf-8")
        made = _Round(folder, ordered, tasks)
        self._submit(made)
        return made

    def _submit(self, made: _Round) -> None:
        """Submits the array. An answer that was lost is looked for before anything is submitted again."""
        command = ["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", "PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1"]
        command += [sys.executable, "-m", "fmha.harness.worker.pool.node", str(made.folder)]
        wait = BackOff(FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS)
        deadline = time.monotonic() + self._wish["wait_seconds"]
        while True:
            try:
                new = {task.array for task in slurm.tasks_of(self._run)} - self._known
                made.arrays = new or {slurm.submit(self._wish, self._run, made.tasks, command, made.folder)}
                break
            except slurm.AwayError as error:
                if time.monotonic() > deadline:
                    raise InfrastructureError(
                        f"Slurm does not answer: {error}", next_step="ask its administrator"
                    ) from error
                self._tell(f"Slurm does not answer, trying again: {error}")
            except HostError as error:
                raise InfrastructureError(f"Slurm refuses the job: {error.what}", next_step=error.next_step) from error
            self._pause(wait.next())
        self._known |= made.arrays
        names = ", ".join(map(str, sorted(made.arrays)))
        count = f"{made.tasks} task{'s' if made.tasks > 1 else ''}"
        self._note(f"Slurm job {names}: {count} for {len(made.job.configurations)} configurations")

    def _follow(
        self,
        rounds: list[_Round],
        remaining: dict[str, Cell],
        begun: dict[str, int],
        hashes: dict[str, tuple[str, str]],
    ) -> Iterator[Event]:
        """Events until nothing remains, or the round is over."""
        now = rounds[-1]
        wait = BackOff(FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS)
        since = time.monotonic()
        due = since + wait.seconds
        question: slurm.SlurmQuestion | None = None  # while it has no answer events are read all the same
        try:
            while remaining:
                for each in rounds:
                    for attempt, event in _news(each):
                        since = time.monotonic()
                        yield from self._taken(each, attempt, event, remaining, begun, hashes)
                self._give_back(now, remaining, begun)
                if question is None and time.monotonic() >= due and remaining:
                    question = slurm.SlurmQuestion(self._run)
                if question is not None:
                    before = dict(now.states)
                    if self._has_answer(question, now):
                        question.close()
                        question = None
                        if now.states != before:
                            wait.restart()
                        due = time.monotonic() + wait.next()
                        if self._over(now):
                            return
                if not now.attempts and time.monotonic() - since > self._wish["wait_seconds"]:
                    raise InfrastructureError(
                        f"no task has started within {self._wish['wait_seconds']:g} s: {'; '.join(self._told)}",
                        next_step="ask for less, or set gpus.wait_seconds",
                    )
                reads = sum(not attempt.silent for each in rounds for attempt in each.attempts.values())
                self._pause(max(TICK_SECONDS, reads / READS_A_SECOND))
        finally:
            if question is not None:
                question.close()

    def _taken(
        self,
        each: _Round,
        attempt: _Attempt,
        event: Event,
        remaining: dict[str, Cell],
        begun: dict[str, int],
        hashes: dict[str, tuple[str, str]],
    ) -> Iterator[Event]:
        name = event.config
        if event.event == "started":
            attempt.running[name] = None
            begun[name] = begun.get(name, 0) + 1
            if begun[name] > 1:
                self._note(f"{name} is run again, by {attempt.node}: an earlier task ended before it")
            if name in remaining:
                yield event
        elif event.event in ("result", "error"):
            attempt.running.pop(name, None)
            digest = event.measurement.output_hash if event.measurement else event.status
            if name in remaining:
                del remaining[name]
                each.results += 1
                hashes[name] = digest, event.place
                yield event
            elif name in hashes:
                first, where = hashes[name]
                same = "the same" if first == digest else "OTHER"
                self._note(f"{name} ran twice, on {where} and on {event.place}, with {same} outputs; the first counts")
        elif event.event == "note":
            yield event

    def _give_back(self, now: _Round, remaining: Mapping[str, Cell], begun: Mapping[str, int]) -> None:
        """What a task was running when Slurm ended it may be taken again once Slurm has started the task again."""
        places = {item.id: place for place, item in enumerate(now.job.configurations)}
        if len(starts := {attempt.key: attempt.restarts for attempt in now.attempts.values()}) == len(now.attempts):
            return  # none was started again
        for attempt in now.attempts.values():
            starts[attempt.key] = max(starts[attempt.key], attempt.restarts)
        for attempt in now.attempts.values():
            if attempt.restarts < starts[attempt.key]:
                for name in [name for name in attempt.running if name in remaining and begun[name] < MOST_BEGINNINGS]:
                    del attempt.running[name]
                    (now.folder / node.AGAIN / f"{places[name]}.{begun[name]}").touch()
                    where = attempt.node or "a node"
                    self._note(f"task {attempt.path.name} on {where} was started again: {name} is, too")

    def _has_answer(self, question: slurm.SlurmQuestion, now: _Round) -> bool:
        """Takes what Slurm says of the round's tasks; nothing changes where it does not answer."""
        try:
            found = question.answer()
        except (slurm.AwayError, HostError) as error:
            self._tell(f"Slurm does not answer: {error}")
            return True
        if found is None:
            return False
        now.states = {(task.array, task.index): task for task in found if task.array in now.arrays}
        now.asked = True
        waiting = [task for task in now.states.values() if task.state in slurm.WAITING]
        words = [f"{len(waiting)} tasks wait: {waiting[0].reason}"] if waiting else []
        self._tell(*words)
        return True

    def _over(self, now: _Round) -> bool:
        """Whether no task of the round will do anything more, as far as anybody can know."""
        if not now.asked:
            return False
        live = [task for task in now.states.values() if task.state in slurm.LIVE]
        if any(task.state not in slurm.WAITING for task in live) or (live and _claimable(now)):
            return False
        late = self._wish["late_seconds"]
        for key, task in now.states.items():
            if task.state not in slurm.LIVE:
                attempt = now.latest(key)
                patience = late if task.state == "COMPLETED" else KILLED_SECONDS
                ended = now.ended.setdefault(key, time.monotonic())
                if (attempt is None or not attempt.over) and time.monotonic() - ended < patience:
                    return False
        for attempt in now.attempts.values():  # of those that Slurm has forgotten their own word counts
            if attempt.key not in now.states and not attempt.over and _silence(attempt) < late:
                return False
        if live:
            with contextlib.suppress(slurm.AwayError, HostError):
                slurm.cancel(self._run)  # what waits would find nothing to do
        (now.folder / node.CLOSED).touch()
        return True

    def _settle(
        self, now: _Round, remaining: dict[str, Cell], begun: dict[str, int], fruitless: int
    ) -> Iterator[Event]:
        """After a round: the last event of what must not run again. Raises InfrastructureError where nothing would."""
        for attempt in now.attempts.values():
            lost = [name for name in attempt.running if name in remaining]
            state = now.state_of(attempt)
            where = f"task {attempt.key[0]}_{attempt.key[1]} on {attempt.node or 'a node'}"
            for name in lost:
                status, reason = _fate(state, attempt.over)
                if not status and begun[name] >= MOST_BEGINNINGS:
                    status, reason = "infra-error", f"ended {begun[name]} times with its task, the last time by {state}"
                if status:
                    yield self._last(name, status, f"{where}: {reason}", remaining)
            if again := [name for name in lost if name in remaining]:
                self._note(f"{where} is over ({state}): {', '.join(again)} is run again")
        states = {task.state for task in now.states.values()}
        if states == {slurm.CANCELLED}:
            for name in list(remaining):
                yield self._last(name, "not-run", f"Slurm job {self._names(now)}: {OUTSIDE}", remaining)
        failed = [attempt.over for attempt in now.attempts.values() if attempt.over not in ("", "end")]
        if remaining and not now.results and (failed or "FAILED" in states or fruitless >= MOST_FRUITLESS):
            words = failed[0] if failed else f"{', '.join(sorted(states)) or 'no task was seen'}: {_log(now)}"
            raise InfrastructureError(f"Slurm job {self._names(now)} runs nothing: {words}", where=str(now.folder))

    def _names(self, now: _Round) -> str:
        return ", ".join(map(str, sorted(now.arrays)))

    def _last(self, name: str, status: str, message: str, remaining: dict[str, Cell]) -> Event:
        del remaining[name]
        return Event("error", name, status=status, message=message, stopped=status == "not-run")

    def _pause(self, seconds: float) -> None:
        if time.monotonic() - self._alive > ALIVE_SECONDS:
            self._alive = time.monotonic()
            self._say({"kind": "alive"})
        time.sleep(seconds)  # neither the shared folder nor Slurm tells anybody when something has happened there

    def _tell(self, *words: str) -> None:
        """Says what stands, when it has changed."""
        if words != self._told:
            self._told = words
            for text in words:
                self._note(text)

    def _note(self, text: str) -> None:
        self._say({"kind": "note", "text": text})


def _fate(state: str, word: str) -> tuple[str, str]:
    """Status and reason of what a task was running when it ended; no status where it may run again."""
    if word not in ("", "end"):
        return "infra-error", word
    match state:
        case slurm.CANCELLED:
            return "not-run", OUTSIDE
        case "OUT_OF_MEMORY":
            return "crash", "out of memory"
        case "FAILED":
            return "infra-error", "the task failed without a word"
    return "", ""


def _claimable(now: _Round) -> bool:
    again = len(os.listdir(now.folder / node.AGAIN))
    return len(os.listdir(now.folder / node.CLAIMS)) < len(now.job.configurations) + again


def _news(each: _Round) -> Iterator[tuple[_Attempt, Event]]:
    """What the round's tasks have written since the last look."""
    for name in sorted(os.listdir(each.folder / node.TASKS)):
        if name not in each.attempts:
            each.attempts[name] = _Attempt(each.folder / node.TASKS / name)
        attempt = each.attempts[name]
        if attempt.silent:
            continue
        attempt.silent = bool(attempt.over)  # and is read once more
        for said in _lines(attempt):
            attempt.heard = time.monotonic()
            match said.get("kind"):
                case "begin":
                    attempt.node = str(said.get("node"))
                case "end":
                    attempt.over = "end"
                case "failed":
                    attempt.over = str(said.get("reason"))
                case "event":
                    with contextlib.suppress(CodecError):
                        yield attempt, decode(Event, said.get("event"), "event")


def _silence(attempt: _Attempt) -> float:
    """Seconds without a word or a beat of a start of a task. Its beat is looked at when it is asked for: the first time
    tells nothing."""
    with contextlib.suppress(OSError):
        beat = (attempt.path / node.BEAT).read_text(encoding="ascii")
        if beat != attempt.beat:
            attempt.beat, attempt.heard = beat, time.monotonic()
    return time.monotonic() - attempt.heard


def _lines(attempt: _Attempt) -> Iterator[dict[str, Any]]:
    """Whole lines; opened anew each time, which is when NFS looks whether there is more."""
    try:
        with (attempt.path / node.EVENTS).open("rb") as file:
            file.seek(attempt.offset)
            data = file.read()
    except OSError:
        return
    whole = data[: data.rfind(b"\n") + 1]
    attempt.offset += len(whole)
    for line in whole.splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                yield said


def _log(now: _Round) -> str:
    """The last line that a task has printed."""
    for path in sorted(now.folder.glob("*.log")):
        lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1][:300]
    return "they printed nothing"
