"""GPUs of the host: who they are, who is on them, and how a run gets one of them for itself."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fmha.harness.supervisor import locks
from fmha.harness.supervisor.rundir import HostError, read_json, write_json
from fmha.harness.worker.processes.groups import run_group

PSEUDO = "emulator"  # what a host without GPUs locks
FOREIGN_SECONDS = 2.0  # between looks at a GPU that others are on
PASS_SECONDS = 5.0  # for each who is before us and leaves a free GPU alone: a stopped process must not stop the queue
_LATEST = 9e10  # a moment; somebody may say that it keeps a GPU for ever
_LONGEST = 1e8  # seconds; somebody may say that it holds a GPU since 1970
_FIELDS = "uuid,index,name,driver_version,compute_cap,mig.mode.current,compute_mode"
# What `nvidia-smi -L` prints: a GPU, and below one that is divided its MIG devices.
_LISTED_GPU = re.compile(r"GPU (\d+): .*\(UUID: (\S+)\)")
_LISTED_PART = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (\S+)\)")
_MPS = "nvidia-cuda-mps-server"


@dataclass(frozen=True)
class ListedGpu:
    """One GPU, or one MIG device of a GPU that is divided, as nvidia-smi names it. The index of a MIG device is that of
    its GPU, a colon, and its own. `mode` is nvidia-smi's compute mode."""

    uuid: str
    index: str
    name: str
    driver: str
    compute_capability: str
    mode: str


@dataclass(frozen=True)
class Rules:
    """How a run chooses its GPU. `use` lists UUIDs or indices, and nothing stands for all.

    `locks` names the locks that exclude each other; `marks` is a folder of this account's own, for quarantines.
    """

    locks: str
    marks: Path
    nvidia_smi: str
    smi_seconds: float
    use: tuple[str, ...]
    wait_seconds: float
    foreign: str  # "wait" or "refuse"
    priority: str = "normal"
    count: int = 1  # the most that the run takes

    @staticmethod
    def of(wish: dict[str, Any], folder: Path) -> Rules:
        """The rules in a job, or in a host's settings; `folder` is the working folder."""
        return Rules(
            locks=wish["locks"],
            marks=folder / "quarantine",
            nvidia_smi=wish["nvidia_smi"],
            smi_seconds=wish["smi_seconds"],
            use=tuple(wish["use"]),
            wait_seconds=wish["wait_seconds"],
            foreign=wish["foreign"],
            priority=wish.get("priority", "normal"),
            count=wish.get("count", 1),
        )


def query(rules: Rules) -> list[ListedGpu]:
    """The host's GPUs; of one that is divided its MIG devices, for nothing runs on it as a whole. Raises HostError when
    nvidia-smi is missing, fails or does not answer in time."""
    rows = [row for row in _table(rules, f"--query-gpu={_FIELDS}") if len(row) == 7]
    whole = [(ListedGpu(row[0], row[1], row[2], row[3], row[4], row[6]), row[5] == "Enabled") for row in rows]
    parts = _parts(rules) if any(divided for _, divided in whole) else {}
    return [part for gpu, divided in whole for part in (_devices(gpu, parts) if divided else [gpu])]


def _devices(gpu: ListedGpu, parts: Mapping[str, Sequence[tuple[str, str, str]]]) -> list[ListedGpu]:
    return [
        replace(gpu, uuid=uuid, index=f"{gpu.index}:{number}", name=f"{gpu.name} MIG {profile}")
        for profile, number, uuid in parts.get(gpu.uuid, ())
    ]


def _parts(rules: Rules) -> dict[str, list[tuple[str, str, str]]]:
    """Profile, number and UUID of the MIG devices, by the UUID of their GPU."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    parts: list[tuple[str, str, str]] = []
    for line in _smi(rules, "-L").splitlines():
        if gpu := _LISTED_GPU.match(line):
            parts = found.setdefault(gpu[2], [])
        elif part := _LISTED_PART.match(line):
            parts.append((part[1], part[2], part[3]))
    return found


def processes_on(rules: Rules, uuid: str) -> dict[int, str]:
    """The processes that compute on a GPU, by pid."""
    rows = _table(rules, "--query-compute-apps=gpu_uuid,pid,process_name")
    return {int(row[1]): row[2] for row in rows if len(row) == 3 and row[0] == uuid and row[1].isdigit()}


def choose(rules: Rules) -> list[ListedGpu]:
    """The GPUs a run may take, in the order it prefers them."""
    found = query(rules)
    wanted = [gpu for gpu in found if not rules.use or {gpu.uuid, gpu.index, gpu.index.split(":")[0]} & {*rules.use}]
    if not wanted:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "none"
        raise HostError(f"no GPU of {', '.join(rules.use) or 'this host'} is there; it has {there}", "correct gpus")
    if not (usable := [gpu for gpu in wanted if gpu.mode != "Prohibited"]):
        names = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in wanted)
        step = "ask its administrator, or choose another one with gpus"
        raise HostError(f"the compute mode of {names} is Prohibited: nothing may run there", step)
    return usable


class Lease:
    """One GPU or several, held until `close` or the death of this process. The pseudo GPU is none."""

    def __init__(self, gpu: ListedGpu | None, names: Sequence[locks.Name]) -> None:
        self.gpus: tuple[ListedGpu, ...] = (gpu,) if gpu else ()
        self._names = tuple(names)

    def join(self, other: Lease) -> None:
        """Takes over what another lease holds."""
        self.gpus += other.gpus
        self._names += other._names

    def answer(self) -> None:
        """To be called now and then, so that others can see who holds the GPU."""
        for name in self._names:
            name.answer()

    def close(self) -> None:
        for name in self._names:
            name.close()


class Wait:
    """A place in the queue for one of `candidates`, or for the pseudo GPU when there are none.

    `tell` hears why and at which position the run waits, whenever that changes. Several runs get a GPU in the order of
    fmha.harness.supervisor.locks; one that leaves a free GPU alone is passed.
    """

    def __init__(
        self,
        rules: Rules,
        candidates: Sequence[ListedGpu],
        run: str,
        tell: Callable[[str, int], None],
        keep: float = 0.0,
    ) -> None:
        self._rules, self._run, self._tell = rules, run, tell
        self._keep = keep  # seconds that a GPU is reserved for; a run has it as long as it needs
        self._gpus: dict[str, ListedGpu | None] = {gpu.uuid: gpu for gpu in candidates} or {PSEUDO: None}
        self._space = locks.LockSpace(rules.locks)
        self._turn = self._space.look().next_turn(os.getuid())
        self._place = self._space.wait(self._gpus, run, rules.priority, self._turn)
        self._told: tuple[str, int] | None = None
        self._free: dict[str, float] = {}  # since when a GPU is free while it is not our turn
        self._obstacles: dict[str, tuple[float, str]] = {}  # what is on a GPU that is not locked, and when we saw it
        self._mute: dict[str, float] = {}  # when we failed to lock a GPU that nobody is seen to have locked

    def __enter__(self) -> Wait:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Gives up the place, which whoever has a GPU does not need any more."""
        for name in self._place:
            name.close()
        self._place = []
        self._space.close()

    def attempt(self) -> Lease | None:
        """What is free and our turn, `count` GPUs at the most; None when that is nothing."""
        state = self._space.look()
        return self._take_some(state, [name for name in self._gpus if self._due(state, name) <= 0])

    def lease(self) -> Lease:
        """Waits for a GPU, and takes with it what else is free, `count` at the most: two who waited for more with some
        in hand could wait for each other. Raises HostError after `wait_seconds`, or if `foreign: refuse` leaves none to
        wait for."""
        deadline = time.monotonic() + self._rules.wait_seconds
        while True:
            state = self._space.look()
            due = {name: self._due(state, name) for name in self._gpus}
            if (lease := self._take_some(state, [name for name, seconds in due.items() if seconds <= 0])) is not None:
                return lease
            reason = self._explain(state)
            if time.monotonic() > deadline:
                raise HostError(
                    f"no GPU was free within {self._rules.wait_seconds:g} s: {reason}", "fmha hosts shows who has them"
                )
            for place in self._place:
                place.answer()
            state = self._space.look()  # what was free when we tried may have been taken since
            due = {name: self._due(state, name) for name in self._gpus}
            watched = [claim for name in self._gpus if (claim := self._holder(state, name)) is not None]
            watched += [first for name in self._gpus if (first := self._first(state, name)) is not None]
            self._space.sleep(watched, min(deadline - time.monotonic(), *due.values()))

    def _due(self, state: locks.State, name: str) -> float:
        """Seconds until we may try to take a GPU; infinite while it is locked."""
        now = time.monotonic()
        if self._holder(state, name) is not None:
            self._free.pop(name, None)
            self._obstacles.pop(name, None)
            return float("inf")
        seen, _ = self._obstacles.get(name, (-FOREIGN_SECONDS, ""))
        looked = max(seen, self._mute.get(name, -FOREIGN_SECONDS))
        passed = self._free.setdefault(name, now) + PASS_SECONDS * self._rank(state, name)
        return max(looked + FOREIGN_SECONDS, passed) - now

    def _door(self, state: locks.State, name: str) -> str:
        """The lock that we need for a GPU: its own, or the one inside a reservation of our account's."""
        reservation = state.locks.get(locks.safe(name))
        ours = reservation is not None and reservation.until and reservation.uid == os.getuid()
        return locks.inside(name) if ours and not self._keep else locks.safe(name)

    def _holder(self, state: locks.State, name: str) -> locks.Claim | None:
        """Who has the lock that we need, or is left inside of a reservation that was killed."""
        return state.locks.get(self._door(state, name)) or state.locks.get(locks.inside(name))

    def _take_some(self, state: locks.State, names: Sequence[str]) -> Lease | None:
        held: Lease | None = None
        try:
            for name in names:
                if held is not None and len(held.gpus) >= self._rules.count:
                    break
                if (lease := self._take(state, name)) is None:
                    continue
                if held is None:
                    held = lease
                else:
                    held.join(lease)
        except BaseException:
            if held is not None:
                held.close()
            raise
        return held

    def _take(self, state: locks.State, name: str) -> Lease | None:
        gpu, door = self._gpus[name], self._door(state, name)
        until = time.time() + self._keep if self._keep else 0.0
        if (names := self._space.take(door, self._run, self._turn, until)) is None:
            self._mute[name] = time.monotonic()
            return None
        state = self._space.look()
        # A reservation may have come or gone. Whoever is outside looks inside and the other way round, each having
        # locked before, so that never both think that they are alone.
        if self._door(state, name) != door or (door == locks.safe(name) and locks.inside(name) in state.locks):
            for lock in names:
                lock.close()
            return None
        lease = Lease(gpu, names)
        try:
            reason = _obstacle(self._rules, gpu) if gpu else None
        except BaseException:
            lease.close()
            raise
        if reason is None:
            return lease
        lease.close()
        self._obstacles[name] = (time.monotonic(), reason)
        if self._rules.foreign == "refuse" and self._obstacles.keys() >= self._gpus.keys():
            raise HostError(reason, "wait for it, or choose another GPU with gpus")
        return None

    def _explain(self, state: locks.State) -> str:
        """Why we wait; tells it when that has changed."""
        held = {name: self._holder(state, name) for name in self._gpus}
        reasons = [f"{name} is held by {claim}" for name, claim in held.items() if claim is not None]
        reasons += [reason for _, reason in self._obstacles.values()]
        position = 1 + min(self._rank(state, name) for name in self._gpus)
        now = (reasons[0] if reasons else "others came first", position)
        if now != self._told and (reasons or position > 1):
            self._tell(*now)
            self._told = now
        return now[0]

    def _rank(self, state: locks.State, name: str) -> int:
        queue = [claim.run for claim in self._queue(state, name)]
        return queue.index(self._run) if self._run in queue else 0

    def _first(self, state: locks.State, name: str) -> locks.Claim | None:
        return next((claim for claim in self._queue(state, name) if claim.run != self._run), None)

    def _queue(self, state: locks.State, name: str) -> list[locks.Claim]:
        """Who waits for the same lock as we, in the order in which it is given."""
        alone = self._door(state, name) != locks.safe(name)
        return [claim for claim in state.queue(locks.digest(name)) if not alone or claim.uid == os.getuid()]


def quarantine(rules: Rules, gpu: ListedGpu, pids: Sequence[int], run: str) -> None:
    """Marks a GPU that killed processes have not left: nobody gets it while they are there."""
    rules.marks.mkdir(parents=True, exist_ok=True)
    write_json(_mark(rules, gpu.uuid), {"pids": list(pids), "run": run, "since": time.time()})


def quarantined(rules: Rules) -> dict[str, dict[str, Any]]:
    """The quarantines that runs of this account have left, by GPU."""
    marks = {path.stem: _content(path) for path in sorted(rules.marks.glob("*.json"))}
    return {name: words for name, words in marks.items() if words is not None}


def occupancy(rules: Rules) -> list[dict[str, Any]]:
    """Who has which GPU, and who waits for one: account, run, and for how many seconds."""
    space = locks.LockSpace(rules.locks)
    try:
        state = space.look()
    finally:
        space.close()
    now = time.time()
    rows = [_row(claim.gpu, 0, claim, now) for claim in state.locks.values()]
    names = {locks.digest(name): name for name in map(locks.outside, state.locks)}
    for digest in dict.fromkeys(claim.gpu for claim in state.places):
        name = names.get(digest, digest)
        rows += [_row(name, at, claim, now) for at, claim in enumerate(state.queue(digest), 1)]
    return rows


def _row(gpu: str, position: int, claim: locks.Claim, now: float) -> dict[str, Any]:
    """`position` is 0 for who has the GPU."""
    return {
        "gpu": locks.outside(gpu),
        "until": min(claim.until, _LATEST),
        "position": position,
        "account": claim.account,
        "run": claim.run,
        "pid": claim.pid,
        "priority": claim.priority,
        "seconds": min(max(0.0, now - claim.since), _LONGEST) if claim.run else None,
    }


def told(row: dict[str, Any]) -> str:
    """A row of `occupancy` in words."""
    what = f"run {row['run']} of {row['account']}" if row["run"] else f"process {row['pid']} of {row['account']}"
    if row["until"]:
        what, how = what.replace("run", "reservation", 1), f"keeps it until {_clock(row['until'])}"
    else:
        how = _doing(row)
    return f"{what} {how}" + (f", for {row['seconds']:.0f} s" if row["seconds"] is not None else "")


def _doing(row: dict[str, Any]) -> str:
    return f"waits at {row['position']}, priority {row['priority']}" if row["position"] else "has it"


def _clock(moment: float) -> str:
    return time.strftime("%H:%M UTC", time.gmtime(moment))


def _obstacle(rules: Rules, gpu: ListedGpu) -> str | None:
    """Why a GPU whose lock we hold cannot be used; lifts a quarantine whose processes are gone."""
    there = processes_on(rules, gpu.uuid)
    mark = _mark(rules, gpu.uuid)
    if (words := _content(mark)) is not None:
        if stuck := [pid for pid in words["pids"] if pid in there]:
            return f"{gpu.uuid} is quarantined: killed process {stuck[0]} of run {words['run']} is still on it"
        mark.unlink(missing_ok=True)
    if there:
        if servers := [pid for pid, name in there.items() if name.rpartition("/")[2] == _MPS]:
            whose = _of_account(servers[0])
            return (
                f"{gpu.uuid} is shared by MPS (process {servers[0]}, {_MPS}{whose}): its clients are on it too; "
                "it ends by `echo quit | nvidia-cuda-mps-control`, or name other GPUs in gpus.use"
            )
        pid, name = next(iter(there.items()))
        return f"{gpu.uuid} is used by process {pid} ({name}), which is not ours{_of_account(pid)}"
    return None


def _of_account(pid: int) -> str:
    try:
        return f" but {pwd.getpwuid(Path(f'/proc/{pid}').stat().st_uid).pw_name}'s"
    except (OSError, KeyError):
        return ""


def _content(path: Path) -> dict[str, Any] | None:
    try:
        words: dict[str, Any] = read_json(path)
    except (OSError, ValueError):
        return None
    return words


def _mark(rules: Rules, name: str) -> Path:
    return rules.marks / f"{locks.safe(name)}.json"


def _table(rules: Rules, question: str) -> list[list[str]]:
    """The rows that nvidia-smi answers, as cells."""
    lines = _smi(rules, question, "--format=csv,noheader").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]


def _smi(rules: Rules, *words: str) -> str:
    command = [rules.nvidia_smi, *words]
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
    return answer.output


def as_dict(gpu: ListedGpu) -> dict[str, str]:
    """As JSON."""
    return asdict(gpu)
