"""GPUs of the host: who they are, who is on them, and the lock that gives one to one run at a time.

The lock is flock on a file named by the GPU's UUID: the kernel frees it when its holder dies, so no lock is ever stale.
What stands in the file only tells others who holds it. Tickets give the waiters their order; they are locked files too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.supervisor.rundir import HostError, read_json, write_json
from harness.worker.process import run_group

PSEUDO = "emulator"  # what a host without GPUs locks
POLL_SECONDS = 0.1
FOREIGN_SECONDS = 2.0  # between looks at a GPU that others are on
_FIELDS = "uuid,index,name,driver_version,compute_cap"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi names it."""

    uuid: str
    index: str
    name: str
    driver: str
    compute_capability: str


@dataclass(frozen=True)
class Rules:
    """How a run chooses its GPU. `use` lists UUIDs or indices, and nothing stands for all."""

    locks: Path
    nvidia_smi: str
    smi_seconds: float
    use: tuple[str, ...]
    wait_seconds: float
    foreign: str  # "wait" or "refuse"

    @staticmethod
    def of(wish: dict[str, Any]) -> Rules:
        """The rules in a job, or in a host's settings."""
        return Rules(
            locks=Path(wish["locks"]).expanduser(),
            nvidia_smi=wish["nvidia_smi"],
            smi_seconds=wish["smi_seconds"],
            use=tuple(wish["use"]),
            wait_seconds=wish["wait_seconds"],
            foreign=wish["foreign"],
        )


def query(rules: Rules) -> list[Gpu]:
    """The host's GPUs. Raises HostError when nvidia-smi is missing, fails or does not answer in time."""
    rows = _smi(rules, f"--query-gpu={_FIELDS}")
    return [Gpu(*row) for row in rows if len(row) == 5]


def processes_on(rules: Rules, uuid: str) -> dict[int, str]:
    """The processes that compute on a GPU, by pid."""
    rows = _smi(rules, "--query-compute-apps=gpu_uuid,pid,process_name")
    return {int(row[1]): row[2] for row in rows if len(row) == 3 and row[0] == uuid and row[1].isdigit()}


def choose(rules: Rules) -> list[Gpu]:
    """The GPUs a run may take, in the order it prefers them."""
    found = query(rules)
    wanted = [gpu for gpu in found if not rules.use or gpu.uuid in rules.use or gpu.index in rules.use]
    if not wanted:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "none"
        raise HostError(f"no GPU of {', '.join(rules.use) or 'this host'} is there; it has {there}", "correct gpus")
    return wanted


class Lease:
    """One GPU, held until `release` or the death of this process."""

    def __init__(self, gpu: Gpu | None, descriptor: int, path: Path) -> None:
        self.gpu = gpu
        self._descriptor = descriptor
        self._path = path

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def acquire(rules: Rules, candidates: Sequence[Gpu], run: str, tell: Callable[[str, int], None]) -> Lease:
    """Waits for one of `candidates`, or for the pseudo GPU when there are none.

    Strictly first come, first served among those that want the same GPU. `tell` hears why and at which position the
    run waits, whenever that changes. Raises HostError after `wait_seconds`.
    """
    names: dict[str, Gpu | None] = {gpu.uuid: gpu for gpu in candidates} or {PSEUDO: None}
    rules.locks.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + rules.wait_seconds
    told: tuple[str, int] | None = None
    looked: dict[str, float] = {}
    with _Ticket(rules.locks, tuple(names)) as ticket:
        while True:
            ahead = ticket.ahead()
            reasons = []
            for name, gpu in names.items():
                if any(name in wanted for wanted in ahead):
                    continue
                lease = _try(rules, name, gpu, run)
                if lease is None:
                    reasons.append(f"{name} is held by {_holder(rules, name)}")
                elif gpu is None or time.monotonic() - looked.get(name, -FOREIGN_SECONDS) >= FOREIGN_SECONDS:
                    if gpu is None or (reason := _obstacle(rules, gpu)) is None:
                        return lease
                    looked[name] = time.monotonic()
                    lease.release()
                    if rules.foreign == "refuse":
                        raise HostError(reason, "wait for it, or choose another GPU with gpus")
                    reasons.append(reason)
                else:
                    lease.release()
            now = (reasons[0] if reasons else "others came first", len(ahead) + 1)
            if now != told and (reasons or ahead):
                tell(*now)
                told = now
            if time.monotonic() > deadline:
                raise HostError(f"no GPU was free within {rules.wait_seconds:g} s: {now[0]}", "see fmha ps")
            time.sleep(POLL_SECONDS)  # no event says that any of several locks, or a foreign process, is gone


def quarantine(rules: Rules, gpu: Gpu, pids: Sequence[int], run: str) -> None:
    """Marks a GPU that killed processes have not left: nobody gets it while they are there."""
    write_json(_file(rules, gpu.uuid, "quarantine"), {"pids": list(pids), "run": run, "since": time.time()})


def lock_state(rules: Rules) -> list[dict[str, Any]]:
    """Every lock that was ever taken here: its name, its holder or None, and its quarantine or None."""
    states = []
    for path in sorted(rules.locks.glob("*.lock")):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = None
        except BlockingIOError:
            holder = _content(path)
        finally:
            os.close(descriptor)
        states.append({"name": path.stem, "holder": holder, "quarantine": _content(path.with_suffix(".quarantine"))})
    return states


class _Ticket:
    """A place in the queue: a locked file, whose name sorts by the time it was made."""

    def __init__(self, locks: Path, wanted: tuple[str, ...]) -> None:
        self._folder = locks / "queue"
        self._folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # another account made it
            self._folder.chmod(0o1777)
        name = f"{time.time_ns():020}-{os.getpid()}-{secrets.token_hex(4)}"
        hidden = self._folder / f".{name}"  # seen by others only when it is locked and written
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, json.dumps(wanted).encode())
        self._path = self._folder / name
        hidden.rename(self._path)

    def __enter__(self) -> _Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def ahead(self) -> list[tuple[str, ...]]:
        """What the live tickets before this one want; dead ones are cleared away."""
        wanted = []
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith("."):
                continue
            if path == self._path:
                break
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            except BlockingIOError:
                wanted.append(tuple(json.loads(os.read(descriptor, 1 << 16))))
            finally:
                os.close(descriptor)
        return wanted


def _try(rules: Rules, name: str, gpu: Gpu | None, run: str) -> Lease | None:
    path = _file(rules, name, "lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)  # another account's run takes the same lock
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    words = json.dumps({"run": run, "pid": os.getpid(), "uid": os.getuid(), "since": time.time()})
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, words.encode(), 0)
    return Lease(gpu, descriptor, path)


def _obstacle(rules: Rules, gpu: Gpu) -> str | None:
    """Why a GPU whose lock we hold cannot be used; lifts a quarantine whose processes are gone."""
    there = processes_on(rules, gpu.uuid)
    mark = _file(rules, gpu.uuid, "quarantine")
    if (words := _content(mark)) is not None:
        if stuck := [pid for pid in words["pids"] if pid in there]:
            return f"{gpu.uuid} is quarantined: killed process {stuck[0]} of run {words['run']} is still on it"
        mark.unlink(missing_ok=True)
    if there:
        pid, name = next(iter(there.items()))
        return f"{gpu.uuid} is used by process {pid} ({name}), which is not ours"
    return None


def _holder(rules: Rules, name: str) -> str:
    words = _content(_file(rules, name, "lock"))
    return f"run {words['run']}" if words else "another process"


def _content(path: Path) -> dict[str, Any] | None:
    try:
        words: dict[str, Any] = read_json(path)
    except (OSError, ValueError):
        return None
    return words


def _file(rules: Rules, name: str, kind: str) -> Path:
    return rules.locks / f"{_UNSAFE.sub('_', name)}.{kind}"


def _smi(rules: Rules, question: str) -> list[list[str]]:
    command = [rules.nvidia_smi, question, "--format=csv,noheader"]
    try:
        answer = run_group(command, cwd=Path("/"), limit_seconds=rules.smi_seconds)
    except OSError as error:
        raise HostError(
            f"{rules.nvidia_smi} cannot be started: {error.strerror}", "install the driver, or set nvidia_smi"
        ) from error
    if answer.timed_out:
        raise HostError(f"nvidia-smi does not answer within {rules.smi_seconds:g} s", "the driver may need its admin")
    if answer.returncode != 0:
        said = answer.output.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise HostError(f"nvidia-smi failed: {said[0]}", "see fmha doctor")
    return [[cell.strip() for cell in line.split(",")] for line in answer.output.splitlines() if line.strip()]


def as_dict(gpu: Gpu) -> dict[str, str]:
    return asdict(gpu)
