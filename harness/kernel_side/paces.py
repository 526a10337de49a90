"""The constants of price.py, in microseconds and bytes a microsecond. Written by `python -m tools.refit --write`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a shape, by head_dim and FMHA_ROWS."""

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
    merge_part: float  # of a part more
    cache: float  # L2's rate for partial results, of which an element has
    part_bytes: float
    balanced: float  # what balanced splits take more around a CTA's tiles


PACES: Final[Mapping[tuple[int, int], Pace]] = {
    (64, 0): Pace(2.0, 0.5, 0.7),
    (64, 64): Pace(2.0, 0.3, 0.45),
    (128, 0): Pace(2.0, 0.7, 0.7),
    (128, 64): Pace(2.0, 0.4, 0.6),
    (256, 0): Pace(2.0, 0.7, 0.7),
    (256, 64): Pace(2.0, 0.6, 0.9),
    (512, 0): Pace(2.0, 1.0, 1.0),
}
RATES: Final[Mapping[int, Rates]] = {
    64: Rates(1.0, 4.2e6, 1.0, 1.5, 0.02, 4e6, 8.0, 1.0),
    128: Rates(1.0, 4.2e6, 1.0, 1.5, 0.02, 4e6, 4.0, 1.0),
    256: Rates(1.0, 4.2e6, 1.0, 1.5, 0.02, 4e6, 4.0, 1.0),
    512: Rates(1.0, 4.2e6, 1.0, 1.5, 0.02, 4e6, 4.0, 1.0),
}
