"""When sm_100a's kernel for many rows is the faster one: by sizes alone, from what each of the two takes.

The cycles are those of the timing model on a B200, whose error docs/understand/blackwell.md tells: nobody has measured
either kernel. `python -m tools.prefill_choice` models both over a grid of sizes and says where this is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

MULTIPROCESSORS: Final = 148  # of a B200; a multiprocessor holds one CTA of either kernel
ROWS: Final = 256  # of a row tile
KEYS: Final = 128  # of a tile, for both kernels
# How busy the tensor pipe is where power begins to bound the clock: the cube of power_clock_mhz over clock_mhz.
FULL_CLOCK: Final = 0.275


class Sizes(Protocol):
    """Of planes: see fmha.harness.kernel_side.choice."""

    @property
    def head_dim(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def t(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def s_k(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a kernel, in cycles of the nominal clock."""

    rows: int  # of a row tile
    start: int  # of a CTA
    row_tile: int  # of each beside its keys
    masked: int  # of one under a mask
    keys: int  # of a tile of keys
    tensor: int  # of the tensor pipe, for a tile of keys
    late: float  # under a mask, the part of the longest row tile by which the last CTA ends late

    def time(self, sizes: Sizes, windowed: bool) -> float:
        """Of a launch. A window is taken for a causal one, whose row tiles see fewer keys the earlier they are."""
        rows, tiles = sizes.t * sizes.heads, []  # of keys, of each row tile of a plane
        for end in range(self.rows, rows + self.rows, self.rows):
            hidden = sizes.t - -(-min(end, rows) // sizes.heads) if windowed else 0
            tiles.append(-(-max(sizes.s_k - hidden, 1) // KEYS))
        of_each = self.row_tile + self.masked * windowed
        turns = len(tiles) * sizes.batch / MULTIPROCESSORS
        longest, shortest = of_each + max(tiles) * self.keys, of_each + min(tiles) * self.keys
        mean = (len(tiles) * of_each + sum(tiles) * self.keys) * sizes.batch / MULTIPROCESSORS
        most: float = math.ceil(turns) * longest
        if windowed:
            most = min(most, mean + (math.ceil(turns) - turns) * shortest + self.late * longest)
        cycles = self.start + max(longest, most)
        busy = sum(tiles) * sizes.batch * self.tensor / (MULTIPROCESSORS * cycles)
        return cycles * math.cbrt(max(1.0, busy / FULL_CLOCK))


SIX_WARPS: Final = {
    64: Pace(128, 0, 4600, 1500, 2020, 512, 0.6),
    128: Pace(128, 0, 5800, 1500, 2020, 1024, 0.6),
}
MANY_ROWS: Final = {
    64: Pace(ROWS, 5000, 1600, 2400, 2116, 1024, 0.0),
    128: Pace(ROWS, 6000, 2400, 3200, 2105, 2048, 0.0),
}


def pays(sizes: Sizes, windowed: bool) -> bool:
    """Whether the kernel for many rows takes less time than the six-warp kernel, without splits."""
    head_dim = sizes.head_dim
    if head_dim not in MANY_ROWS:
        return False
    return MANY_ROWS[head_dim].time(sizes, windowed) < SIX_WARPS[head_dim].time(sizes, windowed)
