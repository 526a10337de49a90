"""Slurm's commands, as a run uses them: one array submitted, all of a run's tasks asked about at once, all cancelled.

Every array of a run has the run's name. It is by this name that tasks are asked about and cancelled, so that one whose
number was never learned, because the answer to its submission was lost, is found as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fmha.harness.supervisor.rundir import HostError

COMMAND_SECONDS: Final = 60.0  # Slurm's own MessageTimeout is 10 s, and a controller under load exceeds it
END_SECONDS: Final = 60.0  # for cancelled tasks to end: KillWait of a site is 30 s
_LOOK_SECONDS: Final = 0.5
_FORMAT: Final = "%A|%F|%K|%T|%N|%r"
_FIELDS: Final = 6
_NUMBER: Final = re.compile(r"^(?:Submitted batch job )?([0-9]{1,18})(?:;\S+)?\s*$", re.MULTILINE)  # of a job

# What a task may become again, or is still; every other state is its end. See squeue(1), JOB STATE CODES.
WAITING: Final = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
)
LIVE: Final = WAITING | frozenset(
    ("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"),
)
CANCELLED: Final = "CANCELLED"
# What sbatch and squeue say when nobody answers: the same may be asked again.
_AWAY: Final = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Zero Bytes were transmitted",
    "temporarily unable",
    "Transport endpoint",
    "Connection reset",
    "Communication connection failure",
    "communication failure",
    "Authentication",
    "Munge",
    "Protocol authentication error",
)


class AwayError(Exception):
    """Slurm does not answer now."""


@dataclass(frozen=True)
class SlurmTask:
    """One task of an array as the scheduler sees it. `reason` is why it waits, or how it ended."""

    array: int
    index: int
    state: str
    node: str
    reason: str


def submit(wish: Mapping[str, Any], run: str, tasks: int, command: Sequence[str], folder: Path) -> int:
    """Submits `command` as an array of so many tasks, and returns its number. What they print goes to `folder`.

    Raises AwayError when nothing is known of what became of it, HostError when Slurm refuses.
    """
    options = ["--parsable", f"--job-name={name_of(run)}", f"--array=0-{tasks - 1}", f"--chdir={folder}"]
    options += [f"--output={folder}/%A_%a.log", "--open-mode=append", "--requeue"]
    for option in ("partition", "account", "qos", "gres", "time", "constraint", "exclude", "mem"):
        if wish[option]:
            options.append(f"--{option}={wish[option]}")
    if wish["cpus_per_task"]:
        options.append(f"--cpus-per-task={wish['cpus_per_task']}")
    said = _run(["sbatch", *options], text=script(wish, command))
    # A site may have put a script of its own in its place, which says something before or after.
    if not (numbers := _NUMBER.findall(said)):
        raise HostError(f"sbatch answers {said.strip()[:200]!r}", "it should print the number of the job")
    return int(numbers[-1])


def script(wish: Mapping[str, Any], command: Sequence[str]) -> str:
    """What a task runs. In a container `command` runs under srun, whose options Pyxis adds."""
    words = list(command)
    if wish["container_image"]:
        mounts = ",".join(wish["container_mounts"])
        words = ["srun", f"--container-image={wish['container_image']}", f"--container-mounts={mounts}", *words]
    # The mark of the run's own processes: a task is no child of the supervisor, and is ended through Slurm.
    return f"#!/bin/sh\nunset FMHA_RUN\nexec {shlex.join(words)}\n"


def tasks_of(run: str, more: Mapping[str, str] | None = None) -> list[SlurmTask]:
    """All tasks of the run that Slurm has not forgotten yet. Raises AwayError, or HostError for what it refuses."""
    return _tasks(_run(_question(run), more=more))


class SlurmQuestion:
    """What `tasks_of` asks, without waiting: where Slurm does not answer, squeue tries for a minute before it says so.

    Whoever has asked closes it.
    """

    def __init__(self, run: str) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - as long as the question
        self._deadline = time.monotonic() + COMMAND_SECONDS
        self._command = _question(run)
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # which is said with the answer
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=self._files[0], stderr=self._files[1]
            )

    def answer(self) -> list[SlurmTask] | None:
        """None as long as there is no answer. Raises as `tasks_of`."""
        if self._process is None:
            raise HostError(f"{self._command[0]} cannot be started", "log in to a node that has Slurm")
        code = self._process.poll()
        if code is None and time.monotonic() < self._deadline:
            return None
        if code is None:
            raise AwayError(f"{self._command[0]} does not answer within {COMMAND_SECONDS:g} s")
        said = []
        for file in self._files:
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
        return _tasks(_checked(code, *said))

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for file in self._files:
            file.close()


def _question(run: str) -> list[str]:
    words = ["squeue", "--noheader", "--array", "--states=all", f"--user={os.geteuid()}", f"--name={name_of(run)}"]
    return [*words, f"--format={_FORMAT}"]


def _tasks(said: str) -> list[SlurmTask]:
    rows = [line.split("|", _FIELDS - 1) for line in said.splitlines()]
    found = []
    for _, array, index, state, node, reason in (row for row in rows if len(row) == _FIELDS):
        if array.isdigit() and index.isdigit():
            found.append(SlurmTask(int(array), int(index), state, node, reason))
    return found


def partitions(more: Mapping[str, str]) -> list[str]:
    """Those of the cluster, by name. Raises as `tasks_of`."""
    return sorted(set(_run(["sinfo", "--noheader", "--format=%R"], more=more).split()))


def cancel(run: str, more: Mapping[str, str] | None = None) -> None:
    """Asks Slurm to end every task of the run. Raises as `tasks_of`."""
    _run(["scancel", "--quiet", f"--user={os.geteuid()}", f"--name={name_of(run)}"], more=more)


def end(
    run: str, more: Mapping[str, str] | None = None, seconds: float = END_SECONDS, leave_seconds: float = 0.0
) -> str:
    """Ends every task of the run and waits until that is so; otherwise words that say what may be left. Those that run
    have `leave_seconds` to come to an end by themselves: accounting calls others cancelled.

    `more` is what the commands have in their environment besides our own.
    """
    start, why = time.monotonic(), "they do not end"
    deadline, leave = start + seconds, start + leave_seconds
    while True:
        try:
            while time.monotonic() < leave and any(task.state in LIVE - WAITING for task in tasks_of(run, more)):
                time.sleep(_LOOK_SECONDS)  # the scheduler tells nobody
            cancel(run, more)
            if not any(task.state in LIVE for task in tasks_of(run, more)):
                return ""
            why = "they do not end"
        except (AwayError, HostError) as error:
            why = str(error)
        if time.monotonic() > deadline:
            return f"its tasks may still run ({why}): scancel --name={name_of(run)}"
        time.sleep(_LOOK_SECONDS)  # the scheduler tells nobody


def name_of(run: str) -> str:
    """The name of the run's Slurm job."""
    return f"fmha-{run}"


def _run(command: Sequence[str], text: str = "", more: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command, env=os.environ | dict(more or {}), input=text, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise AwayError(f"{command[0]} does not answer within {COMMAND_SECONDS:g} s") from None
    except OSError as error:
        raise HostError(
            f"{command[0]} cannot be started: {error.strerror}", "log in to a node that has Slurm"
        ) from error
    return _checked(done.returncode, done.stdout, done.stderr)


def _checked(code: int, out: str, err: str) -> str:
    """What a command has answered. Raises AwayError, or HostError for what is refused."""
    if code == 0:
        return out
    lines = [line.strip() for line in err.splitlines() if line.strip()] or [f"exit code {code}"]
    if any(words in err for words in _AWAY):
        raise AwayError(lines[-1])
    raise HostError(lines[-1][:300], "correct the host's section slurm, or ask the site's administrator")
