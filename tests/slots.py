"""Which run of the tests this is among those that go on at once on a machine: each has accounts of its own, whose
processes, locks and limits are nobody else's."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

VARIABLE = "FMHA_TEST_SLOT"
SLOTS = 64

_held: list[IO[str]] = []  # the lock, as long as this process lives


def take() -> None:
    """Takes the first slot that no other run has; workers of this one find it in their environment."""
    if VARIABLE in os.environ:
        return
    folder = Path(tempfile.gettempdir()) / f"fmha-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for slot in range(SLOTS):
        lock = (folder / f"slot-{slot}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _held.append(lock)
        os.environ[VARIABLE] = str(slot)
        return
    raise RuntimeError(f"{SLOTS} runs of the tests go on at once: {folder} has their locks")


def own() -> int:
    """The slot of this run."""
    return int(os.environ.get(VARIABLE, "0"))
