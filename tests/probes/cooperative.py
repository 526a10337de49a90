"""Cooperative groups beyond the warp: grid.sync(), and tiles of several warps. cooperative.cu."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Case, In, Out, hashed32

THREADS = 512
COLUMNS = 10  # of what each thread gets from a tile
TILES = (64, 128, 256, 512)
GRIDS = ((12, 64), (5, 96), (40, 32), (3, 1024))  # CTAs, threads


def cases() -> Iterator[Case]:
    for blocks, threads in GRIDS:
        n = blocks * threads
        for entry, words, turns in (("rotate", 7, 3), ("rotate_split", 2, 2)):
            out = Out(np.zeros(n * words, np.uint32))
            shape = {"grid": (blocks, 1, 1), "block": (threads, 1, 1)}
            name = f"cooperative/{entry}_{blocks}x{threads}"
            yield Case(name, "cooperative", entry, (out, turns), cooperative=True, **shape)
    values = hashed32(THREADS, 901) % np.uint32(1000)
    for n in TILES:
        out = Out(np.zeros(THREADS * COLUMNS, np.uint32))
        yield Case(f"cooperative/tile{n}", "cooperative", f"several{n}", (In(values), out), block=(THREADS, 1, 1))
