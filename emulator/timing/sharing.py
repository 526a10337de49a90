"""How long a launch lasts whose clusters differ in what they have to do.

Clusters are dealt out in the order of the grid, each to the first place that is free. How fast one gets on depends on
how many others are there: they share L2's and memory's rates, and those that share an SM its port and pipes. So the
last of a launch are faster than those before them, which the places that have nothing left no longer hinder.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np

_AT_ONCE: Final = 1e-9  # of a cluster: what ends that close to another ends with it


def lasting(first: Sequence[float], paces: Sequence[tuple[int, Sequence[float]]]) -> float:
    """Cycles until the last cluster ends. `paces`: so many clusters are there at once, and how long each lasts while so
    many are, from as many as there are places down to those that no longer hinder one another; `first`: how long each
    lasts among as many as there are places if it finds the instruction cache cold."""
    places, full = paces[0]
    kinds, of = np.unique(np.stack([first, *(of_all for _, of_all in paces)]), axis=1, return_inverse=True)
    of = of.reshape(-1)
    # By the number of clusters that are there, the part of each kind that is done in a cycle.
    counts = [count for count, _ in reversed(paces)]
    rates = np.stack([1 / np.interp(range(places + 1), counts, row[::-1]) for row in kinds[1:].T], axis=1)
    done = np.zeros(kinds.shape[1])  # how many of its kind one would have done that had been there from the start
    ends: list[list[float]] = [[] for _ in range(kinds.shape[1])]
    next_end = np.full(kinds.shape[1], np.inf)
    there, now, following = 0, 0.0, 0
    while True:
        while there < places and following < len(full):
            kind = of[following]
            length = kinds[0, kind] / kinds[1, kind] if following < places else 1.0
            heapq.heappush(ends[kind], done[kind] + length)
            next_end[kind] = ends[kind][0]
            there += 1
            following += 1
        if not there:
            return now
        rate = rates[there]
        step = max(0.0, float(((next_end - done) / rate).min()))
        now += step
        done += rate * step
        for kind in np.flatnonzero(next_end <= done + _AT_ONCE):
            while ends[kind] and ends[kind][0] <= done[kind] + _AT_ONCE:
                heapq.heappop(ends[kind])
                there -= 1
            next_end[kind] = ends[kind][0] if ends[kind] else np.inf
