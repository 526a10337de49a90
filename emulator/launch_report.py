"""What a launch has to say: findings with their places, and counters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fmha.emulator import _core
from fmha.emulator.executed_lines import chain_of
from fmha.emulator.names import brief, in_text, with_variables
from fmha.emulator.ptx import Instruction
from fmha.emulator.rules import RULES
from fmha.emulator.timing.launch_time import LaunchTiming

_MOST_TEXT = 160  # characters of an instruction
_HEADERS = (
    "both lines are of Cooperative Groups, which lets votes and shuffles order its lanes: they do on every GPU, "
    "and by the ISA they order no memory"
)
_OF_A_WAIT = "the cause may be what mbarrier-phase-aliasing says of the wait"
_OF_AN_OLD_TOKEN = "a wait with an old token, which returns at once (see mbarrier-phase-aliasing),"
_OF_BYTES = "the mbarrier that this copy reports to completed without it: see mbarrier-early-completion"
# Where the toolkit and the libraries that kernels are written with keep what they inline.
_INCLUDED = re.compile(
    r"^.*/include/(?:cccl/)?(?=(?:cub|thrust|cuda|nv|cutlass|cute|cooperative_groups|crt)/)|^.*/targets/[^/]+/include/"
)
_LIBRARY = re.compile(rf"{_INCLUDED.pattern}|^/usr/(?:include|lib)/|/(?:site|dist)-packages/|/triton/language/")
_COOPERATIVE_GROUPS = re.compile(r"/include/(?:cccl/)?cooperative_groups(?:/|\.h)")


def _plain_path(line: str) -> str:
    """FILE:LINE of a library's header as one includes it."""
    return _INCLUDED.sub("", line)


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction: its PTX line and text, and the CUDA line it was compiled from where the PTX says so."""

    ptx_line: int
    ptx_text: str
    source: str | None  # "file:line"
    callers: tuple[str, ...] = ()  # where the function of `source` was inlined, where that one was, and so on outwards

    @property
    def author(self) -> str | None:
        """The line of the kernel's author: the outermost that is not of a library, or of all where none is not."""
        lines = [self.source, *self.callers] if self.source else []
        own = [line for line in lines if not _LIBRARY.search(line)] or lines
        return own[-1] if own else None

    @property
    def of_cooperative_groups(self) -> bool:
        """Whether the instruction comes from the header of Cooperative Groups."""
        return self.source is not None and bool(_COOPERATIVE_GROUPS.search(self.source))

    @property
    def chain(self) -> str:
        """The author's line, then that of the function which holds the instruction: "a.cu:40, in common.cuh:17"."""
        author = self.author
        if author is None or self.source is None:
            return ""
        return author if author == self.source else f"{_plain_path(author)}, in {_plain_path(self.source)}"

    def __str__(self) -> str:
        where = f" ({self.chain})" if self.chain else ""
        return f"PTX line {self.ptx_line}{where}: {brief(in_text(self.ptx_text), _MOST_TEXT)}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One hazard or fault. docs/reference/hazards.md says of each rule what it means and what to do."""

    rule: str
    severity: Literal["error", "warning"]
    message: str
    place: Place | None  # the access or instruction at fault
    other: Place | None  # the earlier access it conflicts with
    cta: int  # linear index in the grid
    warp: int | None
    count: int  # times seen
    details: tuple[
        tuple[Place | None, str], ...
    ]  # of a deadlock: a line for each waiting warp; or of a third instruction
    waived: str | None = None  # the reason of the waiver that accepts it

    @property
    def remedy(self) -> str:
        """What to do, by the instructions at hand; "" for a rule that fmha.emulator.rules does not know."""
        if self.rule not in RULES:
            return ""
        if self.of_header:
            return "Nothing, in a kernel that calls it."
        places = [self.place, self.other, *(place for place, _ in self.details)]
        at_hand = "\n".join([self.message, *(p.ptx_text for p in places if p), *(text for _, text in self.details)])
        return RULES[self.rule].remedy_at(at_hand)

    @property
    def of_header(self) -> bool:
        """Whether it is of the lanes of one warp within Cooperative Groups: the header's, whoever includes it."""
        places = (self.place, self.other)
        return self.rule in ("lane-alone", "lane-race") and all(p and p.of_cooperative_groups for p in places)

    @property
    def cause(self) -> tuple[object, ...]:
        """Findings of one launch that have this in common have one cause: the same lines break the same rule."""
        if self.of_header:
            return ("Cooperative Groups",)

        def at(place: Place | None) -> object:
            return place and (place.author or place)

        if self.place is None and self.other is None:
            return self.rule, self.message  # of work of the host, which has no lines
        return self.rule, at(self.place), at(self.other)

    def __str__(self) -> str:
        lines = [f"{'waived' if self.waived else self.severity}: {self.rule}: {self.message}"]
        if self.place is not None:
            who = "" if self.warp is None else f", warp {self.warp}"
            lines.append(f"  at {self.place} [CTA {self.cta}{who}]")
        if self.other is not None:
            lines.append(f"  conflicts with {self.other}")
        for place, text in self.details:
            lines.append(f"  {text}" + (f" at {place}" if place else ""))
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        if self.waived:
            lines.append(f"  waived: {self.waived}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Waiver:
    """Accepts findings of one rule, for a reason. They stay in the report, marked, and do not fail it.

    `at`: a regex that the place of the finding must contain, as `str(place)` writes it: PTX line and text, CUDA file
    and line. Without one, the rule is waived everywhere.
    """

    rule: str
    reason: str
    at: str = ""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"waiver of {self.rule!r}, which is no rule")
        if not self.reason.strip():
            raise ValueError(f"waiver of {self.rule} without a reason")
        re.compile(self.at)

    def covers(self, finding: Finding) -> bool:
        """Whether the finding is of its rule and at its place."""
        if finding.rule != self.rule:
            return False
        return re.search(self.at, str(finding.place) if finding.place else "") is not None


def apply_waivers(findings: Sequence[Finding], waivers: Sequence[Waiver]) -> tuple[Finding, ...]:
    """The same findings, with the reason of the first waiver that covers one."""

    def judged(finding: Finding) -> Finding:
        reason = next((w.reason for w in waivers if w.covers(finding)), None)
        return replace(finding, waived=reason) if reason else finding

    return tuple(judged(f) for f in findings)


@dataclass(frozen=True, slots=True)
class Report:
    """What one launch has to say."""

    findings: tuple[Finding, ...]
    # warp_instructions, mma, bulk_loads, bulk_load_bytes, async_operations, seconds, ...; product_seconds of these
    # went into the multiplications of tcgen05.mma and wgmma. thread_seconds is the processor time of the thread that
    # launched.
    stats: dict[str, float]
    timing: LaunchTiming | None = None  # of a device that has one
    printed: tuple[tuple[bool, bytes], ...] = ()  # by printf or a failed assertion, which is True: to standard error

    @property
    def ok(self) -> bool:
        """No finding of severity error that is not waived."""
        return all(f.severity != "error" or f.waived for f in self.findings)


def causes(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Those that have one cause together, in the order of the first of each."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.cause, []).append(finding)
    return list(groups.values())


def place_of(sources: Sequence[Instruction], pc: int) -> Place | None:
    """Of a decoded instruction where it stands and what it was inlined into; None where there is none."""
    if not 0 <= pc < len(sources):
        return None
    instruction = sources[pc]
    location = instruction.location
    if location is None:
        return Place(instruction.line, instruction.text, None)
    callers = tuple(f"{outer.file}:{outer.line}" for outer in chain_of(location.inlined_at))
    return Place(instruction.line, instruction.text, f"{location.file}:{location.line}", callers)


def findings_of(
    sources: Sequence[Instruction],
    told: Sequence[_core.Finding],
    others: Mapping[int, Sequence[Instruction]] | None = None,
    cooperative: bool = True,
    shared: Sequence[tuple[str, int, int]] = (),
    waivers: Sequence[Waiver] = (),
) -> tuple[Finding, ...]:
    """`others` are the sources of earlier launches by number, which a finding's other place may be of; `shared` are the
    kernel's variables in shared memory, by their places: a message names them. What `waivers` accept is marked, and is
    not told as the cause of anything else."""

    def other(f: _core.Finding) -> Place | None:
        return place_of((others or {}).get(f.other_launch, ()) if f.other_launch else sources, f.other_pc)

    def message(f: _core.Finding, place: Place | None) -> str:
        if f.rule == "trap" and not cooperative and place and place.of_cooperative_groups:
            return "grid.sync() in a launch that is not cooperative: it traps"
        return with_variables(in_text(f.message), shared)

    def found(f: _core.Finding) -> Finding:
        place = place_of(sources, f.pc)
        return Finding(
            rule=f.rule,
            severity=f.severity,
            message=message(f, place),
            place=place,
            other=other(f),
            cta=f.cta,
            warp=f.warp if f.warp >= 0 else None,
            count=f.count,
            details=tuple((place_of(sources, pc), with_variables(text, shared)) for pc, text in f.details),
        )

    each = [_of_header(finding) if finding.of_header else finding for finding in map(found, told)]
    return causes_first(apply_waivers(each, waivers))


def causes_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of one launch: waits for a wrong phase before the races that they may have let happen. Those races, and
    copies that an mbarrier did not wait for and that are in flight at the exit, refer to what has led to them."""
    waits = [f for f in findings if f.rule == "mbarrier-phase-aliasing" and not f.waived]
    early = [f for f in findings if f.rule == "mbarrier-early-completion" and not f.waived]
    first = next((n for n, f in enumerate(findings) if _may_follow_a_wait(f)), len(findings))
    rest = findings[first:]
    ordered = [*findings[:first], *sorted(rest, key=lambda f: f not in waits)]
    return tuple(_referring(finding, waits, early) for finding in ordered)


def _may_follow_a_wait(finding: Finding) -> bool:
    """Whether it is a race that a wait at an mbarrier could have kept from happening."""
    return finding.rule == "race" and "another cluster or CTA" not in finding.message


def _referring(finding: Finding, waits: Sequence[Finding], early: Sequence[Finding]) -> Finding:
    def lies_between(wait: Finding) -> bool:
        lines = [place.ptx_line for place in (finding.place, wait.place, finding.other) if place]
        return lines in (sorted(lines), sorted(lines, reverse=True))

    if waits and _may_follow_a_wait(finding):
        # Memory that an mbarrier guards is shared: of other races, one that no wait lies between has nothing of it.
        wait = next(filter(lies_between, waits), waits[0] if "shared" in finding.message else None)
        if wait is None:
            return finding
        text = _OF_AN_OLD_TOKEN if "token" in wait.message else _OF_A_WAIT
        return replace(finding, details=(*finding.details, (wait.place, text)))
    left = finding.rule == "exit-with-work-in-flight" and finding.place is not None
    if left and any(place == finding.place for f in early for place, _ in f.details):
        return replace(finding, details=(*finding.details, (None, _OF_BYTES)))
    return finding


def _of_header(finding: Finding) -> Finding:
    return replace(finding, severity="warning", message=f"{finding.message}; {_HEADERS}")
