"""Bank conflicts of the loads and stores that a launch made to shared memory, by line.

Shared memory has 32 banks of four bytes. The lanes of an access are served together as far as their words lie in
different banks or are the same: 32 lanes of up to four bytes, 16 of eight, 8 of sixteen. Every further word of a bank
costs a pass more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from fmha.emulator.debug.observe import Log, lanes_of

BANKS = 32
WORD = 4  # bytes


@dataclass(slots=True)
class LineAccesses:
    """The accesses of one line: of warps, passes they take, passes that they would take without a conflict."""

    line: str
    what: str
    accesses: int = 0
    passes: int = 0
    least: int = 0
    worst: int = 0  # passes of one group of lanes


def passes_of(addresses: Mapping[int, int], size: int) -> tuple[int, int, int]:
    """(passes, the least there could be, the most of one group of lanes) of addresses by lane, `size` bytes each."""
    lanes = max(1, min(32, 32 * WORD // max(size, WORD)))
    total = least = worst = 0
    for first in range(0, 32, lanes):
        group = [addresses[lane] for lane in range(first, first + lanes) if lane in addresses]
        if not group:
            continue
        banks: defaultdict[int, set[int]] = defaultdict(set)
        for at in group:
            for word in range(at // WORD, (at + size - 1) // WORD + 1):
                banks[word % BANKS].add(word)
        passes = max(len(found) for found in banks.values())
        different = len(set().union(*banks.values()))
        total, worst = total + passes, max(worst, passes)
        least += -(-different // BANKS)
    return total, least, worst


def conflicts(log: Log) -> list[LineAccesses]:
    """By line, the most superfluous passes first. `log` has ACCESSES."""
    found: dict[tuple[str, str], LineAccesses] = {}
    for event in log.of("access"):
        if not event["shared"]:
            continue
        what = f"{'store' if event['write'] else 'load'} of {event['size']} bytes"
        key = (log.line(event["pc"]), what)
        line = found.setdefault(key, LineAccesses(*key))
        passes, least, worst = passes_of(dict(lanes_of(event)), event["size"])
        line.accesses += 1
        line.passes += passes
        line.least += least
        line.worst = max(line.worst, worst)
    return sorted(found.values(), key=lambda x: (x.least - x.passes, x.line))
