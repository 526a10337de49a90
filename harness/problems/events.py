"""What an answer's host code does to memory, in order, as launches of a kernel of one's own.

An address names its buffer: a mark in the high bits, the buffer's number, the offset. fmha_tensors.h has the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fmha.harness.contract.device import SINGLE, Dim3
from fmha.harness.worker.subjects.kernel import Argument, At, Launch, Struct

if TYPE_CHECKING:
    from fmha.harness.problems.streams import Events

MARK: Final = 0x4D << 56
OFFSET_BITS: Final = 40
_MOST_BUFFERS: Final = 1 << (56 - OFFSET_BITS)
THREADS: Final = 256  # of a fill and a copy
FILLS: Final = ("fmha_fill", "fmha_copy")  # fmha_calls.h has them


class TorchAnswerError(ValueError):
    """An answer that computes without launching, or does what cannot be followed."""


def address_of(number: int, offset: int = 0) -> int:
    """An address that is none: the number of a buffer, and an offset."""
    return MARK | number << OFFSET_BITS | offset


def buffer_of(address: int) -> tuple[int, int] | None:
    """The buffer's number and the offset; None for what is no such address."""
    if address >> 56 != MARK >> 56:
        return None
    rest = address & (1 << 56) - 1
    return rest >> OFFSET_BITS, rest & (1 << OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class LaunchEvent:
    """A launch with its parameters as bytes. `stream` is a handle, 0 for the one that torch launches on.

    `most_shared` is the dynamic shared memory that the host code has asked for (cudaFuncSetAttribute), -1 where it has
    not; `any_cluster` says whether it has asked for clusters that are not portable.
    """

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    stream: int
    parameters: tuple[bytes, ...]
    most_shared: int = -1
    any_cluster: bool = False


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory that the host code has allocated."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Ordered:
    """What the host code does to have one thing behind another, with handles of streams and events: `wait` for all,
    `wait_stream` and `wait_event` for what was before, `record` an event in a stream, `stream_waits` for an event."""

    kind: str
    one: int = 0
    other: int = 0


def filled(address: int, size: int, pattern: int, nbytes: int, stream: int = 0) -> LaunchEvent:
    """So many bytes, of elements of that size with these bits."""
    parameters = (struct.pack("<Q", address), struct.pack("<Q", pattern), struct.pack("<i", size))
    return _bytewise("fmha_fill", (*parameters, struct.pack("<q", nbytes)), nbytes, stream)


def copied(to: int, source: int, nbytes: int, stream: int = 0) -> LaunchEvent:
    """A copy on the device, as the launch of a kernel."""
    parameters = (struct.pack("<Q", to), struct.pack("<Q", source), struct.pack("<q", nbytes))
    return _bytewise("fmha_copy", parameters, nbytes, stream)


def _bytewise(entry: str, parameters: tuple[bytes, ...], nbytes: int, stream: int) -> LaunchEvent:
    return LaunchEvent(entry, (max(1, -(-nbytes // THREADS)), 1, 1), (THREADS, 1, 1), SINGLE, 0, stream, parameters)


def read_events(text: str) -> list[LaunchEvent | Allocated | Ordered]:
    """What an extension has done, in order."""
    made: list[LaunchEvent | Allocated | Ordered] = []
    for line in text.splitlines():
        kind, *words = line.split(" ")
        if kind == "alloc":
            made.append(Allocated(int(words[0]), int(words[1])))
        elif kind == "fill":
            address, size, pattern, count, stream = map(int, words)
            made.append(filled(address, size, pattern, size * count, stream))
        elif kind == "copy":
            made.append(copied(*map(int, words)))
        elif kind == "launch":
            n = [int(word) for word in words[1:14]]
            parameters = tuple(bytes.fromhex(word) for word in words[14:])
            grid, block, cluster = ((n[at], n[at + 1], n[at + 2]) for at in (0, 3, 6))
            made.append(LaunchEvent(words[0], grid, block, cluster, n[9], n[10], parameters, n[11], bool(n[12])))
        else:
            made.append(Ordered(kind, *map(int, words)))
    return made


def launches_of(done: Events, names: Mapping[int, str]) -> list[Launch]:
    """As they are declared, with the buffers' names for their addresses. ValueError for a buffer that has none."""
    called = {0: "the default stream"}
    for item in done.launches:
        called.setdefault(item.stream, f"stream {len(called)}")
    return [
        Launch(
            item.grid,
            item.block,
            [_argument(parameter, names, item.entry) for parameter in item.parameters],
            item.shared_bytes,
            item.cluster,
            item.entry,
            beside=beside,
            stream=called[item.stream] if any(done.beside) else "",
        )
        for item, beside in zip(done.launches, done.beside, strict=True)
    ]


def buffers_of(done: Sequence[LaunchEvent]) -> set[int]:
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
            raise TorchAnswerError(
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
