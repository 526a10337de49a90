"""What there is to know and to do about hosts beside running on them."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from fmha.harness import account
from fmha.harness.config import RemoteSettings
from fmha.harness.errors import FmhaError, InfrastructureError, UserError
from fmha.harness.hosts import credentials, remote
from fmha.harness.hosts.carrier import UnknownHostError, abandon
from fmha.harness.hosts.host_answers import (
    Answer,
    Cancelled,
    ExaminationAnswer,
    ForcedCommand,
    ListedRun,
    LogAnswer,
    Occupant,
    Released,
    Removed,
    Reserved,
    checked,
)
from fmha.harness.hosts.line import ANSWER_SECONDS
from fmha.harness.hosts.this_machine import distribution_version
from fmha.harness.hosts.ways import way_to
from fmha.harness.isolate import IsolationError, isolation
from fmha.harness.stages.host_checkout import RunPlace
from fmha.harness.supervisor import OF_THE_JOB
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.nvcc import find_nvcc

EXAMINATION_SECONDS = 300.0
CLEANING_SECONDS = 1200.0
MOST_SKEW_SECONDS = 5.0
MOST_AT_ONCE = 16
LOGS_SECONDS = 1200.0
MOST_LOGS = 10_000  # a worker has one, and a configuration may have one worker
MOST_LOGS_BYTES = 256 << 20

_Answer = TypeVar("_Answer", bound=Answer)


@dataclass(frozen=True, slots=True)
class DoctorLine:
    """One line of the doctor. `good` is None for what is only reported; `fix` is what to do unless it is True."""

    name: str
    good: bool | None
    seen: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a host answered, or why it did not."""

    host: str
    runs: Sequence[ListedRun]
    problem: str = ""
    known: bool = True  # False when nobody has set the host up here


@dataclass(frozen=True, slots=True)
class Reach:
    """A configured host. `problem` is empty when it answered; `seconds` is how long that took.

    `gpus` says who has its GPUs, and who waits for them.
    """

    name: str
    kind: str
    means: str
    problem: str
    seconds: float
    known: bool = True  # as Listed.known
    gpus: Sequence[Occupant] = ()


def reach(places: Sequence[RunPlace]) -> list[Reach]:
    """Asks every host at once whether it is there."""
    return _each(places, _reach)


def listing(places: Sequence[RunPlace]) -> list[Listed]:
    """The runs of every host, all asked at once."""
    return _each(places, _listed)


def logs(place: RunPlace, run: str) -> Iterator[tuple[str, str]]:
    """Each log of a run: its name below the run directory, and its text."""
    deadline, left = time.monotonic() + LOGS_SECONDS, MOST_LOGS_BYTES
    with remote.dial(place.host, {"op": "logs", "run": run}) as line:
        for _ in range(MOST_LOGS):
            if "end" in (message := line.answer(max(0.0, min(ANSWER_SECONDS, deadline - time.monotonic())))):
                return
            log = checked(LogAnswer, message, place.host.name)
            left -= len(log.text) + len(log.log)
            if left < 0:
                break
            yield log.log, log.text
    raise InfrastructureError(
        f"the logs of run {run} do not come to an end", where=place.host.name, next_step="see them on the host itself"
    )


def cancel(place: RunPlace, run: str, who: str) -> Cancelled:
    """Ends a run; the answer says whether it was live, and its final status."""
    return remote.cancel(place.host, run, who)


def clean(place: RunPlace, age_seconds: float, size_bytes: int, *, dry: bool) -> list[Removed]:
    """Removes what is too old or too much on the host, and says what."""
    request = {"op": "clean", "age_seconds": age_seconds, "size_bytes": size_bytes, "dry": dry}
    answer = remote.ask(place.host, request, CLEANING_SECONDS)
    return _list(Removed, answer.get("cleaned"), place.host.name)


def clean_here(age_seconds: float, size_bytes: int, *, dry: bool) -> list[Removed]:
    """The same of this account's builds on this machine."""
    folder = account.folder("builds")
    gone = cache.trim(folder, size_bytes, age_seconds=age_seconds, dry=dry)
    return [Removed(kind="build", name=path.name, bytes=size) for path, size in gone.items()]


def reserve(place: RunPlace, gpu: str | None, seconds: float) -> tuple[str, Reserved]:
    """Reserves a GPU for runs of this account there: the reservation's name, and what has come of it so far."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{'0' * 12}-{secrets.token_hex(4)}"
    wish = dict(remote.settings_of(place.host.looked_at()).gpu)
    wish |= {"use": [gpu]} if gpu else {}
    answer = remote.ask(place.host, {"op": "reserve", "gpu": wish, "run": name, "seconds": seconds})
    return name, checked(Reserved, answer, place.host.name)


def release(place: RunPlace, name: str) -> bool:
    """Ends a reservation; whether there was one."""
    request = {"op": "release", "gpu": dict(remote.settings_of(place.host).gpu), "run": name}
    return checked(Released, remote.ask(place.host, request), place.host.name).released


def examine_here() -> list[DoctorLine]:
    """This machine: what fmha needs to build, and to reach others."""
    tools = [_tool("git", "install git"), _tool("ssh", "install openssh-client")]
    return [*tools, _compiler(), _isolation(), _torch()]


def examine(place: RunPlace) -> list[DoctorLine]:
    """A host, from the connection to the locks of its GPUs."""
    return [*_secrets(place), *_answered(place)]


def _secrets(place: RunPlace) -> Iterator[DoctorLine]:
    """Each secret that the set-up gets: whether it is to be had here. What it is, is not said."""
    host = place.host
    for name, source in remote.settings_of(host).secrets.items():
        try:
            credentials.fetched({name: source}, host.name)
        except UserError as error:
            yield DoctorLine(f"secret {name}", False, error.what, error.next_step)
        else:
            yield DoctorLine(f"secret {name}", True, credentials.described(source))


def _answered(place: RunPlace) -> list[DoctorLine]:
    host = place.host.looked_at()
    settings = remote.settings_of(host)
    request = {
        "op": "examine",
        "settings": {
            "python": settings.python,
            "device": settings.device,
            "env": dict(settings.env),
            "nvcc": settings.nvcc,
            "gpu": dict(settings.gpu),
            "slurm": dict(settings.slurm) if settings.slurm is not None else None,
            "archs": [settings.arch],
        },
    }
    asked = time.time()
    try:
        answer = checked(ExaminationAnswer, remote.ask(host, request, EXAMINATION_SECONDS), host.name)
    except FmhaError as error:
        return [DoctorLine("connection", False, error.what, error.next_step or way_to(settings).hint(settings))]
    answered = time.time()
    # The host read its clock at some moment in between.
    skew = max(answer.time - answered, asked - answer.time, 0.0)
    return [
        DoctorLine("connection", True, f"answered in {answered - asked:.1f} s"),
        DoctorLine(
            "clock",
            skew <= MOST_SKEW_SECONDS,
            f"off by {skew:.0f} s at least" if skew else "agrees with ours",
            "let the host keep its time by NTP; runs work all the same, their times mislead",
        ),
        *(DoctorLine(item.name, item.good, item.seen, item.fix) for item in answer.findings),
    ]


def forced_command(place: RunPlace, isolation: str = "require") -> str:
    """Installs an agent on the host that takes requests with the present settings alone; the command that starts it.

    What a commit brings is isolated there as `isolation` says, whatever the settings or a request have: whoever holds
    such a key is not the account's owner.
    """
    settings = remote.settings_of(place.host)
    job = remote.settings_of_job(settings)
    policy = {
        **{name: job[name] for name in OF_THE_JOB},
        "isolation": isolation,
        "gpu": dict(settings.gpu),
        "keep": dict(settings.keep),
        "device": settings.device,
        "archs": [settings.arch],
        "fetch_url": settings.fetch_url,
        "key": {**settings.key, "workers": settings.key["workers"] or _usual_workers(settings)},
    }
    answer = remote.ask(place.host, {"op": "key", "policy": policy})
    return checked(ForcedCommand, answer, place.host.name).command


def _usual_workers(settings: RemoteSettings) -> int:
    """How many a run that names none has at the most; 0: one a core of the host."""
    tasks = settings.slurm["tasks"] if settings.slurm is not None else 0
    gpus = settings.gpu["count"] if settings.gpu["query"] else 0
    return int(str(tasks or settings.workers or gpus))


def _reach(place: RunPlace) -> Reach:
    kind, start = place.host.kind, time.monotonic()
    means, host = "", place.host.looked_at()
    try:
        settings = remote.settings_of(host)
        means = way_to(settings).means(settings)
        said = remote.ask(host, {"op": "occupancy", "gpu": dict(settings.gpu)}).get("gpus")
        gpus = _list(Occupant, said, place.host.name)
    except FmhaError as error:
        known = not isinstance(error, UnknownHostError)
        return Reach(place.host.name, kind, means, str(error), time.monotonic() - start, known)
    return Reach(place.host.name, kind, means, "", time.monotonic() - start, gpus=gpus)


def _listed(place: RunPlace) -> Listed:
    try:
        runs = remote.ask(place.host, {"op": "list"}).get("runs")
        return Listed(place.host.name, _list(ListedRun, runs, place.host.name))
    except FmhaError as error:
        return Listed(place.host.name, (), str(error), not isinstance(error, UnknownHostError))


def _list(model: type[_Answer], said: Any, where: str) -> list[_Answer]:
    """Raises InfrastructureError, as `checked` does."""
    if not isinstance(said, list):
        raise InfrastructureError("what the host says cannot be: it is no list", where=where)
    return [checked(model, item, where) for item in said]


def _each(places: Sequence[RunPlace], action: Any) -> list[Any]:
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        try:
            return list(pool.map(action, places))
        except BaseException:  # a signal as a rule: nobody waits for what hosts would still say
            pool.shutdown(wait=False, cancel_futures=True)
            abandon()
            raise


def _tool(name: str, fix: str) -> DoctorLine:
    path = shutil.which(name)
    if path is None:
        return DoctorLine(name, False, "not on PATH", fix)
    flag = "-V" if name == "ssh" else "--version"
    done = subprocess.run([path, flag], capture_output=True, text=True, timeout=30, check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    return DoctorLine(name, done.returncode == 0, said[0] if said else f"exit code {done.returncode}", fix)


def _compiler() -> DoctorLine:
    try:
        nvcc = find_nvcc()
    except FmhaError as error:
        return DoctorLine("nvcc", False, error.what, error.next_step)
    return DoctorLine("nvcc", True, f"{nvcc.version}, {nvcc.path}")


def _isolation() -> DoctorLine:
    """What keeps a commit's code from this machine."""
    try:
        found = isolation()
    except IsolationError as error:
        return DoctorLine("isolation", False, error.what, error.next_step)
    return DoctorLine("isolation", True if not found.missing else None, found.told, found.advice)


def _torch() -> DoctorLine:
    version = distribution_version("torch")
    return DoctorLine("torch", None, version or "not installed; attention over tensors and fmha bench need it")
