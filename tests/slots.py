"""Which run of the tests this is among those that go on at once on a machine: each has accounts of its own, whose
processes, locks and limits are nobody else's.

A slot is taken by a name that the machine has once: of an abstract socket, which nobody has to remove and which is the
same whatever folder a run writes to and whoever has started it. It is free again once the process that has it is gone.
"""

from __future__ import annotations

import os
import socket

VARIABLE = "FMHA_TEST_SLOT"
SLOTS = 64

_held: list[socket.socket] = []  # as long as this process lives


def take() -> None:
    """Takes the first slot that no other run has; workers of this one find it in their environment."""
    if VARIABLE in os.environ:
        return
    for slot in range(SLOTS):
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


def own() -> int:
    """The slot of this run."""
    return int(os.environ.get(VARIABLE, "0"))
