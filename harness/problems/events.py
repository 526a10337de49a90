"""What an answer's host code does to memory, in order, as launches of a kernel of one's own.

An address names its buffer: a mark in the high bits, the buffer's number, the offset. fmha_tensors.h has the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fmha.harness.contract.device import SINGLE, Dim3
from fmha.harness.worker.subjects.kernel import Argument, At, Launch, Struct

MARK: Final = 0x4D << 56
OFFSET_BITS: Final = 40
_MOST_BUFFERS: Final = 1 << (56 - OFFSET_BITS)
THREADS: Final = 256  # of a fill and a copy
FILLS: Final = ("fmha_fill", "fmha_copy")  # fmha_calls.h has them


class AnswerError(ValueError):
    """An answer that computes without launching, or does what cannot be followed."""


def address_of(number: int, offset: int = 0) -> int:
    return MARK | number << OFFSET_BITS | offset


def buffer_of(address: int) -> tuple[int, int] | None:
    """The buffer's number and the offset; None for what is no such address."""
    if address >> 56 != MARK >> 56:
        return None
    rest = address & (1 << 56) - 1
    return rest >> OFFSET_BITS, rest & (1 << OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch with its parameters as bytes. `stream` is 0 for the one that torch launches on."""

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    stream: int
    parameters: tuple[bytes, ...]


def filled(address: int, size: int, pattern: int, nbytes: int) -> Launched:
    """So many bytes, of elements of that size with these bits."""
    parameters = (struct.pack("<Q", address), struct.pack("<Q", pattern), struct.pack("<i", size))
    return _bytewise("fmha_fill", (*parameters, struct.pack("<q", nbytes)), nbytes)


def copied(to: int, source: int, nbytes: int) -> Launched:
    return _bytewise("fmha_copy", (struct.pack("<Q", to), struct.pack("<Q", source), struct.pack("<q", nbytes)), nbytes)


def _bytewise(entry: str, parameters: tuple[bytes, ...], nbytes: int) -> Launched:
    return Launched(entry, (max(1, -(-nbytes // THREADS)), 1, 1), (THREADS, 1, 1), SINGLE, 0, 0, parameters)


@dataclass(slots=True)
class Events:
    """Since the last `clear`. `waited`: nothing is running any more on a stream of the answer's own."""

    launches: list[Launched] = field(default_factory=list)
    apart: bool = False  # a launch on a stream of the answer's own, for which nobody has waited

    def add(self, launched: Launched) -> None:
        self.launches.append(launched)
        self.apart = self.apart or launched.stream != 0

    def waited(self) -> None:
        self.apart = False

    def clear(self) -> None:
        self.launches.clear()
        self.apart = False


def read_events(text: str) -> list[Launched | tuple[int, int] | None]:
    """Of an extension: launches, allocations as address and bytes, and None where it waits."""
    made: list[Launched | tuple[int, int] | None] = []
    for line in text.splitlines():
        kind, *words = line.split(" ")
        if kind == "alloc":
            made.append((int(words[0]), int(words[1])))
        elif kind == "fill":
            address, size, pattern, count = map(int, words)
            made.append(filled(address, size, pattern, size * count))
        elif kind == "copy":
            made.append(copied(*map(int, words)))
        elif kind == "launch":
            n = [int(word) for word in words[1:12]]
            parameters = tuple(bytes.fromhex(word) for word in words[12:])
            grid, block, cluster = ((n[at], n[at + 1], n[at + 2]) for at in (0, 3, 6))
            made.append(Launched(words[0], grid, block, cluster, n[9], n[10], parameters))
        else:
            made.append(None)
    return made


def launches_of(done: Sequence[Launched], names: Mapping[int, str]) -> list[Launch]:
    """As they are declared, with the buffers' names for their addresses. ValueError for a buffer that has none."""
    return [
        Launch(
            item.grid,
            item.block,
            [_argument(parameter, names, item.entry) for parameter in item.parameters],
            item.shared_bytes,
            item.cluster,
            item.entry,
        )
        for item in done
    ]


def buffers_of(done: Sequence[Launched]) -> set[int]:
    """The numbers of all that launches are given."""
    words = (word for item in done for parameter in item.parameters for _, word in _words(parameter))
    return {found[0] for word in words if (found := buffer_of(word)) is not None}


def _words(parameter: bytes) -> list[tuple[int, int]]:
    """What may be an address, and at which offset."""
    return [(at, struct.unpack_from("<Q", parameter, at)[0]) for at in range(0, len(parameter) - 7, 8)]


def _argument(parameter: bytes, names: Mapping[int, str], entry: str) -> Argument:
    placed: dict[int, At] = {}
    for at, word in _words(parameter):
        if (found := buffer_of(word)) is None:
            continue
        number, offset = found
        if number not in names:
            raise AnswerError(
                f"{entry} is given memory that is neither an argument, nor a parameter of the problem's model, nor "
                "allocated by the answer: torch has computed it"
            )
        placed[at] = At(names[number], offset)
    if not placed:
        return parameter
    if len(parameter) == 8:
        return placed[0]
    rest = {at: parameter[at : at + 1] for at in range(len(parameter)) if not any(at - i in range(8) for i in placed)}
    return Struct(len(parameter), {**placed, **rest})
