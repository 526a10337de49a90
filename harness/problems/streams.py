"""Which launches of an answer may run beside each other: what its streams, events and waits leave open.

CUDA C++ programming guide, asynchronous concurrent execution. A set of launches is an int with a bit for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fmha.harness.problems.events import LaunchEvent, Ordered

_APART: Final = 1  # of a stream's handle: it does not wait for the default stream, nor that one for it


@dataclass(slots=True)
class Events:
    """Since the last `clear`. `beside` says of each launch which ones before it, counted back from it (1 is the one
    before), nothing orders before it."""

    launches: list[LaunchEvent] = field(default_factory=list)
    beside: list[tuple[int, ...]] = field(default_factory=list)
    _streams: dict[int, int] = field(default_factory=dict)  # what is before the next launch in it
    _recorded: dict[int, int] = field(default_factory=dict)  # what an event is behind
    _waited: int = 0  # what the host has waited for

    def add(self, launched: LaunchEvent) -> None:
        """A launch, behind what its stream has to wait for."""
        number = len(self.launches)
        before = self._before(launched.stream)
        self._streams[launched.stream] = before | 1 << number
        self.launches.append(launched)
        self.beside.append(tuple(number - at for at in range(number) if not before >> at & 1))

    def order(self, what: Ordered) -> None:
        """What the host code does to have one thing behind another. ValueError for what orders nothing."""
        if what.kind == "wait":
            self._waited = (1 << len(self.launches)) - 1
        elif what.kind == "wait_stream":
            self._waited |= self._before(what.one)
        elif what.kind == "wait_event":
            self._waited |= self._recorded.get(what.one, 0)
        elif what.kind == "record":
            self._recorded[what.one] = self._before(what.other)
        elif what.kind == "stream_waits":
            self._streams[what.one] = self._streams.get(what.one, 0) | self._recorded.get(what.other, 0)
        else:
            raise ValueError(f"{what.kind} orders nothing")

    @property
    def apart(self) -> bool:
        """Whether some launch is still running, for all that its host code has said, when the caller goes on in the
        default stream. That stream's own wait for others is left out: torch's current stream may be another one."""
        done = self._waited | self._streams.get(0, 0)
        return done != (1 << len(self.launches)) - 1

    def clear(self) -> None:
        """Forgets all launches, streams and events."""
        self.launches.clear()
        self.beside.clear()
        self._streams.clear()
        self._recorded.clear()
        self._waited = 0

    def _before(self, stream: int) -> int:
        """What a launch in `stream` would be behind."""
        before = self._waited | self._streams.get(stream, 0)
        if stream == 0:
            for other, done in self._streams.items():
                before |= 0 if other & _APART else done
        elif not stream & _APART:
            before |= self._streams.get(0, 0)
        return before
