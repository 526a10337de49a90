"""PTX that an adapter's process has compiled while it planned a run: taken for a build, or compiled anew.

A build that is started says what it has read once it has ended, and seconds after it began. Here files may change for
as long as a user takes between a plan and its build. So all that decides what is built is held against what it was
before that process began, and what the process says that it has read against what it was when it first asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.harness.contract.protocol import Variant
from fmha.harness.worker.compilers.enclosed import BuildError, environment
from fmha.harness.worker.compilers.read import as_read, told
from fmha.harness.worker.compilers.sources import counted, files_of, hash_sources


@dataclass(frozen=True, slots=True)
class Before:
    """What decides a build whoever makes it, before a process was started: the hash of the sources that count, and the
    variables that compilers are given."""

    sources: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


def before(root: Path, sources: Sequence[str]) -> Before:
    """The same as it is now."""
    return Before(hash_sources(root, counted(sources)), environment())


@dataclass(frozen=True, slots=True)
class AtHand:
    """PTX, and what the process that has compiled it says that it has read.

    What it has written itself is in `scratch`. `started_ns` is the clock before it was started.
    """

    text: str
    read: Any
    scratch: Path
    started_ns: int
    before: Before
    processor_seconds: float = 0.0


AtHandOf = Callable[[Variant], AtHand | None]


def still_there(root: Path, sources: Sequence[str], hand: AtHand) -> bool:
    """Whether a process that was started now would read what that one has read."""
    try:
        said = told(hand.read)
    except BuildError:
        return False
    more = files_of(root, counted(sources))
    return hand.before == before(root, sources) and as_read(root, said, hand.scratch, hand.started_ns, more)
