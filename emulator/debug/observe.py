"""What an observer of a launch is shown, as Python has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.coverage import chain_of
from fmha.emulator.decode import Decoded
from fmha.emulator.device import Device, Module
from fmha.emulator.ptx import Instruction

# As core/machine/python_observer.cpp numbers them.
BARRIERS: Final = 1
ACCESSES: Final = 2
OPERANDS: Final = 4
COMPLETIONS: Final = 8
FINDINGS: Final = 16
TRACE: Final = 32
BEFORE: Final = 1  # of a stop
AFTER: Final = 2

Seen = dict[str, Any]


@dataclass(slots=True)
class Log:
    """Of one launch: its program, and all that was asked for, in order."""

    entry: str
    decoded: Decoded
    seen: list[tuple[str, Seen]] = field(default_factory=list)
    device: Device | None = None

    def of(self, *kinds: str) -> Iterator[Seen]:
        return (event for kind, event in self.seen if kind in kinds)

    def buffer(self, address: int) -> str:
        """The name of the buffer that an address lies in."""
        buffer = self.device.buffer_at(address) if self.device else None
        return buffer.name if buffer else f"0x{address:x}"

    def line(self, pc: int) -> str:
        return place(self.decoded.sources, pc)


class Recorder:
    """Keeps what observers of launches are shown: a Log a launch."""

    def __init__(self, wants: int) -> None:
        self.wants = wants
        self.logs: list[Log] = []

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        log = Log(entry, device.decoded(module, entry), device=device)
        self.logs.append(log)
        with device.observed(observer := _core.Observer(lambda kind, event: log.seen.append((kind, event)))):
            observer.wants = self.wants
            yield


def place(sources: tuple[Instruction, ...], pc: int) -> str:
    """Where an instruction stands, in the file that the kernel's author wrote, or in the PTX."""
    if not 0 <= pc < len(sources):
        return "?"
    own = own_line(sources[pc])
    return own or f"PTX line {sources[pc].line}"


def own_line(instruction: Instruction) -> str | None:
    """The innermost line of source that is neither the toolkit's nor a wrapper's in a folder `ptx`."""
    lines = [(at.file, at.line) for at in chain_of(instruction.location)]
    for file, line in lines:
        folders = file.split("/")[:-1]
        if not file.startswith("/") and "ptx" not in folders:
            return f"{file}:{line}"
    return f"{lines[-1][0]}:{lines[-1][1]}" if lines else None


def words(raw: bytes, dtype: type[np.generic] = np.uint32) -> NDArray[Any]:
    return np.frombuffer(raw, dtype)
