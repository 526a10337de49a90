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
    (64, 0, ONE_HEAD): Pace(0.9831, 0.8701, 1.117),
    (64, 0, HEADS): Pace(2.266, 0.7502, 0.9479),
    (64, 0, LENGTHS): Pace(4.661, 0.2339, 2.507),
    (64, 64, ONE_HEAD): Pace(0.7386, 0.7029, 0.8632),
    (128, 0, ONE_HEAD): Pace(3.562, 1.303, 2.195),
    (128, 0, HEADS): Pace(4.205, 1.063, 1.364),
    (128, 0, LENGTHS): Pace(8.501, 2.426, 3.855),
    (128, 64, ONE_HEAD): Pace(1.295, 0.9071, 1.17),
    (128, 64, HEADS): Pace(3.07, 0.52, 0.7548),
    (128, 64, LENGTHS): Pace(6.813, 1.205, 2.37),
    (256, 0, ONE_HEAD): Pace(3.34, 1.285, 3.376),
    (256, 0, HEADS): Pace(3.862, 1.409, 1.24),
    (256, 0, LENGTHS): Pace(13.74, 2.281, 4.497),
    (256, 64, ONE_HEAD): Pace(1.444, 1.674, 2.156),
    (256, 64, HEADS): Pace(3.132, 1.336, 1.798),
    (256, 64, LENGTHS): Pace(12.96, 0.9337, 3.963),
    (512, 0, ONE_HEAD): Pace(4.358, 1.261, 1.882),
    (512, 0, HEADS): Pace(7.153, 1.339, 3.427),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(1.268, 4.502e06, 1.002, 1.297, 0.1197, 2.611e06, 8, 0.7365, 2.537),
    128: Rates(0.002836, 4.725e06, 2.976, 1.161, 0.4118, 3.259e06, 4, 2.734, 3.905),
    256: Rates(0.2112, 5.038e06, 4.74, 1.836, 0.1573, 5.138e06, 4, 1.985, 4.271),
    512: Rates(0.04686, 6.44e6, 1.984, 0.000821, 0.134, 1.255e6, 4, 1.099, 1.93),
}
