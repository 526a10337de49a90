"""What a launch that does not fit into L2 reads from memory, where its CTAs do not stay together.

CTAs that read the same bytes begin together. Who waits for memory waits longer than the others, so that after a turn
they are apart: each is at a place of its own in what they all read. A byte that one of them reads is in L2 still if
another has read it not long ago: for as long as L2 takes to be filled with what they read meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stream:
    """What all clusters of a launch read of one allocation."""

    asked: float  # bytes, as often as they are asked for
    known: float  # bytes, each once
    together: float  # clusters that are there at once and read the same of it, on average

    @property
    def turns(self) -> float:
        """How often its bytes are read by as many as are there at once."""
        return self.asked / (self.known * self.together) if self.known else 0.0


def readers_at_once(first_reads: Mapping[int, Mapping[int, Any]], base: int) -> float:
    """How many of the clusters that are there at once read the same of an allocation, by what each reads first."""
    first = [read[base] for read in first_reads.values() if base in read]
    return len(first) / len(set(first)) if first else 1.0


def turns_of(streams: Sequence[Stream], waves: float) -> float:
    """How often what is read at once gives way to something else: with each wave of CTAs, or where CTAs take one piece
    of work after the other, as often as the bytes are read that most of them read."""
    return max([1.0, waves, *(s.turns for s in streams)])


def found(streams: Sequence[Stream], turns: float, capacity: float, partitions: float) -> list[float]:
    """Of what is read of each stream, the part that L2 has still, once those who read are apart.

    Each partition holds, up to its part of `capacity`, what the SMs of its own half read. Of the others that read the
    same bytes those count that are its own. Their distances are drawn, so that after t turns a byte has been read with
    1 - exp(-readers * t). L2 keeps a byte until the different bytes that were read since fill the partition.
    """
    room = capacity / partitions

    def seen(stream: Stream, t: float) -> float:
        at_once = min(stream.known, stream.asked / (turns * stream.together))
        passed = at_once + (stream.known - at_once) * t / turns
        return passed * -math.expm1(-stream.together / partitions * t)

    if sum(seen(s, turns) for s in streams) <= room:
        return [1.0] * len(streams)
    low, high = 0.0, turns
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(seen(s, middle) for s in streams) <= room else (low, middle)
    return [-math.expm1(-s.together / partitions * low) for s in streams]
