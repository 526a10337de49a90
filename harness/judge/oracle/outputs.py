"""What a launch has left, as it is measured, and what outputs hold before one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.oracle.bf16 import from_bf16

# Quiet NaNs with a payload: arithmetic on a GPU yields 0x7fffffff, so these bits mean that nobody wrote here.
POISON: Final = 0x7FEDBEEF
POISON_BF16: Final = 0x7FED


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the device left: o [batch, t, heads, head_dim] float32, or bf16 bits; the rest [batch, t, heads] float32,
    None for what was not asked for."""

    o: NDArray[Any]
    row_max: NDArray[np.float32] | None
    row_sum: NDArray[np.float32] | None
    lse: NDArray[np.float32] | None
    report: Any  # of the device that launched; nothing here looks at it

    @property
    def o_values(self) -> NDArray[np.float64]:
        """o as numbers, whichever type it was stored in."""
        return from_bf16(self.o) if self.o.dtype == np.uint16 else self.o.astype(np.float64)
