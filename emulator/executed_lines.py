"""Which lines of a program were executed: of its PTX, and of the source that `.loc` says it was compiled from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fmha.emulator.ptx import Instruction
from fmha.emulator.ptx.parsed_module import Location


@dataclass(frozen=True, slots=True)
class ExecutedLines:
    """Lines that hold instructions: true once one of these was executed by a lane.

    A line of source counts for the instructions that were compiled from it and for those of the functions that it calls
    and that were inlined: the chain of `inlined_at`.
    """

    ptx: dict[int, bool]
    source: dict[tuple[str, int], bool]  # by file, as `.file` writes it, and line


def coverage_of(sources: Sequence[Instruction], executed: bytes) -> ExecutedLines:
    """`sources` and `executed` by pc, as Decoded and Machine have them; no bytes for what was never launched."""
    ptx: dict[int, bool] = {}
    source: dict[tuple[str, int], bool] = {}
    for pc, instruction in enumerate(sources):
        done = pc < len(executed) and executed[pc] != 0
        ptx[instruction.line] = ptx.get(instruction.line, False) or done
        for place in chain_of(instruction.location):
            key = (place.file, place.line)
            source[key] = source.get(key, False) or done
    return ExecutedLines(ptx, source)


def chain_of(location: Location | None) -> Iterator[Location]:
    """The location, the one where its function was inlined, and so on outwards."""
    while location is not None:
        if location.line:  # 0: of no line
            yield location
        location = location.inlined_at


def own_of(calls: Sequence[str]) -> str | None:
    """Of FILE:LINE from the innermost outwards the first that is the kernel's own: neither the toolkit's, which is
    absolute, nor in a folder `ptx`, which wraps instructions. The outermost where none is."""
    for line in calls:
        folders = PurePosixPath(line).parent
        if not folders.is_absolute() and "ptx" not in folders.parts:
            return line
    return calls[-1] if calls else None
