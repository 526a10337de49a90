"""`fmha diff-run`: two launches by what they are of, and the first instruction whose value differs, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.debug.differ import Catcher, ExecutionDifference, first_difference, lanes_that_differ
from fmha.emulator.debug.observe import TRACE, Log, Recorder, place
from fmha.harness import config
from fmha.harness.errors import UserError
from fmha.harness.git import resolve_commit
from fmha.harness.see.configurations import is_ours
from fmha.harness.see.launch_subject import LaunchSubject
from fmha.harness.see.named import kind_of, named
from fmha.harness.stages.laid_out import laid_out

MOST_LANES = 4
_SCHEDULE = re.compile(r"[a-z]+(:\d+)?")


@dataclass(frozen=True, slots=True)
class Side:
    """`NAME[@COMMIT][+SCHEDULE]`: whatever names a launch, in one word. What is left out is empty."""

    text: str
    name: str
    commit: str
    schedule: str


def parse_side(text: str) -> Side:
    """NAME, NAME@COMMIT, NAME+SCHEDULE or both. UserError for no name."""
    rest, plus, schedule = text.rpartition("+")
    if not plus or not _SCHEDULE.fullmatch(schedule):  # a program's arguments may have a `+`
        rest, schedule = text, ""
    name, _, commit = rest.partition("@")
    if not name:
        raise UserError(f"{text!r} names nothing", next_step="write NAME, NAME@COMMIT, NAME+SCHEDULE or both")
    return Side(text, name, commit, schedule)


def tree_of(root: Path, commit: str, name: str) -> Path:
    """What a configuration is built from at a commit, in a folder of its own; the working tree without a commit. Of
    our kernels these are the kernels and matrix.yaml; an adapter may read any file."""
    if not commit:
        return root
    sha = resolve_commit(root, commit)
    if sha is None:
        raise UserError(f"no commit is named {commit!r}", where=str(root))
    if is_ours(name) and not config.load(root, own=False).places:
        return laid_out(root, sha, "kernels", ("kernel", config.MATRIX_FILE))
    return laid_out(root, sha, "tree")


@dataclass(frozen=True, slots=True)
class ComparedLaunches:
    """What two launches differ in, first."""

    lines: tuple[str, ...]
    first: ExecutionDifference | None  # None: no value differs


def compare(root: Path, a: Side, b: Side, launch: str | None, arch: str | None = None) -> ComparedLaunches:
    """Raises UserError for what is no launch."""
    subjects = [_of(root, side, launch, arch) for side in (a, b)]
    traces = []
    for subject in subjects:
        recorder = Recorder(TRACE)
        subject.launches(recorder)
        traces.append(recorder.logs)
    found, compared = first_difference(*traces)
    if found is None:
        return ComparedLaunches((f"no value differs: {compared} executions compared",), None)
    caught = [
        _caught(subject, found.launch, pc, event)
        for subject, pc, event in zip(subjects, (found.pc_a, found.pc_b), (found.event_a, found.event_b), strict=True)
    ]
    return ComparedLaunches(tuple(_told(found, traces, caught, a, b)), found)


def _of(root: Path, side: Side, launch: str | None, arch: str | None) -> LaunchSubject:
    if side.commit and kind_of(side.name, launch) != "configuration":
        step = "leave @COMMIT out, or name a configuration"
        raise UserError(f"a {kind_of(side.name, launch)} is of no commit", where=side.text, next_step=step)
    tree = tree_of(root, side.commit, side.name)
    return named((side.name,), launch, schedule=side.schedule or None, arch=arch, root=tree)


def _caught(subject: LaunchSubject, launch: int, pc: int, event: int) -> list[tuple[str, NDArray[Any]]]:
    catcher = Catcher(launch, pc, event)
    subject.launches(catcher)
    return catcher.values


def _told(
    found: ExecutionDifference,
    traces: Sequence[Sequence[Log]],
    caught: Sequence[list[tuple[str, NDArray[Any]]]],
    a: Side,
    b: Side,
) -> Iterator[str]:
    sources = traces[0][found.launch].sources
    instruction = sources[found.pc_a]
    yield f"the first value that differs: CTA {found.cta}, warp {found.warp}, at {place(sources, found.pc_a)}"
    yield f"  PTX line {instruction.line}: {instruction.text}"
    times = "the first time" if found.occurrence == 0 else f"execution {found.occurrence + 1}"
    events = f"{found.event_a} events of {a.text} and {found.event_b} of {b.text}"
    yield f"  {times} that the warp executes it, after {events}"
    differing = list(lanes_that_differ(*caught))
    for name, lane, x, y in differing[:MOST_LANES]:
        yield f"  lane {lane}, {name}: {value(x)} in {a.text}, {value(y)} in {b.text}"
    if len(differing) > MOST_LANES:
        yield f"  and {len(differing) - MOST_LANES} more lanes of its results"
    yield f"  {_origin(instruction.mnemonic)}"
    yield f"  {found.others} later executions differ as well, of {found.compared} compared"


def value(bits: int) -> str:
    """Bits, and the f32 that they are."""
    if bits >> 32:
        return f"0x{bits:016x}"
    number = float(np.array([bits], np.uint32).view(np.float32)[0])
    return f"0x{bits:08x} ({number:g})"


def _origin(mnemonic: str) -> str:
    """Where a value that differs first comes from: what the instruction reads besides registers."""
    reasons: tuple[tuple[str, str], ...] = (
        (
            "tcgen05.ld",
            "it reads tensor memory: the product, or the store, that filled it differs or has not been waited for",
        ),
        ("ld.shared", "it reads shared memory: who wrote it wrote something else, or has not been waited for"),
        ("ld", "it reads memory that another thread or an earlier launch wrote otherwise, or has not been waited for"),
        ("atom", "it is an atomic operation: its old value depends on who came first"),
        ("shfl", "it reads another lane's register"),
    )
    for prefix, said in reasons:
        if mnemonic.startswith(prefix):
            return said
    return "it computes: its inputs were no results that were compared, or the programs differ here"
