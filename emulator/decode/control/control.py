"""Branches and exits (PTX ISA 9.7.12)."""

from __future__ import annotations

from collections.abc import Callable

from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import LabelRef


def branch(b: Builder, m: Modifiers) -> None:
    """bra to a label."""
    m.take("uni")
    m.done()
    label = b.instruction.operands[0]
    if not isinstance(label, LabelRef):
        b.fail("a label is expected")
    b.emit("bra", target=b.function.labels[label.name])


def branch_indexed(b: Builder, m: Modifiers) -> None:
    """brx.idx: bra to one of a list of labels."""
    m.need("idx")
    m.take("uni")
    m.done()
    index, table = b.operands(2)
    if not isinstance(table, LabelRef) or table.name not in b.function.branch_targets:
        b.fail("the label of a .branchtargets list is expected")
    targets = tuple(b.function.labels[name] for name in b.function.branch_targets[table.name])
    b.emit("brx", "u32", src=[b.src(index, "u32")], targets=targets, immediate=len(targets))


FORMS: dict[str, Callable[[Builder, Modifiers], None]] = {
    "bra": branch,
    "brx": branch_indexed,
}
