"""Which instructions launches have executed, where the machine marks them."""

from __future__ import annotations

import numpy as np

from fmha.emulator import _core
from fmha.emulator.device.module import Module


class ExecutedMarks:
    """The marks of a machine's launches, by the kernel."""

    def __init__(self, machine: _core.Machine) -> None:
        self._machine = machine
        self._executed: dict[tuple[Module, str], bytes] = {}

    def start(self) -> None:
        """From now on the machine notes which instructions are executed."""
        self._machine.watched = True

    def mark(self, module: Module, entry: str) -> None:
        """After a launch of `entry`: adds what it executed, where it was watched."""
        if not self._machine.watched:
            return
        new, before = self._machine.executed, self._executed.get((module, entry), b"")
        if before:
            new = bytes(np.frombuffer(new, np.uint8) | np.frombuffer(before, np.uint8))
        self._executed[module, entry] = new

    def executed(self, module: Module) -> dict[str, bytes]:
        """A byte an instruction of each entry, 1 or 0; no bytes for one that was not launched, or not watched."""
        return {entry: self._executed.get((module, entry), b"") for entry in module.entries}
