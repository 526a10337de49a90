"""Waits that grow between attempts at something that tells nobody when it will work again."""

from __future__ import annotations

import random


class BackOff:
    """The first wait, then each time twice as long, up to the longest.

    `spread` is the share by which chance changes each: clients that were dropped together must not come together again.
    """

    def __init__(self, first: float, longest: float, spread: float = 0.0) -> None:
        self._first, self._longest, self._spread = first, longest, spread
        self.seconds = first  # of the next wait, before chance has changed it

    def next(self) -> float:
        """Seconds to wait now; the next wait is longer."""
        now, self.seconds = self.seconds, min(2 * self.seconds, self._longest)
        return now * random.uniform(1 - self._spread, 1 + self._spread)

    def restart(self) -> None:
        """Something has moved: the next wait is the first again."""
        self.seconds = self._first
