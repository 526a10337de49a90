"""The launch shapes of the sm_90a kernels: those of kernel/sm90/shapes.h, and others to try."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.kernel_side import choice
from fmha.harness.kernel_side.params import SM90_KERNELS, SM90_KINDS, SM90_SHAPES, Sm90Launch


def combine_launch(p: Problem) -> tuple[str, tuple[int, int, int]]:
    """Entry and grid of the combine kernel."""
    suffix, grid = choice.combine_launch(choice.ARCH, p, p.splits)
    return f"fmha_combine_sm90{suffix}", grid


@dataclass(frozen=True)
class BuildShape:
    """A row of kernel/sm90/shapes.h, or another that is tried, and what else a build is told: its kind, clocks."""

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
    def launch(self) -> Sm90Launch:
        """The launch shape that shapes.h would have for it."""
        return Sm90Launch(
            rows=self.rows,
            keys=self.keys,
            row_groups=self.row_groups,
            column_groups=self.column_groups,
            boxes_per_unit=self.boxes,
            slots=self.slots,
            dense_slots=self.slots,
            overlap=self.overlap,
            dense_overlap=self.overlap,
            registers=self.registers,
            heads_registers=self.registers,
            ctas_per_sm=self.ctas_per_sm,
        )

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
        """Of a batch entry."""
        return -(-p.t * p.heads // self.rows)

    def grid(self, p: Problem) -> tuple[int, int, int]:
        """Of the forward kernel."""
        return (p.walkers, 1, 1) if p.walkers else (self.row_tiles(p), p.splits, p.batch)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.launch.threads

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a CTA, bytes."""
        return self.launch.shared_bytes(self.head_dim, self.kind)


def shape_of(head_dim: int, rows: int = 0, kind: str = "whole") -> BuildShape:
    """What the harness launches: the head_dim's own shape, or that of `rows`."""
    launch = SM90_SHAPES[head_dim, rows]
    found = asdict(launch) | {"slots": launch.slots_of(kind), "registers": launch.registers_of(kind)}
    found["overlap"] = launch.overlap_of(kind)
    del found["dense_slots"], found["dense_overlap"], found["heads_registers"]
    return BuildShape(boxes=found.pop("boxes_per_unit"), head_dim=head_dim, kind=kind, **found)


SHAPES = {head_dim: shape_of(head_dim) for head_dim, rows in SM90_KERNELS if not rows}
# By head_dim and FMHA_ROWS: what fmha.harness.kernel_side.choice has beside them.
OTHERS = {kernel: shape_of(*kernel) for kernel in SM90_KERNELS if kernel[1]}
