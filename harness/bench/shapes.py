"""The launch shapes of the sm_90a kernels: the mirror of kernel/sm90/launch.h, which tests/kernel compares it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.bench.problem import Problem

COMBINE_THREADS, COMBINE_ROWS = 128, 4


def combine_grid(p: Problem) -> tuple[int, int, int]:
    return -(-p.t * p.heads // COMBINE_ROWS), 1, p.batch


Merge = Literal["combine", "last", "together"]


@dataclass(frozen=True)
class Shape:
    """FmhaSm90Launch, and what else a build may be told: who merges splits, early loads, clocks, parts left out."""

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
    merge: Merge = "combine"
    early: bool = False
    clocks: bool = False
    left_out: str = ""  # "exponentials" or "output_product": what remains can be timed, and is wrong

    @property
    def shares(self) -> bool:
        """Whether two row tiles in a cluster can share their loads."""
        return self.boxes % 2 == 0 and self.column_groups == 1

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
        values |= {"MERGE": f"kFmhaSm90{self.merge.capitalize()}", "EARLY": str(self.early).lower()}
        if self.clocks:
            values |= {"CLOCKS": 1}
        if self.left_out:
            values |= {"LEFT_OUT": "kFmhaSm90" + self.left_out.title().replace("_", "")}
        return (f"FMHA_HEAD_DIM={self.head_dim}", *(f"FMHA_SM90_{name}={value}" for name, value in values.items()))

    def combines(self, p: Problem) -> bool:
        """Whether the combine kernel merges the partial results of `p`."""
        return p.partials > 1 and (self.merge == "combine" or p.cluster[1] > 1)

    def row_tiles(self, p: Problem) -> int:
        """grid.x: as many as clusters of row tiles take."""
        return -(-p.t * p.heads // (self.rows * p.cluster[0])) * p.cluster[0]

    @property
    def threads(self) -> int:
        return 128 * (self.row_groups * self.column_groups + 1)

    @property
    def shared_bytes(self) -> int:
        exchange = 128 * self.keys + 256 * 8 if self.column_groups == 2 else 0
        ring = self.slots * self.boxes * self.keys * 128
        return 1024 + self.rows * self.head_dim * 2 + ring + exchange + self.rows * 64 + 512


SHAPES = {
    64: Shape(128, 128, 2, 1, 1, 12, 64, overlap=True),
    128: Shape(128, 128, 2, 1, 2, 5, 128, overlap=True),
    256: Shape(128, 64, 2, 1, 2, 9, 256, overlap=True),
    512: Shape(64, 64, 1, 2, 2, 9, 512),
}
# By head_dim and FMHA_ROWS: what harness.worker.choice has beside them.
OTHERS = {
    (64, 64): Shape(64, 64, 1, 1, 1, 8, 64, registers=168, ctas_per_sm=2),
    (64, 192): Shape(192, 128, 3, 1, 1, 11, 64, overlap=True, registers=160),
    (128, 64): Shape(64, 64, 1, 1, 2, 5, 128, registers=168, ctas_per_sm=2),
}


def shape_of(head_dim: int, rows: int = 0) -> Shape:
    """fmha_sm90_launch: the head_dim's own shape, or that of `rows`."""
    return OTHERS[head_dim, rows] if rows else SHAPES[head_dim]
