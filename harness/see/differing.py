"""`fmha diff-run`: two launches by what they are of, and the first instruction whose value differs, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.debug.differ import Catcher, Difference, first_difference, lanes_that_differ
from fmha.emulator.debug.observe import TRACE, Log, Recorder, place
from fmha.harness.config import MATRIX_FILE
from fmha.harness.errors import UserError
from fmha.harness.git import resolve_commit
from fmha.harness.see.subject import Subject, subject_of
from fmha.harness.stages.laid_out import laid_out

MOST_LANES = 4


@dataclass(frozen=True, slots=True)
class Side:
    """`NAME[@COMMIT][+SCHEDULE]`: a configuration, or a file of PTX. What is left out is empty."""

    text: str
    name: str
    commit: str
    schedule: str


def parse_side(text: str) -> Side:
    rest, _, schedule = text.partition("+")
    name, _, commit = rest.partition("@")
    if not name:
        raise UserError(f"{text!r} names nothing", next_step="write NAME, NAME@COMMIT, NAME+SCHEDULE or both")
    return Side(text, name, commit, schedule)


def tree_of(root: Path, commit: str) -> Path:
    """The kernels and matrix.yaml of a commit, in a folder of their own; of the working tree without one."""
    if not commit:
        return root
    sha = resolve_commit(root, commit)
    if sha is None:
        raise UserError(f"no commit is named {commit!r}", where=str(root))
    return laid_out(root, sha, "kernels", ("kernel", MATRIX_FILE))


@dataclass(frozen=True, slots=True)
class Compared:
    lines: tuple[str, ...]
    first: Difference | None  # None: no value differs


def compare(root: Path, a: Side, b: Side, launch: Path | None) -> Compared:
    """Raises UserError for what is no launch."""
    if launch is not None and (a.commit or b.commit):
        raise UserError("a file of PTX is of no commit", next_step="leave @COMMIT out, or name a configuration")
    trees = [(tree_of(root, side.commit), side) for side in (a, b)]
    subjects = [subject_of(tree, side.name, launch, side.schedule) for tree, side in trees]
    traces = []
    for subject in subjects:
        recorder = Recorder(TRACE)
        subject.run(recorder)
        traces.append(recorder.logs)
    found, compared = first_difference(*traces)
    if found is None:
        return Compared((f"no value differs: {compared} executions compared",), None)
    caught = [
        _caught(subject, found.launch, pc, event)
        for subject, pc, event in zip(subjects, (found.pc_a, found.pc_b), (found.event_a, found.event_b), strict=True)
    ]
    return Compared(tuple(_told(found, traces, caught, a, b)), found)


def _caught(subject: Subject, launch: int, pc: int, event: int) -> list[tuple[str, NDArray[Any]]]:
    catcher = Catcher(launch, pc, event)
    subject.run(catcher)
    return catcher.values


def _told(
    found: Difference,
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
