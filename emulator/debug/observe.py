"""What an observer of a launch is shown, as Python has it.

With TRACE each execution, its instruction and its lanes: of a jump those that take it. An instruction whose guard
leaves no lane is shown to nobody; whoever counts jumps that are not taken has to infer them from what the warp executes
next, or to change `step` of emulator/core/machine/schedule/schedule.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.decode import Decoded
from fmha.emulator.device import Device, Module
from fmha.emulator.executed_lines import chain_of, own_of
from fmha.emulator.ptx import Instruction

# As core/python/python_observer.cpp numbers them.
BARRIERS: Final = 1
ACCESSES: Final = 2
OPERANDS: Final = 4
COMPLETIONS: Final = 8
FINDINGS: Final = 16
TRACE: Final = 32
BEFORE: Final = 1  # of a stop
AFTER: Final = 2
# An execution of a TRACE, as that file lays it out.
EXECUTED: Final = np.dtype(
    [("event", "<u8"), ("value", "<u8"), ("cta", "<u4"), ("warp", "<u4"), ("pc", "<u4"), ("mask", "<u4")]
)

Seen = dict[str, Any]


@dataclass(slots=True)
class Log:
    """Of one launch: its program, and all that was asked for, in order."""

    entry: str
    decoded: Decoded
    seen: list[tuple[str, Seen]] = field(default_factory=list)
    device: Device | None = None
    executed: NDArray[Any] = field(default_factory=lambda: np.empty(0, EXECUTED))  # of a TRACE, in order

    @property
    def sources(self) -> tuple[Instruction, ...]:
        """By pc."""
        return self.decoded.sources

    def of(self, *kinds: str) -> Iterator[Seen]:
        """What was seen of these kinds, in the order of the run."""
        return (event for kind, event in self.seen if kind in kinds)

    def buffer(self, address: int) -> str:
        """The name of the buffer that an address lies in."""
        buffer = self.device.buffer_at(address) if self.device else None
        return buffer.name if buffer else f"0x{address:x}"

    def line(self, pc: int) -> str:
        """Where a decoded instruction stands: in the author's file, or by its PTX line where the PTX does not say."""
        return place(self.sources, pc)


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
        log.executed = np.frombuffer(observer.trace, EXECUTED)


def place(sources: tuple[Instruction, ...], pc: int) -> str:
    """Where an instruction stands, in the file that the kernel's author wrote, or in the PTX."""
    if not 0 <= pc < len(sources):
        return "?"
    own = own_line(sources[pc])
    return own or f"PTX line {sources[pc].line}"


def own_line(instruction: Instruction) -> str | None:
    """The line of the kernel's own source that an instruction is of."""
    return own_of([f"{at.file}:{at.line}" for at in chain_of(instruction.location)])


def words(raw: bytes, dtype: type[np.generic] = np.uint32) -> NDArray[Any]:
    """An array that looks into `raw`, which is not copied."""
    return np.frombuffer(raw, dtype)


def lanes_of(access: Seen) -> Iterator[tuple[int, int]]:
    """(lane, offset in shared memory) of the lanes that took part in an access."""
    for lane, at in enumerate(words(access["at"], np.uint64).tolist()):
        if access["mask"] >> lane & 1:
            yield lane, at & 0xFFFFFF


def register_of(observer: _core.Observer, rank: int, warp: int, unit: int, width: int) -> NDArray[Any]:
    """32 lanes of the register that begins at a unit, as whole numbers; of a predicate ones and zeros."""
    raw = words(observer.register(rank, warp, unit))
    if width == 1:
        return np.array([int(raw[0]) >> lane & 1 for lane in range(32)], np.uint32)
    if width == 64:
        return np.concatenate([raw, words(observer.register(rank, warp, unit + 1))]).view(np.uint64)
    return raw & 0xFFFF if width == 16 else raw
