"""A GPU that one account keeps for its own runs for a while: it waits its turn like a run, and is then nobody else's.

A reservation is a process on the host that has the GPU's lock (fmha.harness.supervisor.locks). It is written nowhere,
and ends with that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fmha.harness.supervisor import gpus, locks
from fmha.harness.supervisor.rundir import RUN_ID, HostError

MOST_SECONDS = 24 * 3600.0
BEAT_SECONDS = 1.0  # between answers to those who look who has the GPU
ANSWER_SECONDS = 30.0


def reserve(folder: Path, wish: dict[str, Any], name: str, seconds: float) -> dict[str, Any]:
    """Starts a reservation of one of the GPUs of `wish`, and returns what has come of it so far: the GPU and until when
    it is kept, or at which position it waits and why. Call it before any thread is started."""
    if not RUN_ID.fullmatch(name) or not 0 < seconds <= MOST_SECONDS:
        raise HostError(f"a GPU is kept for {MOST_SECONDS / 3600:g} hours at most", "ask for less", usage=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.close(reading)
                _keep(gpus.Rules.of({**wish, "count": 1}, folder), bool(wish["query"]), name, seconds, writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        ready = select.select([pipe], [], [], ANSWER_SECONDS)[0]
        line = pipe.readline() if ready else b""
    if not line:
        raise HostError("the reservation gives no answer", "fmha hosts shows whether it waits")
    said: dict[str, Any] = json.loads(line)
    if "error" in said:
        raise HostError(said["error"], said["next"])
    return said


def release(wish: dict[str, Any], folder: Path, name: str) -> bool:
    """Ends a reservation of this account, once the run in it has come to its end; whether there was one."""
    space = locks.LockSpace(gpus.Rules.of(wish, folder).locks)
    try:
        state = space.look()
    finally:
        space.close()
    mine = {
        claim.pid for claim in (*state.locks.values(), *state.places) if (claim.run, claim.uid) == (name, os.getuid())
    }
    for pid in mine - {-1}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return bool(mine - {-1})


def _keep(rules: gpus.Rules, query: bool, name: str, seconds: float, pipe: int) -> None:
    """Has a GPU for `seconds`, and after them until the run that is in the reservation has ended."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # one that waits gives up its place
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, 1 << 16)
    sys.stdout = sys.stderr = os.fdopen(2, "w")
    os.chdir("/")

    def say(**words: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(pipe, json.dumps(words).encode() + b"\n")

    try:
        with gpus.Wait(rules, gpus.choose(rules) if query else [], name, _teller(say), seconds) as wait:
            lease = wait.lease()
    except HostError as error:
        say(error=error.what, next=error.next_step)
        return
    gpu = lease.gpus[0].uuid if lease.gpus else gpus.PSEUDO
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    say(gpu=gpu, until=time.time() + seconds)
    deadline, space, ended = time.monotonic() + seconds, locks.LockSpace(rules.locks), False
    while True:
        ended = ended or time.monotonic() > deadline
        if ended and space.take(locks.inside(gpu), name) is not None:  # from here on no run of ours gets in
            return
        lease.answer()
        ended = signal.sigtimedwait({signal.SIGTERM}, BEAT_SECONDS) is not None or ended


def _teller(say: Any) -> Any:
    return lambda reason, position: say(position=position, reason=reason)
