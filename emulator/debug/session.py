"""A debugger's session: a launch that stops where it is asked to, forwards and backwards.

A run is a function of its inputs, schedule and seed. So a place in it is a number: how many instructions, and
completions of asynchronous operations, came before. To go back is to run again up to a smaller number.

The launch waits inside a call of its observer while it is stopped. What the front end returns from there says how it
goes on.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.debug.observe import (
    BARRIERS,
    BEFORE,
    COMPLETIONS,
    EXECUTED,
    FINDINGS,
    TRACE,
    Log,
    Seen,
    own_line,
    register_of,
)
from fmha.emulator.device import Device, Module
from fmha.emulator.executed_lines import chain_of

Run = Callable[[Callable[[Device, Module, str], AbstractContextManager[None]]], None]
Go = Literal["continue", "step", "any", "async", "back", "reverse", "quit"]

_NEVER: Final = 2**64 - 1
_COMPARE: Final = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_CONDITION: Final = re.compile(r"(%[\w$.]+)\s*(==|!=|<=|>=|<|>)\s*(\S+)")


class WrongCommandError(Exception):
    """What was asked for makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why and where a launch has stopped. `warp` and `pc` are -1 where it is no warp's doing."""

    why: str
    launch: int
    event: int
    cta: int = -1
    rank: int = -1
    warp: int = -1
    pc: int = -1
    mask: int = 0
    before: bool = False  # an instruction that has not been executed
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """At a PTX line or a line of source, on a condition over a register; or at everything that an mbarrier sees."""

    text: str
    file: str = ""
    line: int = 0
    condition: tuple[str, str, int] | None = None
    barrier: int = -1


class _QuitError(BaseException):
    """The front end has had enough. No error: a script that is debugged does not get to catch it."""


class _AgainError(BaseException):
    """Run from the start, up to this place. No error either."""

    def __init__(self, launch: int, event: int) -> None:
        self.goal = (launch, event)


def parse_break(text: str) -> Break:
    """`12`, `file.cu:34`, either with ` if %r1 == 5`, or `barrier 0x400`. Raises WrongCommandError."""
    where, _, condition = text.partition(" if ")
    words_of = where.split()
    if words_of[:1] == ["barrier"] and len(words_of) == 2:
        return Break(text, barrier=number(words_of[1]))
    file, _, line = where.strip().rpartition(":")
    if not line.isdigit():
        raise WrongCommandError(f"{text!r}: give a PTX line, FILE:LINE, or barrier OFFSET")
    if not condition:
        return Break(text, file, int(line))
    found = _CONDITION.fullmatch(condition.strip())
    if not found:
        raise WrongCommandError(f"{condition!r} is no condition; write e.g. %r1 == 5")
    return Break(text, file, int(line), (found[1], found[2], number(found[3])))


def _ends_alike(file: str, asked: str) -> bool:
    """Whether the shorter of two paths is the end of the other: an editor asks for an absolute one, a person for a
    name."""
    return f"/{file}".endswith(f"/{asked.lstrip('/')}") or f"/{asked}".endswith(f"/{file.lstrip('/')}")


def number(text: str) -> int:
    """A whole number as it is typed, 0x... or decimal. Raises WrongCommandError."""
    try:
        return int(text, 0)
    except ValueError:
        raise WrongCommandError(f"{text!r} is no number") from None


@dataclass(slots=True)
class DebugSession:
    """`front` is called at every stop, and says how to go on."""

    run: Run
    front: Callable[[DebugSession, Stop], Go]
    breaks: list[Break] = field(default_factory=list)
    hazards: bool = True
    focus: tuple[int, int] | None = None  # CTA and warp to step, where it is not the one that has stopped
    log: Log | None = None
    _observer: _core.Observer | None = None  # while a launch runs
    _trace: bytes = b""  # of the last launch that was searched
    _launch: int = -1
    _goal: tuple[int, int] = (0, 0)
    _mode: Go = "any"
    _stepping: tuple[int, int] = (-1, -1)
    _searching: tuple[Go, Stop] | None = None  # going back: what for, and from where
    _hits: list[tuple[int, int]] = field(default_factory=list)
    _stop: Stop | None = None

    def debug(self) -> None:
        """Runs until the front end quits, or goes on from the end."""
        while True:
            self._launch = -1
            self._hits = []
            try:
                self.run(self._around)
                end = Stop("the run has ended", max(self._launch, 0), _NEVER, ended=True)
                if self._searching:
                    self._turn_back(end)
                go = self.front(self, end)
                if go in ("back", "reverse"):
                    self._search(go, end)
                return
            except _AgainError as again:
                self._goal = again.goal
                self._mode = "any"
            except _QuitError:
                return

    @contextmanager
    def _around(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        self._launch += 1
        self.log = Log(entry, device.decoded(module, entry), device=device)
        observer = self._observer = _core.Observer(self._tell)
        self._prepare()
        with device.observed(observer):
            yield
        self._trace, self._observer = observer.trace, None

    def _prepare(self) -> None:
        """Says to the observer what to call for, from here on."""
        observer = self.observer
        here = self._launch
        observer.wants = FINDINGS | (BARRIERS if any(b.barrier >= 0 for b in self.breaks) else 0)
        observer.stop_at(self._stops())
        goal = self._goal[1] if self._goal[0] == here else 0 if self._goal[0] < here else _NEVER
        observer.until = _NEVER if self._mode in ("continue", "async") else goal
        if self._mode == "async":
            observer.wants |= COMPLETIONS
        if self._searching:
            go, stop = self._searching
            observer.until = stop.event if stop.launch == here else _NEVER
            observer.wants |= TRACE if go == "back" else 0

    def _stops(self) -> bytes:
        sources = self.sources
        stops = bytearray(len(sources))
        for b in self.breaks:
            for pc in self.places(b):
                stops[pc] = BEFORE
        return bytes(stops)

    def places(self, b: Break) -> list[int]:
        """The instructions at which the lines of a break begin."""
        if b.barrier >= 0:
            return []
        at = [pc for pc, i in enumerate(self.sources) if self._is_at(i, b)]
        return [pc for pc in at if pc == 0 or not self._is_at(self.sources[pc - 1], b)]

    @staticmethod
    def _is_at(instruction: Any, b: Break) -> bool:
        if not b.file:
            return bool(instruction.line == b.line)
        return any(x.line == b.line and _ends_alike(x.file, b.file) for x in chain_of(instruction.location))

    # Being told

    def _tell(self, kind: str, event: Seen) -> None:
        now = (self._launch, event.get("event", self.observer.events))
        if self._searching:
            self._look_back(kind, event, now)
            return
        if now < self._goal:
            return
        if why := self._why(kind, event):
            place = {name: event.get(name, -1) for name in ("cta", "rank", "warp", "pc")}
            if place["rank"] < 0:
                place["rank"] = self._rank_of(place["cta"])
            self._stopped(Stop(why, now[0], now[1], **place, mask=event.get("mask", 0), before=kind == "step"))

    def _rank_of(self, cta: int) -> int:
        return next((int(w["rank"]) for w in self.observer.warps() if w["cta"] == cta), -1)

    def _why(self, kind: str, event: Seen) -> str | None:
        if kind == "stuck":
            return "no warp can go on"
        if kind == "finding":
            found: _core.Finding = event["finding"]
            return f"{found.rule}: {found.message}" if self.hazards else None
        if kind == "barrier":
            hit = event["what"] != "wait" and any(b.barrier == event["offset"] for b in self.breaks)
            return f"mbarrier 0x{event['offset']:x}: {event['what']}" if hit else None
        if kind in ("completing", "completed"):
            return "an asynchronous operation has completed" if kind == "completed" and self._mode == "async" else None
        if hit := self._hit(event):
            return f"break at {hit.text}"
        if self._mode == "step":
            return "step" if (event["cta"], event["warp"]) == self._stepping else None
        return "step" if self._mode == "any" else None

    def _hit(self, event: Seen) -> Break | None:
        for b in self.breaks:
            if event["pc"] in self.places(b) and self._holds(b, event):
                return b
        return None

    def _holds(self, b: Break, event: Seen) -> bool:
        if b.condition is None:
            return True
        name, sign, wanted = b.condition
        try:
            values = self.register(name, event["rank"], event["warp"], event["pc"])
        except WrongCommandError:
            return False
        return any(_COMPARE[sign](int(values[lane]), wanted) for lane in range(32) if event["mask"] >> lane & 1)

    def _stopped(self, stop: Stop) -> None:
        self._stop = stop
        go = self.front(self, stop)
        self._goal = (stop.launch, stop.event + stop.before)
        if go == "quit":
            raise _QuitError
        if go in ("back", "reverse"):
            self._search(go, stop)
        self._mode = go
        self._stepping, self.focus = self.focus or (stop.cta, stop.warp), None
        self._prepare()
        if go in ("step", "any"):
            self.observer.until = self._goal[1]

    # Going back

    def _search(self, go: Go, stop: Stop) -> None:
        self._searching = (go, stop)
        raise _AgainError(0, 0)

    def _look_back(self, kind: str, event: Seen, now: tuple[int, int]) -> None:
        assert self._searching
        go, stop = self._searching
        if kind == "step" and now < (stop.launch, stop.event):
            if go == "reverse" and self._hit(event):
                self._hits.append(now)
        elif kind in ("step", "stuck"):  # anything else comes in the middle of an instruction
            self._turn_back(stop)

    def _turn_back(self, stop: Stop) -> None:
        """At the place where the search began: to the one that was looked for, or to the start."""
        assert self._searching
        go, _ = self._searching
        self._searching = None
        if go == "reverse":
            raise _AgainError(*(self._hits[-1] if self._hits else (0, 0)))
        trace = np.frombuffer(self._observer.trace if self._observer else self._trace, EXECUTED)
        own = trace[trace["event"] < stop.event]
        if stop.warp >= 0:
            own = own[(own["cta"] == stop.cta) & (own["warp"] == stop.warp)]
        raise _AgainError(stop.launch, int(own["event"][-1]) if len(own) else 0)

    # Looking

    @property
    def observer(self) -> _core.Observer:
        """The run's observer. WrongCommandError once the run has ended."""
        if self._observer is None:
            raise WrongCommandError("the run has ended; go back first")
        return self._observer

    @property
    def sources(self) -> tuple[Any, ...]:
        """Instructions by decoded place, as `Place`s are made of them."""
        assert self.log is not None
        return self.log.sources

    def line(self, pc: int) -> str:
        """`mma.cuh:12, PTX line 345: text`."""
        if not 0 <= pc < len(self.sources):
            return "?"
        i = self.sources[pc]
        own = own_line(i)
        return f"{own + ', ' if own else ''}PTX line {i.line}: {i.text}"

    def register(self, name: str, rank: int, warp: int, pc: int) -> NDArray[Any]:
        """32 lanes of a register as whole numbers; of a predicate, ones and zeros. WrongCommandError where it has no
        value of its own."""
        assert self.log is not None
        place = self.log.decoded.registers.get(name)
        if place is None:
            raise WrongCommandError(f"no register is named {name}")
        if not place.first <= pc <= place.last:
            first, last = self.sources[place.first].line, self.sources[place.last].line
            raise WrongCommandError(f"{name} holds a value only from PTX line {first} to {last}")
        return register_of(self.observer, rank, warp, place.unit, place.width)
