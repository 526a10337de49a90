"""A modelled timeline as a picture: what each warp does and waits for, what works beside them, the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from fmha.emulator.timing.launch_time import WarpTime
from fmha.emulator.timing.timeline import RUNNING, Link, Timeline
from fmha.harness.see.picture import Bar, bars

LEAST: Final = 1 / 1500  # of the time: what is shorter is narrower than a line
INSTRUCTIONS: Final = "instructions"  # that wait for operands, a pipe, a slot or their code
_OF_INSTRUCTIONS: Final = ("issue", "fma", "alu", "mufu", "convert", "shuffle", "shared", "branch", "code")
BESIDE: Final = {
    "tma": "copies by TMA",
    "memory": "loads from memory",
    "tensor": "products",
    "tmem": "tensor memory",
    "cluster": "another CTA's memory",
}


def drawn(title: str, timeline: Timeline) -> str:
    """As SVG."""
    rows = [("critical path", list(_path(timeline)))]
    for number, own in enumerate(timeline.warps):
        name = f"CTA {own.cta}, warp {own.warp}, {timeline.role(number)}"
        rows.append((name, list(_of_warp(timeline, own))))
    beside: dict[str, list[Bar]] = defaultdict(list)
    for operation in timeline.operations:
        beside[operation.cause].append(Bar(operation.start, operation.end, operation.cause, operation.cause))
    rows += [(BESIDE[cause], found) for cause, found in beside.items()]
    return bars(title, timeline.cycles, rows)


def _path(timeline: Timeline) -> Iterator[Bar]:
    """From its start; links of one kind in a row are one bar, and so is what runs for a moment between waits."""

    def kind_of(link: Link) -> str:
        moment = link.what == RUNNING and link.end - link.start < LEAST * timeline.cycles
        return INSTRUCTIONS if moment else _kind(link.what)

    for which, group in groupby(reversed(timeline.critical_path()), kind_of):
        links = list(group)
        yield Bar(links[0].start, links[-1].end, which, ", ".join(dict.fromkeys(link.what for link in links)))


def _kind(what: str) -> str:
    return INSTRUCTIONS if what in _OF_INSTRUCTIONS else what


def _of_warp(timeline: Timeline, own: WarpTime) -> Iterator[Bar]:
    at = own.start
    for wait in (w for w in timeline.waits if (w.cta, w.warp) == (own.cta, own.warp)):
        if wait.end - wait.start < LEAST * timeline.cycles:
            continue
        if wait.start > at:
            yield Bar(at, wait.start, RUNNING, RUNNING)
        yield Bar(wait.start, wait.end, _kind(wait.cause), f"waits: {wait.cause}, for {timeline.whom(wait)}")
        at = max(at, wait.end)
    if own.end > at:
        yield Bar(at, own.end, RUNNING, RUNNING)
