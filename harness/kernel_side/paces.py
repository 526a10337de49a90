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
    (64, 0, HEADS): Pace(2.512, 0.801, 1.028),
    (64, 0, LENGTHS): Pace(4.982, 0.1044, 1.447),
    (64, 64, ONE_HEAD): Pace(1.404, 0.6647, 0.7613),
    (128, 0, ONE_HEAD): Pace(3.204, 1.438, 1.897),
    (128, 0, HEADS): Pace(4.332, 0.9951, 1.941),
    (128, 0, LENGTHS): Pace(8.736, 2.191, 2.792),
    (128, 64, ONE_HEAD): Pace(1.672, 0.9101, 1.031),
    (128, 64, HEADS): Pace(3.633, 0.4924, 0.6541),
    (128, 64, LENGTHS): Pace(8.652, 1.779, 1.878),
    (256, 0, ONE_HEAD): Pace(3.077, 1.352, 3.637),
    (256, 0, HEADS): Pace(4.172, 1.36, 1.093),
    (256, 0, LENGTHS): Pace(13.24, 2.035, 6.55),
    (256, 64, ONE_HEAD): Pace(0.9066, 1.717, 2.357),
    (256, 64, HEADS): Pace(2.299, 1.471, 1.828),
    (256, 64, LENGTHS): Pace(7.448, 0.716, 4.837),
    (512, 0, ONE_HEAD): Pace(3.369, 1.434, 1.875),
    (512, 0, HEADS): Pace(6.195, 1.142, 3.91),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(0.7838, 4.29e+06, 1.725, 1.242, 0.025, 2.163e+06, 8, 5.422, 5.812),
    128: Rates(0.002446, 4.559e+06, 2.351, 1.229, 0.4882, 1.632e+06, 4, 2.859, 5.725),
    256: Rates(0.08472, 4.746e+06, 5.291, 0.9579, 0.7707, 4.062e+06, 4, 2.799, 7.199),
    512: Rates(0.02555, 4.887e+06, 0.8518, 0.0006077, 1.737, 2.116e+06, 4, 1.395, 3.59),
}
