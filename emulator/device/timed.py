"""What is recorded of a launch, so that its time can be told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fmha.emulator import _core
from fmha.emulator.decode import Decoded
from fmha.emulator.device.module import Dim3, Entry
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.emulator.timing.shape import (
    DRAWING,
    SAMPLES,
    ClustersOfGrid,
    at_once,
    behind_first,
    first_ctas,
    resident_ctas,
    sampled,
    sampled_by,
)


class TimedMachine:
    """The model of a GPU's time beside a machine. `only` runs nothing but the clusters that it looks at."""

    def __init__(self, machine: _core.Machine, gpu: str, only: bool) -> None:
        self._machine = machine
        self._architecture = architecture(gpu)
        self._only = only
        self._in_l2: list[int] = []  # allocations that launches have touched, the latest last

    def record(
        self,
        info: Entry,
        decoded: Decoded,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        shared_bytes: int,
        work: Sequence[float],
        in_memory: int,
        counter: int,
        looked_at: Sequence[int] = (),
    ) -> ClustersOfGrid:
        """Asks the machine for recordings of some clusters of the launch to come. `work` is what each cluster has to
        do, of a launch of so many; `in_memory` the bytes of all buffers; `counter` an address from which CTAs draw;
        `looked_at` are clusters to record, in place of those that are chosen here."""
        along_x, size = grid[0] // cluster[0], math.prod(cluster)
        samples = tuple(x * cluster[0] for x in sampled(along_x, DRAWING if counter else SAMPLES))
        firsts: tuple[int, ...] = ()
        if len(work) * size == math.prod(grid):
            firsts = first_ctas(grid, cluster)
            samples = tuple(firsts[n] for n in sampled_by(work))
        if looked_at:
            samples = tuple(sorted(set(looked_at)))
        second = behind_first(grid, cluster)
        self._machine.recorded = sorted({*samples, *(() if second is None else (second,))})
        self._machine.only_recorded = self._only
        self._machine.counter = counter
        by_memory = self._machine.resident_clusters(decoded.program, block, (1, 1, 1), shared_bytes)
        by_memory //= self._machine.multiprocessors
        resident = resident_ctas(
            by_memory, math.prod(block), self._architecture.registers, info.least_ctas, decoded.live
        )
        shape = ClustersOfGrid(along_x, cluster[0], math.prod(grid) // size, size, resident, samples, second)
        shape = replace(shape, spread_out=not looked_at or counter > 0)
        if firsts:
            shape = replace(shape, firsts=firsts, work=tuple(work))
        # Of a launch that fits into L2 and into one wave with room to spare nobody needs to know who reads what.
        small = in_memory <= self._architecture.l2_capacity.value
        one_turn = small and shape.clusters < shape.slots(self._architecture)
        nobody = one_turn or (counter and looked_at)
        self._machine.glimpsed = [] if nobody else at_once(grid, cluster, shape.slots(self._architecture))
        return shape

    def timing(self, decoded: Decoded, shape: ClustersOfGrid, sizes: Mapping[int, int]) -> LaunchTiming:
        """The time of the launch that was recorded; `sizes` of allocations, by their addresses."""
        assert self._machine.recorder is not None
        held, room = set(), self._architecture.l2_capacity.value
        for base in reversed(self._in_l2):
            room -= sizes.get(base, 0)
            if room >= 0:
                held.add(base)
        timing = LaunchTiming(
            self._architecture,
            self._machine.recorder,
            decoded.apart or decoded.program,
            decoded.sources,
            shape,
            sizes,
            frozenset(held),
        )
        # What a launch reads goes through L2 all along, what it writes comes at its clusters' ends.
        late = sorted(timing.touched, key=lambda base: (base in timing.written, base))
        self._in_l2 = [base for base in self._in_l2 if base not in timing.touched] + late
        return timing
