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
from dataclasses import dataclass

VARIABLE = "FMHA_TEST_SLOT"

_held: list[socket.socket] = []  # as long as this process lives


@dataclass(frozen=True, slots=True)
class Slots:
    """`count` slots by a name of their own, and their accounts: two each, numbered from `first_uid` on."""

    name: str
    first_uid: int
    count: int = 64

    def take(self) -> int:
        """Takes the first slot that no other process has."""
        for slot in range(self.count):
            if self.is_busy(slot):
                continue
            name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                name.bind(f"\0{self.name}-{slot}")
            except OSError:
                name.close()
                continue
            _held.append(name)
            return slot
        raise RuntimeError(f"{self.count} runs of the tests go on at once")

    def accounts(self, slot: int) -> tuple[int, int]:
        """The numbers of its accounts."""
        return self.first_uid + 2 * slot, self.first_uid + 2 * slot + 1

    def is_busy(self, slot: int) -> bool:
        """Whether anything of its accounts still runs."""
        numbers = self.accounts(slot)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}").st_uid in numbers:
                    return True
        return False


SLOTS = Slots("fmha-tests-slot", 61234)  # nobody else on the machine has accounts of these numbers


def take() -> None:
    """Takes a slot for this run; its workers find it in their environment."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(SLOTS.take())


def own() -> int:
    """The slot of this run."""
    return int(os.environ.get(VARIABLE, "0"))


def accounts() -> tuple[int, int]:
    """The numbers of this run's accounts."""
    return SLOTS.accounts(own())
