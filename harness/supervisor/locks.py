"""The locks of a host's GPUs and the queue before them: names of abstract sockets, see unix(7).

Such a name is in no folder. Any account can bind it, one process has it at a time, nobody can take it away, and the
kernel frees it with its owner. There is no file that somebody could have made first, linked elsewhere, or removed, and
nothing that an administrator must prepare. Four kinds of names stand for four facts:

    fmha:SPACE/lock/GPU                               who has it bound has the GPU
    fmha:SPACE/held/DIGEST/TURN/SINCE/RUN             what the owner of a lock says of itself
    fmha:SPACE/kept/DIGEST/UNTIL/TURN/SINCE/RUN       the same of an owner that keeps a GPU for its account's runs
    fmha:SPACE/wait/DIGEST/PRIORITY/TURN/SINCE/RUN    a run that waits for that GPU

/proc/net/unix shows the names to everybody. Whose they are is not written there: the kernel tells it to whoever
connects (SO_PEERCRED), so that no account can speak for another. A connection breaks when its other end dies, which
is what a waiter sleeps on.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import pwd
import re
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fmha.harness.supervisor.rundir import RUN_ID, HostError

PRIORITIES = ("high", "normal", "low")
LOOK_SECONDS = 10.0  # for what breaks no connection that we have: somebody in the middle of the queue leaves
CROWDED_SECONDS = 1.0  # the same, where a connection to sleep on cannot be had
MOST_HEARD = 256  # connections that an owner keeps open: nobody is to use up its descriptors
_BACKLOG = 4096
MOST_TURNS = 999_999
_WORDS = (("held", 0), ("kept", 1), ("wait", 1))  # kinds, and how many words stand before the turn
_TABLE = "/proc/net/unix"
_LISTENS = 0x10000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 64
_INSIDE = ".reserved"


@dataclass(frozen=True)
class Claim:
    """A lock or a place in the queue. `uid` and `pid` are the kernel's words, -1 where it says nothing; the rest is
    what their owner says. `gpu` is a lock's name or, in the queue, its digest."""

    name: str
    gpu: str
    run: str
    turn: int
    since: float
    priority: str
    uid: int
    pid: int
    until: float = 0.0  # when a reservation ends, by the host's clock; 0 of what is none

    @property
    def account(self) -> str:
        """The name of the account that holds it, or its number where it has none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except (KeyError, OverflowError):
            return f"uid {self.uid}"

    def __str__(self) -> str:
        kind = "reservation" if self.until else "run"
        return f"{kind} {self.run} of {self.account}" if self.run else f"process {self.pid} of {self.account}"


@dataclass(frozen=True)
class State:
    """The locks that are taken, by GPU, and the places in the queues."""

    locks: Mapping[str, Claim]
    places: Sequence[Claim]

    def queue(self, gpu: str) -> list[Claim]:
        """Who waits for the GPU of this digest, in the order in which it is given: accounts take turns.

        Start-time fair queueing (Goyal, Vin and Cheng, 1996) with runs for packets: each run of an account has a later
        turn than the one before it, the first that of the runs that have the GPUs. An account's turns go to its runs
        by priority and then by time, so that a high priority takes nothing from others.
        """
        accounts: dict[int, list[Claim]] = {}
        for claim in self.places:
            if claim.gpu == gpu:
                accounts.setdefault(claim.uid, []).append(claim)
        order = []
        for claims in accounts.values():
            turn = -1
            for said, claim in zip(
                sorted(claim.turn for claim in claims), sorted(claims, key=_precedence), strict=True
            ):
                turn = max(said, turn + 1)
                order.append((turn, claim.since, claim.run, claim))
        return [claim for *_, claim in sorted(order, key=lambda row: row[:3])]

    def next_turn(self, uid: int) -> int:
        """Of a run of this account that is added now."""
        level = max((lock.turn for lock in self.locks.values()), default=0)
        mine = max((claim.turn for claim in (*self.locks.values(), *self.places) if claim.uid == uid), default=-1)
        return min(max(level, mine + 1), MOST_TURNS)


class Name:
    """A name that is ours until `close` or the death of this process. OSError (EADDRINUSE) when it is somebody's."""

    def __init__(self, name: str) -> None:
        self._heard: list[socket.socket] = []
        self._socket = _unix()
        try:
            self._socket.bind(f"\0{name}")
            self._socket.listen(_BACKLOG)
        except BaseException:
            self._socket.close()
            raise

    def answer(self) -> None:
        """Takes in who has connected and forgets who has left, so that there is room for others to connect."""
        self._heard = [peer for peer in self._heard if not _left(peer)]
        with contextlib.suppress(OSError):
            while len(self._heard) < MOST_HEARD:
                peer, _ = self._socket.accept()
                peer.setblocking(False)
                self._heard.append(peer)

    def close(self) -> None:
        self._socket.close()
        for peer in self._heard:
            peer.close()


class LockSpace:
    """Locks that exclude each other: those of one `gpus.locks`. Each keeps what it has learned of others' names."""

    def __init__(self, name: str) -> None:
        self._prefix = f"fmha:{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        self._names: dict[str, str] = {}  # inode by name, as they stood when they were last looked at
        # By inode, as a name may be bound again:
        self._owners: dict[str, tuple[int, int]] = {}
        self._links: dict[str, socket.socket | None] = {}  # None where the owner broke it off, or said something

    def close(self) -> None:
        for link in filter(None, self._links.values()):
            link.close()

    def take(self, gpu: str, run: str, turn: int = 0, until: float = 0.0) -> list[Name] | None:
        """The lock of a GPU and the words about it, or None when somebody has it. With `until` it is a reservation."""
        try:
            lock = Name(f"{self._prefix}/lock/{safe(gpu)}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        names = [lock]
        with contextlib.suppress(OSError):  # it holds without them
            kind = f"kept/{digest(gpu)}/{int(until):x}" if until else f"held/{digest(gpu)}"
            names.append(Name(f"{self._prefix}/{kind}/{turn}/{_milliseconds():x}/{run}"))
        return names

    def wait(self, gpus: Iterable[str], run: str, priority: str, turn: int) -> list[Name]:
        """A place in the queue of each GPU."""
        what = f"{PRIORITIES.index(priority)}/{turn}/{_milliseconds():x}/{run}"
        return [Name(f"{self._prefix}/wait/{digest(gpu)}/{what}") for gpu in gpus]

    def look(self) -> State:
        """What stands now. Raises HostError where the host does not show it."""
        self._names = dict(_table(self._prefix))
        for inode in (self._owners.keys() | self._links.keys()) - set(self._names.values()):
            self._owners.pop(inode, None)
            if (link := self._links.pop(inode, None)) is not None:
                link.close()
        found = [pair for name in self._names if (pair := self._claim(name)) is not None]
        words = {(claim.gpu, claim.pid, claim.uid): claim for kind, claim in found if kind in ("held", "kept")}
        locks = {}
        for kind, claim in found:
            if kind == "lock":
                said = words.get((digest(claim.gpu), claim.pid, claim.uid))
                locks[claim.gpu] = replace(said, name=claim.name, gpu=claim.gpu) if said else claim
        return State(locks, [claim for kind, claim in found if kind == "wait" and claim.pid >= 0])

    def sleep(self, claims: Iterable[Claim], seconds: float) -> None:
        """Returns when the owner of one of these has died or let go, or after `seconds`, or after LOOK_SECONDS."""
        poll, links, patience = select.poll(), {}, min(seconds, LOOK_SECONDS)
        for claim in claims:
            inode = self._names[claim.name]
            try:
                link = self._links[inode] if inode in self._links else self._links.setdefault(inode, _dial(claim.name))
            except ConnectionRefusedError:
                return
            if link is None:
                patience = min(patience, CROWDED_SECONDS)
            else:
                links[link.fileno()] = (inode, link)
                poll.register(link, select.POLLIN)
        for descriptor, _ in poll.poll(max(0.0, 1000 * patience)):
            inode, link = links[descriptor]
            link.close()
            self._links[inode] = None

    def _claim(self, name: str) -> tuple[str, Claim] | None:
        kind, gpu, *rest = name.removeprefix(f"{self._prefix}/").split("/")
        try:
            if kind == "lock" and not rest:
                return kind, Claim(name, gpu, "", 0, 0.0, "", *self._owner(name))
            *rank, turn, since, run = rest
            if RUN_ID.fullmatch(run) and 0 <= int(turn) <= MOST_TURNS and (kind, len(rank)) in _WORDS:
                priority = PRIORITIES[int(rank[0])] if kind == "wait" else ""
                until = float(int(rank[0], 16)) if kind == "kept" else 0.0
                moment = int(since, 16) / 1000
                return kind, Claim(name, gpu, run, int(turn), moment, priority, *self._owner(name), until)
        except (ValueError, IndexError, OverflowError):
            pass
        return None  # somebody's name that is none of ours

    def _owner(self, name: str) -> tuple[int, int]:
        inode = self._names[name]
        if inode not in self._owners:
            try:
                link = _dial(name)
            except ConnectionRefusedError:
                link = None
            if link is None:
                return -1, -1  # asked again next time
            with link:  # `sleep` connects to the few that it waits for
                pid, uid, _ = struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self._owners[inode] = (uid, pid)
        return self._owners[inode]


def digest(gpu: str) -> str:
    """A GPU's name for names that hold more: 107 bytes are all that a name may have."""
    return hashlib.sha256(safe(gpu).encode()).hexdigest()[:12]


def inside(gpu: str) -> str:
    """The lock that runs have of a GPU which is reserved for their account, and which the reservation has locked."""
    return safe(gpu)[: _LONGEST - len(_INSIDE)] + _INSIDE


def outside(lock: str) -> str:
    """The GPU of a lock that may be one inside a reservation."""
    return lock.removesuffix(_INSIDE)


def safe(gpu: str) -> str:
    """As a part of a file's name."""
    return _UNSAFE.sub("_", gpu)[:_LONGEST]


def _precedence(claim: Claim) -> tuple[int, float, str]:
    return PRIORITIES.index(claim.priority), claim.since, claim.run


def _table(prefix: str) -> Iterator[tuple[str, str]]:
    """Name and inode of every socket that listens and whose name begins so."""
    try:
        with open(_TABLE, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if f"@{prefix}/" in line]
    except OSError as error:
        raise HostError(f"{_TABLE} cannot be read: {error.strerror}", "runs here need Linux's /proc") from error
    for line in lines:
        _, _, _, flags, _, _, inode, path = line.rstrip("\n").split(None, 7)
        if int(flags, 16) & _LISTENS and path.startswith(f"@{prefix}/"):
            yield path[1:], inode


def _left(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _dial(name: str) -> socket.socket | None:
    """A connection to the owner of a name; None when as many wait there already as the kernel lets."""
    link = _unix()
    try:
        link.connect(f"\0{name}")
    except BlockingIOError:
        link.close()
        return None
    except BaseException:
        link.close()
        raise
    return link


def _unix() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
