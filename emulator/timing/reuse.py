"""What a launch that does not fit into L2 reads from memory, where its CTAs do not stay together.

CTAs that read the same bytes begin together. Later each is at a place of its own in what they all read, but for those
that catch up: a CTA that finds in L2 what one ahead of it has read is faster than that one, which waits for memory,
until it is at the same place. Whether L2 has a byte still depends on what has been read since, and that is the less the
more CTAs go together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_STEPS: Final = 256  # in which the first crossing is looked for, closer to one another where L2 keeps little


@dataclass(frozen=True, slots=True)
class AllocationReads:
    """What all clusters of a launch read of one allocation."""

    asked: float  # bytes, as often as they are asked for
    known: float  # bytes, each once
    together: float  # clusters that are there at once and read the same of it, on average

    @property
    def turns(self) -> float:
        """How often its bytes are read by as many as are there at once."""
        return self.asked / (self.known * self.together) if self.known else 0.0

    def in_a_turn(self, turns: float) -> float:
        """Different bytes that are read in one of `turns`."""
        return min(self.known, self.asked / (turns * self.together))


def readers_at_once(first_reads: Mapping[int, Mapping[int, Any]], base: int) -> float:
    """How many of the clusters that are there at once read the same of an allocation, by what each reads first."""
    first = [read[base] for read in first_reads.values() if base in read]
    return len(first) / len(set(first)) if first else 1.0


def turns_of(streams: Sequence[AllocationReads], waves: float) -> float:
    """How often what is read at once gives way to something else: with each wave of CTAs, or where CTAs take one piece
    of work after the other, as often as the bytes are read that most of them read."""
    return max([1.0, waves, *(s.turns for s in streams)])


def kept(streams: Sequence[AllocationReads], turns: float, room: float) -> float:
    """For how many turns a partition of L2 with `room` for so many bytes keeps one; `turns` where it keeps all.

    An SM's partition holds what is read by the SMs at its side, and most bytes are read at both. What it does not have
    it asks the other one for before memory, so that every reader of a byte counts. The distances of CTAs are drawn:
    of those that read the same, as many go alone as have nobody within reach ahead of them, and the others go with
    those. So after t turns a byte has been read with 1 - exp(-places * t), where `places` are those of all that go
    alone. L2 keeps a byte until the different bytes that were read since fill a partition.
    """

    def read_since(t: float) -> float:
        """Different bytes within t turns, where L2 keeps what was read t turns ago."""
        total = 0.0
        for s in streams:
            passed = s.in_a_turn(turns) + (s.known - s.in_a_turn(turns)) * t / turns
            places = max(min(1.0, s.together), s.together * math.exp(-s.together * t))
            total += passed * -math.expm1(-places * t)
        return total

    # The first crossing: what L2 keeps grows from the distances that were drawn as CTAs catch up, until it is full.
    low = 0.0
    for step in range(1, _STEPS + 1):
        high = turns * (step / _STEPS) ** 2
        if read_since(high) > room:
            break
        low = high
    else:
        return turns
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if read_since(middle) > room else (middle, high)
    return low


def from_memory(stream: AllocationReads, keeps: float, together: bool = False) -> float:
    """The part of what is read of a stream that memory gives, where L2 keeps a byte for so many turns: to those that
    read it with nobody within reach ahead of them, none if all go together. If it keeps less than a turn's, to one in
    each turn at least."""
    alone = 0.0 if together else math.exp(-stream.together * keeps)
    return alone if keeps >= 1 else max(alone, min(1.0, 1 / stream.together))


def on_its_way(stream: AllocationReads, fetched: float) -> float:
    """The part of what is read of a stream that is on its way from memory when it is asked for, if memory gives
    `fetched` bytes of it: each to all that go together, and the first of them has only just asked."""
    return min(1.0, fetched * stream.together / stream.asked) if stream.asked else 0.0
