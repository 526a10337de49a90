"""The constants of price.py, in microseconds and bytes a microsecond. Written by `python -m tools.refit --write`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ONE_HEAD: Final = 0  # what a kernel knows: one K/V head,
HEADS: Final = 1  # several,
LENGTHS: Final = 2  # and how to balance splits


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a shape, by head_dim, FMHA_ROWS and what its kernel knows."""

    around: float  # what a CTA takes beside its tiles
    tile: float  # of keys, of a CTA that has its multiprocessor alone
    together: float  # of each of those that a multiprocessor holds, where it holds more than one


@dataclass(frozen=True, slots=True)
class Rates:
    """Of a head_dim."""

    launch: float
    memory: float
    lead: float  # for which memory is idle
    merge: float
    merge_turn: float  # of parts in flight
    cache: float  # L2's rate for partial results, of which an element has
    part_bytes: float
    further: float  # what each plane that a CTA goes on to takes, with balanced splits
    empty: float  # each turn of CTAs that may have no keys, since entries differ


PACES: Final[Mapping[tuple[int, int, int], Pace]] = {
    (64, 0, ONE_HEAD): Pace(1.519, 0.9321, 0.9946),
    (64, 0, HEADS): Pace(2.392, 0.9031, 1.028),
    (64, 0, LENGTHS): Pace(4.745, 0.1044, 1.447),
    (64, 64, ONE_HEAD): Pace(1.404, 0.6647, 0.7613),
    (128, 0, ONE_HEAD): Pace(4.481, 1.333, 1.125),
    (128, 0, HEADS): Pace(4.51, 1.139, 1.251),
    (128, 0, LENGTHS): Pace(8.882, 2.273, 4.045),
    (128, 64, ONE_HEAD): Pace(2.577, 0.9606, 1.071),
    (128, 64, HEADS): Pace(1.571, 0.7017, 0.9457),
    (128, 64, LENGTHS): Pace(8.987, 1.036, 2.206),
    (256, 0, ONE_HEAD): Pace(3.34, 1.349, 3.376),
    (256, 0, HEADS): Pace(3.862, 1.409, 1.24),
    (256, 0, LENGTHS): Pace(11.93, 1.97, 4.497),
    (256, 64, ONE_HEAD): Pace(1.592, 1.674, 2.156),
    (256, 64, HEADS): Pace(2.237, 1.536, 1.712),
    (256, 64, LENGTHS): Pace(10.72, 1.83, 3.963),
    (512, 0, ONE_HEAD): Pace(4.358, 1.261, 1.882),
    (512, 0, HEADS): Pace(7.153, 1.339, 3.427),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(0.7838, 4.29e06, 1.232, 1.242, 0.025, 2.06e06, 8, 5.422, 5.812),
    128: Rates(0.003737, 4.927e06, 4.371, 0.4124, 0.3893, 2.397e06, 4, 2.456, 6.116),
    256: Rates(0.4139, 5.038e06, 4.977, 1.086, 0.8461, 3.351e06, 4, 1.418, 6.593),
    512: Rates(0.04686, 6.44e6, 1.984, 0.000821, 0.134, 1.255e6, 4, 1.099, 1.93),
}
