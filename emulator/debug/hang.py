"""Why a launch hangs: the circle of waits in words, and its likely cause.

A deadlock is found when no warp can go on. What each warp that waits would have done next is not in its past, so it is
asked: its wait is taken to be over, and it runs alone up to its next wait (`suppose_released` of the core's schedule).
The barriers that it would arrive on then are what others wait for because of it. What such a warp computes from data
that never came means nothing; where it arrives hardly ever depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fmha.emulator import _core
from fmha.emulator.debug.barrier_phases import warps_named
from fmha.emulator.debug.observe import BARRIERS, Log, Seen
from fmha.emulator.device import Device, Module
from fmha.emulator.names import with_variables

NEXT: Final = 20_000  # instructions that a warp which is supposed to go on may take to its next wait

NO_CIRCLE: Final = "no circle: somebody waits for what nobody would do any more"

NO_COLUMNS: Final = "an allocation waits for tensor memory that nobody gives back:"

_HELD: Final = "tensor memory that"  # of the core's words for who waits in tcgen05.alloc

Key = tuple[int, int]  # CTA in the grid, offset in its shared memory


@dataclass(frozen=True, slots=True)
class Waiting:
    """Warps that wait at one line for one barrier. `key` is None where it is no mbarrier."""

    cta: int
    warps: tuple[int, ...]
    line: str
    waits_for: str
    key: Key | None
    parity: int
    named: int = -1  # the number of a named barrier


@dataclass(slots=True)
class Hang:
    """What is known of a launch that cannot go on."""

    log: Log
    waiting: list[Waiting] = field(default_factory=list)
    states: dict[Key, Seen] = field(default_factory=dict)
    would: dict[Key, list[tuple[int, int, str, str]]] = field(default_factory=dict)  # (CTA, warp, how, line)


class HangWatch:
    """Looks on at a launch, and asks when it hangs. `hangs` has what it found."""

    def __init__(self) -> None:
        self.hangs: list[Hang] = []

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        log = Log(entry, device.decoded(module, entry), device=device)

        def tell(kind: str, event: Seen) -> None:
            if kind != "stuck":
                log.seen.append((kind, event))
            else:
                self.hangs.append(_asked(log, observer))

        observer = _core.Observer(tell)
        observer.wants = BARRIERS
        with device.observed(observer):
            yield


def _asked(log: Log, observer: _core.Observer) -> Hang:
    hang = Hang(log)
    happened = len(log.seen)
    every = observer.warps()
    linear = {w["rank"]: w["cta"] for w in every}
    warps = [w for w in every if w["live"]]
    for rank in linear:
        for bar in observer.mbarriers(rank):
            hang.states[linear[rank], bar["offset"]] = bar
    polled = _polled(log)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for warp in warps:
        for f in warp["fragments"]:
            key = (linear.get(f["rank"], warp["cta"]), f["offset"]) if f["mbarrier"] else None
            parity, why = f["parity"], f["for"]
            if key is None and f["barrier"] < 0 and (warp["cta"], warp["warp"]) in polled:
                key, parity, why = *polled[warp["cta"], warp["warp"]], "a barrier that it polls"
            where = (warp["cta"], log.line(f["pc"]), "" if key else why, key, parity, f["barrier"])
            groups.setdefault(where, []).append(warp["warp"])
    for (cta, line, why, key, parity, named), members in groups.items():
        hang.waiting.append(Waiting(cta, tuple(sorted(set(members))), line, why, key, parity, named))
    for warp in warps:
        start = len(log.seen)
        observer.suppose(warp["rank"], warp["warp"], NEXT)
        for event in (event for kind, event in log.seen[start:] if kind == "barrier"):
            _note_would(hang, event, warp)
    del log.seen[happened:]  # what follows was supposed
    return hang


def _note_would(hang: Hang, event: Seen, warp: Seen) -> None:
    if event["what"] not in ("arrive", "promise") or event["async"]:
        return
    how = "arrives" if event["what"] == "arrive" else "commits" if event["amount"] else "copies"
    entry = (warp["cta"], warp["warp"], how, hang.log.line(event["pc"]))
    would = hang.would.setdefault((event["cta"], event["offset"]), [])
    if entry not in would:
        would.append(entry)


def _polled(log: Log) -> dict[tuple[int, int], tuple[Key, int]]:
    """The mbarrier and parity that each warp asked for last, in vain."""
    last: dict[tuple[int, int], tuple[Key, int]] = {}
    for event in log.of("barrier"):
        if event["what"] == "wait":
            last[event["by_cta"], event["warp"]] = ((event["cta"], event["offset"]), event["amount"])
        elif event["what"] == "pass":
            last.pop((event["by_cta"], event["warp"]), None)
    return last


def explained(hang: Hang) -> list[str]:
    """The circle of waits, then what is likely to be its cause: lines for a person."""
    ring = _ring(hang)
    lines: list[str] = []
    if ring:
        lines.append(f"{len(ring)} waits form a circle:" if len(ring) > 1 else "one wait waits for itself:")
        for place, (waiting, via) in enumerate(ring):
            after = ring[(place + 1) % len(ring)][0]
            lines.append(f"  {_who(waiting)} {_waits(waiting)} at {waiting.line} for {_barrier(hang, waiting)},")
            lines.append(f"    which {_who(after)} would {_deed(via)}")
    else:
        lines.append(NO_COLUMNS if any(_HELD in w.waits_for for w in hang.waiting) else NO_CIRCLE)
        several = len({waiting.cta for waiting in hang.waiting}) > 1
        for waiting in hang.waiting:
            cta = f" of CTA {waiting.cta}" if several else ""
            lines.append(f"  {_who(waiting)}{cta} {_waits(waiting)} at {waiting.line} for {_barrier(hang, waiting)}")
    held = [f"{_who(w)} {_waits(w)} at {w.line} for {w.waits_for}" for w in hang.waiting if _HELD in w.waits_for]
    if held:  # the others wait for these
        mend = "whoever holds it has to deallocate before, or ask for less, so that there is enough for both"
        return [*lines, *(f"likely cause: {cause}: {mend}" for cause in held)]
    causes = [cause for waiting in hang.waiting if (cause := _cause(hang, waiting))]
    lines += [f"likely cause: {cause}" for cause in dict.fromkeys(causes)]
    return lines


def _who(waiting: Waiting) -> str:
    return warps_named(waiting.warps)


def _waits(waiting: Waiting) -> str:
    return "waits" if len(waiting.warps) == 1 else "wait"


def _deed(via: tuple[str, str]) -> str:
    how, line = via
    return {"arrives": f"arrive on at {line}", "commits": f"complete by its commit at {line}"}.get(
        how, f"fill by its copy at {line}"
    )


def _barrier(hang: Hang, waiting: Waiting) -> str:
    if waiting.key is None:
        return waiting.waits_for
    state = hang.states.get(waiting.key)
    name = _mbarrier(hang, waiting.key)
    if waiting.key[0] != waiting.cta:
        name += f" of CTA {waiting.key[0]}"
    if state is None:
        return name
    parts = [f"{state['pending']} of {state['expected']} arrivals missing"] if state["pending"] else []
    parts += [f"{state['tx']} bytes missing"] if state["tx"] > 0 else []
    parts += [f"{-state['tx']} bytes too many: no expect_tx has announced them"] if state["tx"] < 0 else []
    return f"{name} (phase {state['phase']}, {' and '.join(parts) or 'nothing missing'})"


def _mbarrier(hang: Hang, key: Key) -> str:
    place = with_variables(f"shared 0x{key[1]:x}", hang.log.decoded.shared)
    return f"the mbarrier at {place.removeprefix('shared ')}"


def _ring(hang: Hang) -> list[tuple[Waiting, tuple[str, str]]]:
    """A circle of waits: each with how the next one would end it. The shortest."""
    edges: dict[int, list[tuple[int, tuple[str, str]]]] = {}
    for index, waiting in enumerate(hang.waiting):
        if waiting.key is None:
            continue
        for cta, warp, how, line in hang.would.get(waiting.key, []):
            for other, candidate in enumerate(hang.waiting):
                if candidate.cta == cta and warp in candidate.warps:
                    edges.setdefault(index, []).append((other, (how, line)))
    best: list[tuple[Waiting, tuple[str, str]]] = []
    for start in edges:
        found = _back_to(start, edges)
        if found and (not best or len(found) < len(best)):
            best = [(hang.waiting[index], via) for index, via in found]
    return best


def _back_to(
    start: int, edges: dict[int, list[tuple[int, tuple[str, str]]]]
) -> list[tuple[int, tuple[str, str]]] | None:
    queue: list[tuple[int, list[tuple[int, tuple[str, str]]]]] = [(start, [])]
    seen: set[int] = set()
    while queue:
        at, path = queue.pop(0)
        for other, via in edges.get(at, []):
            step = [*path, (at, via)]
            if other == start:
                return step
            if other not in seen:
                seen.add(other)
                queue.append((other, step))
    return None


def _cause(hang: Hang, waiting: Waiting) -> str | None:
    """None where nothing odd is to be seen."""
    if waiting.key is None:
        others = "and the others have gone another way or wait elsewhere"
        return f"{waiting.waits_for}, {others}" if waiting.named >= 0 else None
    state = hang.states.get(waiting.key)
    if state is None:
        return f"{_mbarrier(hang, waiting.key)} no longer exists: it was invalidated while {_who(waiting)} needs it"
    history = [e for e in hang.log.of("barrier") if (e["cta"], e["offset"]) == waiting.key]
    for reason in (_bytes_cause, _parity_cause, _peer_cause, _count_cause):
        if said := reason(hang, waiting, state, history):
            return said
    return None


def _bytes_cause(hang: Hang, waiting: Waiting, state: Seen, history: Sequence[Seen]) -> str | None:
    """Bytes expected against bytes sent."""
    if state["pending"] or not state["tx"] or state["in_flight"]:
        return None
    now = [e for e in history if e["phase"] == state["phase"]]
    expected = sum(e["amount"] for e in now if e["what"] == "expect")
    sent = sum(e["amount"] for e in now if e["what"] == "bytes")
    where = next((hang.log.line(e["pc"]) for e in now if e["what"] == "expect"), "?")
    copies = sorted({hang.log.line(e["pc"]) for e in now if e["what"] == "bytes"})
    brought = f"the copies at {', '.join(copies)} have brought {sent}" if copies else "no copy has brought any"
    return f"expect_tx at {where} announces {expected} bytes; {brought}, and none is in flight"


def _parity_cause(hang: Hang, waiting: Waiting, state: Seen, history: Sequence[Seen]) -> str | None:
    """A wait for a phase that is over by parity: the barrier is in the phase after the one that has to come."""
    if state["pending"] != state["expected"] or state["tx"]:
        return None
    passed = [e for e in history if e["what"] == "pass" and e["warp"] in waiting.warps and e["by_cta"] == waiting.cta]
    phase = state["phase"]
    already = {e["amount"] for e in passed}
    asks = f"{_who(waiting)} {_waits(waiting)} with parity {waiting.parity} at {waiting.line}"
    last = f"phase {phase - 1}, of parity {(phase - 1) & 1}"
    if phase and waiting.key not in hang.would and not (passed and passed[-1]["phase"] >= phase):
        return f"{asks}, but {last}, is the last that completes, and it has not been waited for: the parity is wrong"
    if passed and waiting.parity not in already and waiting.key not in hang.would and phase:
        return f"{asks} for a phase that nobody completes any more; {last}, was the last"
    return None


def _peer_cause(hang: Hang, waiting: Waiting, state: Seen, history: Sequence[Seen]) -> str | None:
    """The same barrier of another CTA of the cluster got what this one lacks."""
    assert waiting.key is not None
    offset = waiting.key[1]
    for (cta, at), other in hang.states.items():
        if at != offset or cta == waiting.key[0] or other["phase"] <= state["phase"]:
            continue
        commits = {
            hang.log.line(e["pc"])
            for e in hang.log.of("barrier")
            if (e["cta"], e["offset"]) == (cta, at) and e["what"] == "arrive" and e["async"]
        }
        if commits:
            return (
                f"the commit at {', '.join(sorted(commits))} arrives on {_mbarrier(hang, waiting.key)} of CTA {cta} "
                f"and misses that of CTA {waiting.key[0]}: it needs .multicast::cluster and a mask with both"
            )
    return None


def _count_cause(hang: Hang, waiting: Waiting, state: Seen, history: Sequence[Seen]) -> str | None:
    """The count of mbarrier.init against those who arrive."""
    if not state["pending"]:
        return None
    assert waiting.key is not None
    now = [e for e in history if e["what"] == "arrive" and e["phase"] == state["phase"]]
    got = sum(e["amount"] for e in now)
    would = hang.would.get(waiting.key, [])
    made = hang.log.line(state["init_pc"])
    name = _mbarrier(hang, waiting.key)
    if state["tx"] < 0:
        return (
            f"{-state['tx']} bytes have come to {name} of CTA {waiting.key[0]} that nobody has announced there: its "
            "arrive.expect_tx is missing"
        )
    arrived = {(e["by_cta"], e["warp"], "arrives") for e in now}
    if got and arrived.issuperset(entry[:3] for entry in would):  # whoever would arrive has done so in this phase
        who = warps_named(e["warp"] for e in now if e["warp"] >= 0)
        where = ", ".join(sorted({hang.log.line(e["pc"]) for e in now}))
        return (
            f"{name} is initialised at {made} for {state['expected']} arrivals, and {got} come ({who} at {where}): the "
            "count is wrong, or somebody does not arrive"
        )
    if not got and not would:
        return (
            f"nobody arrives on {name} in phase {state['phase']}, and nobody would go on to: the arrival that "
            f"{_who(waiting)} {_waits(waiting)} for at {waiting.line} is missing"
        )
    return None
