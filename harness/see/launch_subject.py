"""A launch to look at, whatever it was named by: what makes it, and which of several is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.emulator.device import Around, Device, Module
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.cpp_names import readable, short
from fmha.harness.errors import UserError
from fmha.harness.see.call_time import CallTime, Order

MOST_TOLD = 12  # launches that a message lists


@dataclass(frozen=True, slots=True)
class LaunchSubject:
    """`run` makes its launches, each within what its argument makes for it, and may be called again: they are the same.
    `time` has the time of each modelled on a GPU, `gpu` where nobody names another, with its warps in an order. `which`
    of them is meant: a number from 1, or a part of an entry's name; None where nobody has said."""

    name: str
    run: Callable[[Around], None]
    time: Callable[[str, Order], CallTime]
    gpu: str
    build: Callable[[], BuildResult] | None = None  # where it is built here
    file: Path | None = None  # its PTX, where it was there before
    root: Path = Path()  # below which its sources lie
    which: str | None = None

    @property
    def ptx(self) -> Path:
        """Where it lies; an empty path of PTX that is in no file."""
        return Path(self.build().ptx) if self.build else self.file or Path()

    def look(self, around: Around) -> str:
        """Shows `around` one launch, the first where nobody has said which; its number and entry in words where it is
        one of several. UserError where there is no such launch."""
        one = _One(self.which or "1", around)
        self.run(one)
        place = one.place()
        if len(one.entries) == 1:
            return ""
        others = "" if self.which else "; --launch N chooses another"
        return f"launch {place + 1} of {len(one.entries)}, {short(one.entries[place])}{others}"

    def launches(self, around: Around) -> None:
        """Shows `around` all launches, or the one that is meant. UserError where there is no such launch."""
        if self.which is None:
            self.run(around)
        else:
            one = _One(self.which, around)
            self.run(one)
            one.place()


def place_of(which: str, entries: list[str]) -> int:
    """The launch that `which` means, from 0. UserError where it means none, or entries that differ."""
    numbered = ", ".join(f"{number} {short(entry)}" for number, entry in enumerate(entries[:MOST_TOLD], 1))
    there = f"there are {numbered}" + (f" and {len(entries) - MOST_TOLD} more" if len(entries) > MOST_TOLD else "")
    if not entries:
        raise UserError("nothing is launched, so there is nothing to look at")
    if which.isascii() and which.isdigit():
        if not 1 <= int(which) <= len(entries):
            raise UserError(f"--launch: there is no launch {which}", next_step=there)
        return int(which) - 1
    found = [place for place, entry in enumerate(entries) if _holds(entry, which)]
    if not found:
        raise UserError(f"--launch: {which!r} is of no launch", next_step=there)
    if len({entries[place] for place in found}) > 1:
        raise UserError(f"--launch: {which!r} is of several launches", next_step=there)
    return found[0]


def _holds(entry: str, which: str) -> bool:
    """Whether `which` is a part of an entry's name, as its symbol or as C++ has it."""
    return which in entry or which.replace(" ", "") in readable(entry).replace(" ", "")


class _One:
    """Lets `around` see one launch alone, the first that `which` fits."""

    def __init__(self, which: str, around: Around) -> None:
        self._which, self._around = which, around
        self.entries: list[str] = []
        self._taken = False

    def __call__(self, device: Device, module: Module, entry: str) -> AbstractContextManager[object]:
        self.entries.append(entry)
        which = self._which
        fits = len(self.entries) == int(which) if which.isascii() and which.isdigit() else _holds(entry, which)
        if not fits or self._taken:
            return nullcontext()
        self._taken = True
        return self._around(device, module, entry)

    def place(self) -> int:
        return place_of(self._which, self.entries)


@dataclass(slots=True)
class Clock:
    """Keeps the recordings of launches on a device that has their time modelled."""

    timings: list[tuple[str, LaunchTiming]] = field(default_factory=list)

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        yield
        latest: Any = device.latest
        if not latest.report.ok:
            rule = latest.report.findings[0].rule
            raise UserError(f"it does not end, so it has no time: {rule}", where=f"entry {entry}")
        timing = latest.report.timing
        timing.overlaps = latest.programmatic
        self.timings.append((entry, timing))
