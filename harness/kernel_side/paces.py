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


PACES: Final[Mapping[tuple[int, int, bool], Pace]] = {
    (64, 0, False): Pace(1.984, 0.9998, 0.8788),
    (64, 0, True): Pace(3.429, 0.8379, 0.9597),
    (64, 64, False): Pace(1.733, 0.7354, 0.8288),
    (128, 0, False): Pace(4.596, 1.052, 0.8919),
    (128, 0, True): Pace(5.15, 0.9275, 1.933),
    (128, 64, False): Pace(2.297, 1.034, 1.042),
    (128, 64, True): Pace(3.994, 0.533, 0.646),
    (256, 0, False): Pace(3.32, 1.371, 1.516),
    (256, 0, True): Pace(5.461, 1.429, 2.706),
    (256, 64, False): Pace(1.377, 2.009, 2.098),
    (256, 64, True): Pace(4.182, 1.657, 1.872),
    (512, 0, False): Pace(5.364, 1.082, 5.902),
    (512, 0, True): Pace(6.485, 1.113, 1.84),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(0.4444, 3.92e+06, 1.243, 0.6651, 0.01127, 1.384e+06, 8, 5.126),
    128: Rates(0.02974, 4.478e+06, 2.425, 0.2902, 0.4109, 1.353e+06, 4, 3.376),
    256: Rates(0.1168, 4.802e+06, 0.9157, 1.119, 0.2426, 1.423e+06, 4, 3.948),
    512: Rates(0.09411, 5.037e+06, 2.707, 0.005126, 0.1932, 1.388e+06, 4, 6.629),
}
