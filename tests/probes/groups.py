"""Cooperative groups and CUB's warp primitives over fewer lanes than a warp: groups.cu."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Case, In, Out, hashed32

THREADS = 64
COLUMNS = 15  # of what each thread gets from a group
_TILES = (1, 2, 4, 8, 16, 32)
_LAUNCHES = (  # entry, words a thread, options
    *((f"tile{n}", COLUMNS, (0, 1)) for n in _TILES),
    ("labeled", COLUMNS, (1, 2, 3, 7, 1000)),
    ("binary", COLUMNS, (1, 8, 1 << 20)),
    ("coalesced", COLUMNS, (1, 4)),
    *((f"cub{n}", 3, (0,)) for n in _TILES[1:]),
    ("branches", 2, (1, 4, 1 << 20)),
)


def cases() -> Iterator[Case]:
    values = hashed32(THREADS, 900) % np.uint32(1000)
    for entry, words, options in _LAUNCHES:
        for option in options:
            out = Out(np.zeros(THREADS * words, np.uint32))
            yield Case(f"groups/{entry}_{option}", "groups", entry, (In(values), out, option), block=(THREADS, 1, 1))
