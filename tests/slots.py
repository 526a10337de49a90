"""Which run of the tests this is among those that go on at once on a machine: each has accounts of its own, whose
processes, locks and limits are nobody else's.

A slot is taken by a name that the machine has once: of an abstract socket, which nobody has to remove and which is the
same whatever folder a run writes to and whoever has started it. It is free again once the process that has it is gone,
and all that its accounts have started: a run that was killed leaves hosts behind, with work under way.
"""

from __future__ import annotations

import contextlib
import os
import socket

VARIABLE = "FMHA_TEST_SLOT"
SLOTS = 64
FIRST_UID = 61234  # of the accounts, two a slot; nobody else on the machine has these numbers

_held: list[socket.socket] = []  # as long as this process lives


def take() -> None:
    """Takes the first slot that no other run has; workers of this one find it in their environment."""
    if VARIABLE in os.environ:
        return
    for slot in range(SLOTS):
        if is_busy(slot):
            continue
        name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            name.bind(f"\0fmha-tests-slot-{slot}")
        except OSError:
            name.close()
            continue
        _held.append(name)
        os.environ[VARIABLE] = str(slot)
        return
    raise RuntimeError(f"{SLOTS} runs of the tests go on at once")


def accounts(slot: int) -> tuple[int, int]:
    """The numbers of its accounts."""
    return FIRST_UID + 2 * slot, FIRST_UID + 2 * slot + 1


def is_busy(slot: int) -> bool:
    """Whether anything of its accounts still runs."""
    numbers = accounts(slot)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid in numbers:
                return True
    return False


def own() -> int:
    """The slot of this run."""
    return int(os.environ.get(VARIABLE, "0"))
