"""The shape of a launch: its clusters, how many of them a GPU holds at once, and which of them stand for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fmha.emulator.timing.architecture import Architecture

SAMPLES: Final = 5  # along x
DRAWING: Final = 3  # of CTAs that draw all that they do, one piece after the other: they differ little
_MOST_REGISTERS: Final = 255  # of a thread


@dataclass(frozen=True, slots=True)
class ClustersOfGrid:
    """Of a launch: clusters along x and in all, and CTAs that an SM holds."""

    along_x: int
    pitch: int  # CTAs of a cluster along x
    clusters: int
    cluster_size: int
    resident: int
    samples: tuple[int, ...]  # clusters that are replayed, by their first CTA; along x if nobody says what each does
    second: int | None  # the one behind the first in the order of the grid, where there is one
    firsts: tuple[int, ...] = ()  # with `work`: the first CTA of each cluster, in the order of the grid
    work: tuple[float, ...] = ()  # of each cluster, where those of one x differ
    spread_out: bool = True  # the samples are as far from one another along x, so that their mean is that of all

    def at_work(self, ordinal: int, gpu: Architecture) -> float:
        """Multiprocessors that are, on average, while this cluster is. Where work differs, those whose clusters have
        less leave memory and L2 to the others."""
        copies = self.copies(gpu)
        sms = min(self.places(gpu) * self.cluster_size, -(-self.clusters * self.cluster_size // copies))
        own = self.work[self.firsts.index(ordinal)] if self.work else 0.0
        if not own:
            return float(sms)
        beside = sum(min(other, own) for other in self.work) / own
        return max(float(self.cluster_size), min(float(sms), beside * self.cluster_size / copies))

    def divided(self, there: int, gpu: Architecture) -> tuple[int, float]:
        """Of so many clusters that are there at once: those on each SM, and the SMs that have any."""
        copies = -(-there // self.places(gpu))
        return copies, max(1.0, there * self.cluster_size / copies)

    def spread(self, found: Mapping[int, float]) -> list[float]:
        """What the samples have, of each cluster: in between by its work, or along x."""
        if not self.work:
            at = {ordinal // self.pitch: value for ordinal, value in found.items()}
            return [_between(at, x) for x in range(self.along_x)] * (self.clusters // self.along_x)
        work = dict(zip(self.firsts, self.work, strict=True))
        known = sorted((work[ordinal], value) for ordinal, value in found.items())
        return [float(x) for x in np.interp(self.work, [w for w, _ in known], [value for _, value in known])]

    def places(self, gpu: Architecture) -> int:
        """Clusters that the GPU holds at once if an SM holds one CTA."""
        return gpu.clusters.get(self.cluster_size, max(1, gpu.multiprocessors // self.cluster_size))

    def copies(self, gpu: Architecture) -> int:
        """Clusters that share the SMs of one."""
        return max(1, min(self.resident, -(-self.clusters // self.places(gpu))))

    def slots(self, gpu: Architecture) -> int:
        """Clusters that the GPU holds at once."""
        return self.places(gpu) * self.copies(gpu)


def sampled(along_x: int, most: int = SAMPLES) -> tuple[int, ...]:
    """The clusters along x that are recorded."""
    n = min(most, along_x)
    return tuple(sorted({round(k * (along_x - 1) / max(1, n - 1)) for k in range(n)}))


def sampled_by(work: Sequence[float]) -> tuple[int, ...]:
    """Places of clusters whose work spans that of all: the least, the most, and between them as many below as above."""
    order = sorted(range(len(work)), key=lambda n: work[n])
    picked = (order[round(k * (len(order) - 1) / (SAMPLES - 1))] for k in range(SAMPLES))
    return tuple({work[n]: n for n in picked}.values())


def first_ctas(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> tuple[int, ...]:
    """The first CTAs of all clusters, in the order of the grid."""
    return tuple(at_once(grid, cluster, grid[0] * grid[1] * grid[2]))


def at_once(grid: tuple[int, int, int], cluster: tuple[int, int, int], slots: int) -> list[int]:
    """The first CTAs of the clusters that a GPU which holds `slots` begins with."""
    across = tuple(ctas // size for ctas, size in zip(grid, cluster, strict=True))
    first = []
    for n in range(min(slots, across[0] * across[1] * across[2])):
        x, y, z = n % across[0], n // across[0] % across[1], n // across[0] // across[1]
        first.append(x * cluster[0] + grid[0] * (y * cluster[1] + grid[1] * z * cluster[2]))
    return first


def behind_first(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> int | None:
    """The first CTA of the cluster behind the first, in the order of the grid."""
    step = 1
    for ctas, size in zip(grid, cluster, strict=True):
        if ctas > size:
            return step * size
        step *= ctas
    return None


def resident_ctas(shared_limit: int, threads: int, registers: int, least: int | None, live: int) -> int:
    """CTAs that an SM holds: by shared memory, and by registers, which PTX does not fix. They are the kernel's
    .minnctapersm, or as many as hold what of a thread is `live` at once, which ptxas seldom exceeds; it reserves eight
    at a time, and spills what a thread of the block cannot have."""
    warps = -(-threads // 32)
    most = min(_MOST_REGISTERS, registers // (32 * warps))
    of_thread = -(-min(live, most) // 8) * 8
    return max(1, min(shared_limit, least or registers // (32 * warps * max(of_thread, 16))))


def _between(at: Mapping[int, float], x: int) -> float:
    if x in at:
        return at[x]
    left = max(k for k in at if k < x)
    right = min(k for k in at if k > x)
    return at[left] + (at[right] - at[left]) * (x - left) / (right - left)
