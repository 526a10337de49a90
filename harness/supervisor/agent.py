"""The agent: what the client talks to over one SSH session. It starts, follows and ends runs, and keeps nothing itself.

One request a session. Answers are JSON lines; `error` ends the session. What one kind of request alone needs is loaded
for that one: who starts a run waits for the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from fmha.harness.supervisor import keeper, protection, requests
from fmha.harness.supervisor.conversation import Conversation, GoneError
from fmha.harness.supervisor.inotify import Watch
from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError, RunDirectory
from fmha.harness.supervisor.schema import refuse_unless

LOOK_SECONDS = 0.5  # for what changes no file: the client leaves, the supervisor and its keeper are killed
BEATS = 10  # that fit into the silence after which the client takes the connection for lost
OWNER = "the account's owner can set what it may, with fmha hosts key"
ABSENCE = 3  # such silences of the client's, and it has gone, even if TCP does not know
_CHUNK = 1 << 18


def main(
    folder: str,
    check: Callable[[dict[str, Any]], None] = lambda request: None,
    may: Collection[str] | None = None,
) -> int:
    """Serves the one request of this connection, unless it is none of those that one `may` make or `check` raises
    HostError. Nobody looks at a field of it before all have been held against harness/supervisor/requests.py."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    conversation = Conversation()
    try:
        said = conversation.receive()
        try:
            home = Path(folder).expanduser().absolute()
            if may is not None and said.get("op") not in may:
                raise HostError(f"this key may not {str(said.get('op'))[:40]}", OWNER, usage=True)
            request = requests.checked(said)
            with conversation.beating(request["silence"] / BEATS):
                check(request)
                OPERATIONS[request["op"]](home, request, conversation)
        except HostError as error:
            conversation.send({"error": error.what, "next": error.next_step, "usage": error.usage})
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            conversation.send({"error": f"{where}{error.strerror or error}", "next": "see fmha doctor", "usage": False})
    except GoneError:
        return 1
    return 0


def _start(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    """Gets the commit, starts the run unless it has been started before, and follows it.

    The client makes the run's name, so that it can repeat the request after a broken connection.
    """
    job = request["job"]
    directory = RunDirectory(folder, job["run"])
    if not (directory.live() or directory.status()):
        repository = Repository(folder)
        repository.ensure()
        _bring(folder, repository, job, conversation)
        for commit in [job["sha"], *(_others(job) if job.get("forced") else ())]:
            protection.check(repository, folder, commit, job["protected"], job["approve_protected"])
        secrets = _secrets(job, conversation)
        conversation.quiet()  # no thread may be there when it forks
        with _place(folder, job):
            _launch(directory, job, secrets)
    conversation.send({"started": directory.run})
    if request["follow"]:
        _stream(directory, 0, request["silence"], conversation)


def _bring(folder: Path, repository: Repository, job: dict[str, Any], conversation: Conversation) -> None:
    """The commits into the host's repository: fetched by the host, or sent by the client over this connection.

    Those that are timed beside the run's or judge it are ancestors of it as a rule, and come with it.
    """
    sha, sync = job["sha"], job["sync"]
    others = _others(job)
    commits = list(dict.fromkeys([sha, *others]))
    if repository.has(sha) and all(repository.adopt(other) for other in others):
        return
    if sync["url"]:
        try:
            if not repository.has(sha):
                conversation.send({"note": "the host fetches the commit"})  # which it does for ten minutes if need be
                repository.fetch(sync["url"], sync["ref"], sha)
            for commit in commits:
                repository.keep(commit)
            return
        except HostError:
            if not sync["direct"]:
                raise
    conversation.send({"send": repository.haves()})
    offer = conversation.receive()
    refuse_unless(requests.OFFER, offer, "the offer")
    if "key" in job and offer["bytes"] > job["key"]["pack_bytes"]:
        what = f"this key may not send {offer['bytes']} bytes: {job['key']['pack_bytes']} is the most, as the host's"
        raise HostError(f"{what} key.pack_bytes has it", OWNER, usage=True)
    from fmha.harness.supervisor.upload import Upload

    upload = Upload(folder, offer["pack"], offer["bytes"])
    conversation.send({"from": upload.start})
    with upload.taken(conversation.frame) as pack:
        repository.receive(commits, pack)


def _secrets(job: dict[str, Any], conversation: Conversation) -> dict[str, str]:
    """Variables of the setup command that are written down nowhere, so that they are not in the job."""
    if not (names := job.get("secrets")):
        return {}
    conversation.send({"secrets": names})
    return requests.told(names, conversation.receive())


def _others(job: dict[str, Any]) -> list[str]:
    """The commits of a job beside the one that it is about."""
    return [job[role] for role in ("beside", "judge") if job.get(role)]


def _place(folder: Path, job: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    if "key" not in job:
        return contextlib.nullcontext()
    from fmha.harness.supervisor import forced  # here, for it imports this module

    return forced.place(folder, job["key"])


def _launch(directory: RunDirectory, job: dict[str, Any], secrets: Mapping[str, str]) -> None:
    directory.path.mkdir(parents=True, exist_ok=True)
    try:
        lock = directory.hold()
    except BlockingIOError:
        return  # the same request over an earlier connection came first
    if directory.status():
        os.close(lock)
        return
    directory.create(job)
    keeper.launch(directory, lock, secrets)


def _follow(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    directory = _existing(folder, request)
    if request["job"]:
        conversation.send({"job": directory.job()})
    _stream(directory, request["offset"], request["silence"], conversation)


def _stream(directory: RunDirectory, offset: int, silence: float, conversation: Conversation) -> None:
    """Whole event lines from `offset` on until the final status, which is the last message."""
    conversation.quiet()
    conversation.listen()
    stopped = keeper.Stopped(directory)
    with conversation.beating(silence / BEATS), Watch(directory.path) as watch:
        while conversation.present(ABSENCE * silence):
            stopped.end()
            keeper.recover(directory)
            status = directory.status()  # before the events: what was written before it is then seen
            data = _lines_from(directory, offset)
            if data:
                offset += len(data)
                conversation.send({"events": data.decode("utf-8"), "offset": offset})
            elif status is not None:
                conversation.send({"status": status})
                directory.mark_fetched()
                return
            else:
                watch.wait(LOOK_SECONDS)


def _lines_from(directory: RunDirectory, offset: int) -> bytes:
    """Whole lines from `offset`; a chunk of them."""
    try:
        with directory.events.open("rb") as file:
            file.seek(offset)
            data = file.read(_CHUNK)
            while (end := data.rfind(b"\n") + 1) == 0 and (more := file.read(_CHUNK)):
                data += more
    except FileNotFoundError:
        return b""
    return data[:end]


def _list(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import housekeeping

    conversation.send({"runs": housekeeping.listing(folder)})


def _occupancy(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import gpus

    conversation.send({"gpus": gpus.occupancy(gpus.Rules.of(request["gpu"], folder))})


def _reserve(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import reservations

    conversation.quiet()  # no thread may be there when it forks
    conversation.send(reservations.reserve(folder, request["gpu"], request["run"], float(request["seconds"])))


def _release(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import reservations

    conversation.send({"released": reservations.release(request["gpu"], folder, request["run"])})


def _logs(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import housekeeping

    for name, text in housekeeping.logs(_existing(folder, request)):
        conversation.send({"log": name, "text": text})
    conversation.send({"end": True})


def _cancel(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    directory = _existing(folder, request)
    was_live = keeper.cancel(directory, request["who"])
    conversation.send({"cancelled": was_live, "status": directory.status()})


def _clean(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import housekeeping

    rules = housekeeping.StorageLimits(request["age_seconds"], request["size_bytes"])
    conversation.send({"cleaned": housekeeping.clean(folder, rules, dry=request["dry"])})


def _examine(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import examination

    conversation.send({"time": time.time(), "findings": examination.examine(folder, request["settings"])})


def _key(folder: Path, request: dict[str, Any], conversation: Conversation) -> None:
    from fmha.harness.supervisor import forced  # here, for it imports this module

    conversation.send({"command": forced.install(folder, request["policy"])})


def _existing(folder: Path, request: dict[str, Any]) -> RunDirectory:
    directory = RunDirectory(folder, request["run"])
    if not directory.exists():
        raise HostError(f"there is no run {request['run']} on this host", "fmha ps lists the runs", usage=True)
    keeper.recover(directory)
    return directory


OPERATIONS: dict[str, Callable[[Path, dict[str, Any], Conversation], None]] = {
    "start": _start,
    "follow": _follow,
    "list": _list,
    "occupancy": _occupancy,
    "reserve": _reserve,
    "release": _release,
    "logs": _logs,
    "cancel": _cancel,
    "clean": _clean,
    "examine": _examine,
    "key": _key,
}
