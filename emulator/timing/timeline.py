"""A replay as a timeline: who did what when, who waited for whom, and the longest chain of causes."""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fmha.emulator.ptx import Instruction
from fmha.emulator.timing.launch_time import LaunchTiming, Replayed, Span

RUNNING: Final = "running"


@dataclass(frozen=True, slots=True)
class Link:
    """A part of the critical path: `what` is what went on, in which warp or beside which."""

    cta: int
    warp: int
    start: float
    end: float
    what: str


class Timeline:
    """The spans of a traced replay."""

    def __init__(self, replayed: Replayed, times: Mapping[str, float]) -> None:
        self.cycles = replayed.cycles
        self.busy = {name: cycles / replayed.cycles for name, cycles in replayed.busy.items()}  # parts of the time
        self.warps = replayed.warps
        self.waits = replayed.waits
        self.operations = replayed.operations
        self.issuers = list(replayed.issuers)
        self._times = times
        self._numbers = {(each.cta, each.warp): k for k, each in enumerate(self.warps)}

    @classmethod
    def of(cls, timing: LaunchTiming) -> Timeline:
        """Of the CTA in the middle of those of a launch that were recorded."""
        ordinal = timing.ordinals[len(timing.ordinals) // 2]
        return cls(timing.replay(ordinal, traced=True), timing.architecture.values)

    def role(self, number: int) -> str:
        """What a warp, or its warpgroup, does: by what it issues."""
        cta, warp = self.warps[number].cta, self.warps[number].warp
        own = {o.cause for o in self.operations if (o.cta, o.warp) == (cta, warp)}
        group = {o.cause for o in self.operations if (o.cta, o.warp // 4) == (cta, warp // 4)}
        if "tensor" in (group if self._by_groups else own):
            return "multiplies"
        return "loads" if "tma" in own else "computes"

    @property
    def _by_groups(self) -> bool:
        """Whether warpgroups multiply together: those of wgmma, whose products no warp alone issues."""
        return self._times["matrix_least"] == 0

    def critical_path(self) -> list[Link]:
        """From the last warp's end back to the start: each wait leads to who ended it, latest link first."""
        waits: dict[int, list[Span]] = defaultdict(list)
        for wait in self.waits:
            waits[self._numbers[wait.cta, wait.warp]].append(wait)
        ends = {number: [w.end for w in spans] for number, spans in waits.items()}
        number = max(range(len(self.warps)), key=lambda k: self.warps[k].end)
        at, links = self.warps[number].end, []
        for _ in range(len(self.waits) + len(self.operations) + 1):
            own = self.warps[number]
            place = bisect.bisect_right(ends.get(number, []), at) - 1
            before = waits[number][place] if place >= 0 else None
            links.append(Link(own.cta, own.warp, before.end if before else min(own.start, at), at, RUNNING))
            if before is None:
                break
            wait = before
            if wait.by is None:
                links.append(Link(own.cta, own.warp, wait.start, wait.end, wait.cause))
                at = wait.start
            elif wait.by < 0:
                arrived = max(wait.start, wait.end - self._until_seen(wait.cause))
                links.append(Link(own.cta, own.warp, arrived, wait.end, wait.cause))
                number, at = ~wait.by, arrived
            else:
                number, at = self._behind(wait.by, wait.end, links)
        return [link for link in links if link.end > link.start]

    def _behind(self, index: int, until: float, links: list[Link]) -> tuple[int, float]:
        """Through an operation, and those that kept it waiting in the same queue, to the warp that issued the first."""
        operation = self.operations[index]
        links.append(Link(operation.cta, operation.warp, operation.start, until, operation.cause))
        latencies = (self._times["matrix_latency_registers"], self._times["matrix_latency_shared"])
        while operation.cause == "tensor":
            before = next(
                (
                    k
                    for k in range(index - 1, max(-1, index - 64), -1)
                    if self.operations[k].cause == "tensor"
                    and any(abs(self.operations[k].end - late - operation.start) < 1e-6 for late in latencies)
                ),
                None,
            )
            if before is None:
                break
            index, last = before, operation.start
            operation = self.operations[index]
            links.append(Link(operation.cta, operation.warp, operation.start, last, operation.cause))
        return self.issuers[index], operation.start

    def _until_seen(self, cause: str) -> float:
        """From an arrival to the first instruction behind the wait."""
        if cause == "mbarrier":
            return self._times["mbarrier_arrive"] + self._times["mbarrier_wake"]
        return self._times.get(f"{cause}_wake", 0.0)

    def shares(self, links: Sequence[Link]) -> dict[str, float]:
        """Of the critical path's time, what each thing took, the largest first."""
        total: dict[str, float] = defaultdict(float)
        for link in links:
            total[link.what] += link.end - link.start
        whole = sum(total.values())
        return {what: took / whole for what, took in sorted(total.items(), key=lambda item: -item[1])}

    def document(
        self, clock_mhz: float, sources: Sequence[Instruction], sass: Mapping[int, Sequence[str]] | None = None
    ) -> str:
        """A file for trace viewers, in the Trace Event Format."""
        return json.dumps({"traceEvents": self.events(clock_mhz, sources, sass), "displayTimeUnit": "ns"})

    def events(
        self, clock_mhz: float, sources: Sequence[Instruction], sass: Mapping[int, Sequence[str]] | None = None
    ) -> list[dict[str, Any]]:
        """As Perfetto and chrome://tracing read them: a process a CTA, a thread a warp, what works beside the warps as
        asynchronous events, the critical path a process of its own. Microseconds, in whole nanoseconds: Perfetto rounds
        to them, and drops a span that then begins before the end of the one ahead of it.
        """
        events: list[dict[str, Any]] = []

        def nanoseconds(at: float) -> int:
            return round(at * 1e3 / clock_mhz)

        def put(phase: str, name: str, pid: int, tid: int, at: float, end: float | None = None, **more: Any) -> None:
            begin = nanoseconds(at)
            lasting = {} if end is None else {"dur": (nanoseconds(end) - begin) / 1e3}
            events.append({"ph": phase, "name": name, "pid": pid, "tid": tid, "ts": begin / 1e3, **lasting, **more})

        def place(pc: int) -> dict[str, Any]:
            source = sources[pc]
            said: dict[str, Any] = {"ptx": f"line {source.line}: {source.text}"}
            if sass is not None and source.line in sass:
                said["sass"] = "; ".join(sass[source.line])
            if source.location is not None:
                said["cuda"] = f"{source.location.file}:{source.location.line}"
            return said

        for number, each in enumerate(self.warps):
            cta, warp, at, end = each.cta, each.warp, each.start, each.end
            put("M", "process_name", cta + 1, 0, 0, args={"name": f"CTA {cta}"})
            put("M", "thread_name", cta + 1, warp + 1, 0, args={"name": f"warp {warp}, {self.role(number)}"})
            for wait in (w for w in self.waits if (w.cta, w.warp) == (cta, warp)):
                if wait.end - wait.start < 2 and wait.by is None:
                    continue  # an instruction's turn: not to be seen, and most of the file
                if wait.start > at:
                    put("X", RUNNING, cta + 1, warp + 1, at, wait.start, cat="run")
                said = place(wait.pc) | {"for": self.whom(wait)}
                put("X", _words(wait), cta + 1, warp + 1, wait.start, wait.end, cat="wait", args=said)
                at = max(at, wait.end)
            if end > at:
                put("X", RUNNING, cta + 1, warp + 1, at, end, cat="run")
        for index, operation in enumerate(self.operations):
            name = _operation(operation)
            track: dict[str, Any] = {"cat": operation.cause, "id": index}
            said = place(operation.pc) | {"issued by": f"warp {operation.warp}"}
            put("b", name, operation.cta + 1, 0, operation.start, args=said, **track)
            put("e", name, operation.cta + 1, 0, operation.end, **track)
        put("M", "process_name", 0, 0, 0, args={"name": "critical path"})
        for link in self.critical_path():
            said = {"where": f"CTA {link.cta}, warp {link.warp}"}
            put("X", link.what, 0, 1, link.start, link.end, cat="critical", args=said)
        return events

    def whom(self, wait: Span) -> str:
        """Who ended a wait, in words."""
        if wait.by is None:
            return "its own operands or a busy pipe"
        if wait.by < 0:
            by = self.warps[~wait.by]
            return f"warp {by.warp} of CTA {by.cta}, which {self.role(~wait.by)}"
        operation = self.operations[wait.by]
        return f"{_operation(operation)}, issued by warp {operation.warp}"


def _words(wait: Span) -> str:
    match wait.cause:
        case "mbarrier":
            return f"waits at the mbarrier at {wait.place}"
        case "barrier":
            return f"waits at barrier {wait.place}"
        case "tensor":
            return "waits for its products"
        case cause:
            return f"waits: {cause}"


def _operation(operation: Span) -> str:
    match operation.cause:
        case "tensor":
            return f"product {operation.place >> 16} x {operation.place & 0xFFFF}"
        case "tma":
            return f"copy of {operation.place} bytes"
        case "tmem":
            return f"tensor memory, {operation.place} registers"
        case cause:
            return f"{cause}, {operation.place} bytes"
