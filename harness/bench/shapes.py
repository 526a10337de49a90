"""The launch shapes of the sm_90a kernels: the mirror of kernel/sm90/launch.h, which tests/kernel compares it with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    rows: int
    keys: int
    row_groups: int
    column_groups: int
    boxes: int
    slots: int
    head_dim: int

    @property
    def threads(self) -> int:
        return 128 * (self.row_groups * self.column_groups + 1)

    @property
    def shared_bytes(self) -> int:
        exchange = 256 * (self.keys // 2 + 8) if self.column_groups == 2 else 0
        ring = self.slots * self.boxes * self.keys * 128
        return 1024 + self.rows * self.head_dim * 2 + ring + exchange + self.rows * 64 + 512


SHAPES = {
    64: Shape(128, 128, 2, 1, 1, 12, 64),
    128: Shape(128, 128, 2, 1, 1, 11, 128),
    256: Shape(128, 64, 2, 1, 2, 9, 256),
    512: Shape(64, 64, 1, 2, 2, 9, 512),
}
