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
    balanced: float  # what balanced splits take more around a CTA's tiles


PACES: Final[Mapping[tuple[int, int, bool], Pace]] = {
    (64, 0, False): Pace(2.263, 0.931, 0.9174),
    (64, 0, True): Pace(3.581, 0.8086, 0.9323),
    (64, 64, False): Pace(1.939, 0.7382, 0.7749),
    (128, 0, False): Pace(4.523, 1.31, 0.7426),
    (128, 0, True): Pace(5.464, 0.9009, 1.725),
    (128, 64, False): Pace(2.433, 0.934, 1.086),
    (128, 64, True): Pace(4.27, 0.5255, 0.6758),
    (256, 0, False): Pace(3.645, 1.206, 1.244),
    (256, 0, True): Pace(5.649, 1.236, 1.905),
    (256, 64, False): Pace(1.729, 1.851, 1.775),
    (256, 64, True): Pace(3.282, 1.677, 2.08),
    (512, 0, False): Pace(5.024, 1.123, 5.344),
    (512, 0, True): Pace(7.035, 1.084, 1.711),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(0.09957, 3.859e06, 1.525, 0.8102, 0.01015, 1.468e06, 8, 4.95),
    128: Rates(0.0184, 4.64e06, 3.142, 0.08367, 0.5348, 1.86e06, 4, 5.185),
    256: Rates(0.4865, 4.639e06, 0.7044, 1.282, 0.1147, 1.598e06, 4, 6.933),
    512: Rates(0.0966, 5.13e06, 2.999, 0.00451, 0.1952, 1.398e06, 4, 5.387),
}
