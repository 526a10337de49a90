"""The launch shapes of the sm_90a kernels: the mirror of kernel/sm90/launch.h, which tests/kernel compares it with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fmha.harness.bench.problem import Problem
from fmha.harness.worker import choice
from fmha.harness.worker.params import SM90_KINDS, sm90_figures, sm90_shared_bytes


def combine_launch(p: Problem) -> tuple[str, tuple[int, int, int]]:
    """Entry and grid of the combine kernel."""
    suffix, grid = choice.combine_launch(choice.ARCH, p, p.partials)
    return f"fmha_combine_sm90{suffix}", grid


@dataclass(frozen=True)
class Shape:
    """FmhaSm90Launch, and what else a build may be told: clocks."""

    rows: int
    keys: int
    row_groups: int
    column_groups: int
    boxes: int
    slots: int
    head_dim: int
    overlap: bool = False
    registers: int = 232
    ctas_per_sm: int = 1
    kind: str = "whole"  # of SM90_KINDS
    clocks: bool = False

    @property
    def shares(self) -> bool:
        """Whether two row tiles in a cluster can share their loads."""
        return self.boxes % 2 == 0

    @property
    def walks(self) -> bool:
        """Whether a CTA may have several row tiles."""
        return self.kind == "dense" and self.column_groups == 1 and self.overlap

    @property
    def defines(self) -> tuple[str, ...]:
        """What overrides launch.h's own shape, to try another."""
        values: dict[str, int | str] = {
            "KEYS": self.keys,
            "ROW_GROUPS": self.row_groups,
            "COLUMN_GROUPS": self.column_groups,
            "BOXES": self.boxes,
            "SLOTS": self.slots,
            "OVERLAP": int(self.overlap),
            "REGISTERS": self.registers,
            "CTAS": self.ctas_per_sm,
        }
        if self.clocks:
            values |= {"CLOCKS": 1}
        own = (f"FMHA_HEAD_DIM={self.head_dim}", f"FMHA_KIND={SM90_KINDS.index(self.kind)}")
        return own + tuple(f"FMHA_SM90_{name}={value}" for name, value in values.items())

    def row_tiles(self, p: Problem) -> int:
        """Of a batch entry: as many as clusters of row tiles take."""
        return -(-p.t * p.heads // (self.rows * p.cluster[0])) * p.cluster[0]

    def grid(self, p: Problem) -> tuple[int, int, int]:
        """Of the forward kernel."""
        return (p.walkers, 1, 1) if p.walkers else (self.row_tiles(p), p.splits, p.batch)

    @property
    def threads(self) -> int:
        return 128 * (self.row_groups * self.column_groups + 1)

    @property
    def shared_bytes(self) -> int:
        return sm90_shared_bytes(self.head_dim, self.rows, self.keys, self.boxes, self.slots)


def _launched(head_dim: int, rows: int = 0, **more: Any) -> Shape:
    """What the harness launches, with what else the kernel is compiled for."""
    rows, keys, consumers, boxes, slots = sm90_figures(head_dim, rows)
    columns = 2 if head_dim == 512 else 1
    return Shape(rows, keys, consumers // columns, columns, boxes, slots, head_dim, **more)


SHAPES = {
    64: _launched(64, overlap=True, registers=208, ctas_per_sm=2),
    128: _launched(128, overlap=True, registers=224),
    256: _launched(256, overlap=True, registers=224),
    512: _launched(512, registers=224),
}
# By head_dim and FMHA_ROWS: what fmha.harness.worker.choice has beside them.
OTHERS = {
    (64, 64): _launched(64, 64, registers=168, ctas_per_sm=2),
    (64, 192): _launched(64, 192, overlap=True, registers=160),
    (128, 64): _launched(128, 64, registers=168, ctas_per_sm=2),
    (256, 64): _launched(256, 64, registers=208, ctas_per_sm=2),
    (256, 128): _launched(256, 128, overlap=True, registers=224),
}


def shape_of(head_dim: int, rows: int = 0, kind: str = "whole") -> Shape:
    """fmha_sm90_launch: the head_dim's own shape, or that of `rows`."""
    return replace(OTHERS[head_dim, rows] if rows else SHAPES[head_dim], kind=kind)
