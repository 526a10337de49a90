"""The constants of price.py, in microseconds and bytes a microsecond. Written by `python -m tools.refit --write`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a shape, by head_dim, FMHA_ROWS and whether its kernel knows several K/V heads."""

    around: float  # what a CTA takes beside its tiles
    tile: float  # of keys, of a CTA that has its multiprocessor alone
    together: float  # of each of those that a multiprocessor holds


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
    balanced: float  # what balanced splits take more around a CTA's tiles
    mean: float  # keys of an entry, as a part of the most, where lengths differ and are not known


PACES: Final[Mapping[tuple[int, int, bool], Pace]] = {
    (64, 0, False): Pace(0.573, 1.028, 0.3653),
    (64, 0, True): Pace(2.497, 0.7443, 0.9077),
    (64, 64, False): Pace(1.11, 0.7041, 0.6786),
    (128, 0, False): Pace(4.309, 1.246, 0.6398),
    (128, 0, True): Pace(4.11, 0.9093, 1.454),
    (128, 64, False): Pace(2.476, 0.7993, 1.13),
    (128, 64, True): Pace(3.087, 0.4663, 0.6338),
    (256, 0, False): Pace(3.415, 1.291, 1.362),
    (256, 0, True): Pace(4.155, 1.192, 1.847),
    (256, 64, False): Pace(1.887, 1.528, 1.892),
    (256, 64, True): Pace(2.179, 1.51, 1.88),
    (512, 0, False): Pace(4.198, 1.192, 1.41),
    (512, 0, True): Pace(6.398, 0.9266, 1.905),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(1.409, 3.935e06, 2.887, 0.1841, 0.01494, 5.092e06, 8, 6.495, 0.3665),
    128: Rates(0.1371, 4.507e06, 4.428, 0.1536, 0.4043, 5.754e06, 4, 4.631, 0.658),
    256: Rates(1.433, 4.511e06, 3.197, 0.9912, 0.3604, 3.575e06, 4, 4.296, 0.5412),
    512: Rates(0.02262, 5.129e06, 2.528, 0.0251, 1.05, 1.948e06, 4, 1.4, 0.73),
}
