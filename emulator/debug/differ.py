"""The first instruction whose value differs between two launches: of other schedules, variants or commits.

A warp's own executions of an instruction come in the same order under every schedule, so its n-th in one launch is
compared with its n-th in the other. What only says how long somebody waited is left out: polls and clocks. Programs
that differ are compared where their instructions are alike, as `diff` aligns lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.debug.observe import AFTER, Log, Seen, register_of
from fmha.emulator.device import Device, Module
from fmha.emulator.ptx import Instruction

_WAITS: Final = ("mbarrier.test_wait", "mbarrier.try_wait", "nanosleep", "clusterlaunchcontrol")
_REGISTER: Final = re.compile(r"%[\w$]+")
_CLOCKS: Final = ("%clock", "%globaltimer", "%smid")


class Catcher:
    """Keeps the registers that one execution of the launch number `launch` wrote."""

    def __init__(self, launch: int, pc: int, event: int) -> None:
        self._launch, self._pc, self._event = launch, pc, event
        self._count = 0
        self.values: list[tuple[str, NDArray[Any]]] = []  # by destination: its name, 32 lanes

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        self._count += 1
        if self._count - 1 != self._launch:
            yield
            return
        decoded = device.decoded(module, entry)

        def tell(kind: str, event: Seen) -> None:
            if kind == "done" and event["event"] == self._event:
                self.values = registers_after(observer, decoded.program, event)

        observer = _core.Observer(tell)
        observer.stop_at(bytes(AFTER if pc == self._pc else 0 for pc in range(len(decoded.sources))))
        with device.observed(observer):
            yield


def registers_after(observer: _core.Observer, program: _core.Program, event: Seen) -> list[tuple[str, NDArray[Any]]]:
    """The destinations of the instruction that a warp has just executed, 32 lanes each; of a predicate the mask."""
    record = _core.record_of(program, event["pc"])
    found = []
    for number, unit in enumerate(record["dst"]):
        if unit < 0:
            continue
        values = register_of(observer, event["rank"], event["warp"], unit, record["width_dst"])
        found.append((f"result {number}", values))
    return found


@dataclass(frozen=True, slots=True)
class ExecutionDifference:
    """The n-th execution of an instruction by a warp of a CTA, in the first launch and in the second."""

    launch: int
    cta: int
    warp: int
    pc_a: int
    pc_b: int
    event_a: int
    event_b: int
    occurrence: int
    others: int  # executions that differ as well
    compared: int


def first_difference(first: Sequence[Log], second: Sequence[Log]) -> tuple[ExecutionDifference | None, int]:
    """The first in the order of the first launch, and how many executions were compared. Both are logs of a TRACE."""
    compared = 0
    for number, (a, b) in enumerate(zip(first, second, strict=False)):
        found, count = _of_launch(number, a, b)
        compared += count
        if found:
            return found, compared
    return None, compared


def _of_launch(number: int, a: Log, b: Log) -> tuple[ExecutionDifference | None, int]:
    same = aligned(a.sources, b.sources)  # by pc of b, the pc of a, or -1
    left, right = _telling(a), _telling(b)
    right = right[same[right["pc"]] >= 0]
    keys_a = _numbered(left, left["pc"].astype(np.int64))
    keys_b = _numbered(right, same[right["pc"]])
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    differ = left["value"][at_a] != right["value"][at_b]
    if not differ.any():
        return None, len(at_a)
    events = left["event"][at_a]
    at = int(np.flatnonzero(differ)[np.argmin(events[differ])])
    x, y = left[at_a[at]], right[at_b[at]]
    return (
        ExecutionDifference(
            number,
            int(x["cta"]),
            int(x["warp"]),
            int(x["pc"]),
            int(y["pc"]),
            int(x["event"]),
            int(y["event"]),
            int(keys_a[at_a[at]]["n"]),
            int(differ.sum()) - 1,
            len(at_a),
        ),
        len(at_a),
    )


def _telling(run: Log) -> NDArray[Any]:
    """The executions whose value says something."""
    tells = np.array([_tells(i) for i in run.sources], bool)
    telling: NDArray[Any] = run.executed[tells[run.executed["pc"]]]
    return telling


def _tells(i: Instruction) -> bool:
    if not i.operands or i.mnemonic.startswith(_WAITS):
        return False
    return not any(name in i.text for name in _CLOCKS)


def _numbered(executed: NDArray[Any], pc: NDArray[Any]) -> NDArray[Any]:
    """A key for each execution: CTA, warp, instruction, lanes, and how often they had executed it before."""
    keys = np.zeros(len(executed), [("cta", "<u4"), ("warp", "<u4"), ("pc", "<i8"), ("mask", "<u4"), ("n", "<u4")])
    for name in ("cta", "warp", "mask"):
        keys[name] = executed[name]
    keys["pc"] = pc
    order = np.lexsort((executed["event"], keys["mask"], keys["pc"], keys["warp"], keys["cta"]))
    ordered = keys[order]
    new = np.ones(len(ordered), bool)
    new[1:] = ordered[["cta", "warp", "pc", "mask"]][1:] != ordered[["cta", "warp", "pc", "mask"]][:-1]
    starts = np.flatnonzero(new)
    count = np.arange(len(ordered)) - np.repeat(starts, np.diff([*starts, len(ordered)]))
    keys["n"][order] = count
    return keys


def aligned(a: Sequence[Instruction], b: Sequence[Instruction]) -> NDArray[np.int64]:
    """By pc of `b`, the pc of the instruction of `a` that it is, or -1: alike but for the names of registers; between
    those, of one mnemonic."""
    found = np.full(len(b), -1, np.int64)
    at_a = at_b = 0
    for block in _blocks([_shape(i) for i in a], [_shape(i) for i in b]):
        between = _blocks([i.mnemonic for i in a[at_a : block.a]], [i.mnemonic for i in b[at_b : block.b]])
        for inner in between:
            found[at_b + inner.b : at_b + inner.b + inner.size] = np.arange(at_a + inner.a, at_a + inner.a + inner.size)
        found[block.b : block.b + block.size] = np.arange(block.a, block.a + block.size)
        at_a, at_b = block.a + block.size, block.b + block.size
    return found


def _shape(i: Instruction) -> str:
    return _REGISTER.sub("%", i.text)


def _blocks(a: Sequence[str], b: Sequence[str]) -> Sequence[Match]:
    """Runs that are alike, then an empty one at the end."""
    return SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()


def lanes_that_differ(
    a: Sequence[tuple[str, NDArray[Any]]], b: Sequence[tuple[str, NDArray[Any]]]
) -> Iterator[tuple[str, int, int, int]]:
    """(destination, lane, its bits in the first launch, in the second)."""
    for (name, x), (_, y) in zip(a, b, strict=False):
        for lane in np.flatnonzero(x != y).tolist():
            yield name, lane, int(x[lane]), int(y[lane])
