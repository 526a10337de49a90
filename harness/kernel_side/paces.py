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
    (64, 0, False): Pace(2.304, 0.9115, 0.9026),
    (64, 0, True): Pace(3.301, 0.8433, 0.8615),
    (64, 64, False): Pace(1.937, 0.7365, 0.7563),
    (128, 0, False): Pace(4.161, 1.249, 1.078),
    (128, 0, True): Pace(4.292, 1.293, 1.619),
    (128, 64, False): Pace(1.994, 0.8977, 1.009),
    (128, 64, True): Pace(4.163, 0.4704, 0.5248),
    (256, 0, False): Pace(3.828, 1.299, 1.925),
    (256, 0, True): Pace(5.343, 1.439, 2.141),
    (256, 64, False): Pace(2.211, 1.829, 1.875),
    (256, 64, True): Pace(3.782, 1.64, 2.169),
    (512, 0, False): Pace(5.254, 1.11, 3.194),
    (512, 0, True): Pace(7.191, 1.089, 2.601),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(0.06768, 3.945e06, 1.811, 1.06, 0.01094, 1.696e06, 8, 5.624),
    128: Rates(0.01429, 4.563e06, 1.533, 0.7855, 0.4578, 1.465e06, 4, 8.94),
    256: Rates(0.1118, 4.75e06, 0.2202, 1.22, 0.3576, 1.837e06, 4, 12.67),
    512: Rates(0.0475, 4.97e06, 2.836, 0.001203, 0.1739, 1.38e06, 4, 13.81),
}
