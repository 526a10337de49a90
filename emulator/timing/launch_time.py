"""The time of a launch from the recordings of a few of its clusters.

A grid is a wave and its tail. The clusters that were recorded are replayed, each with as many copies as an SM holds at
once. Those between two of them along x are taken to last as long as lies between, and those of one x to last alike.
Then they are dealt out in the order of the grid, each to the SM that is free first; where CTAs draw what to do, the
longest first. So what a tail costs is known, and a grid of thousands costs as much as a handful. The first on an SM
finds the instruction cache cold, the others do not. CTAs may also be recorded with all that they draw from a counter:
then the others last as long as these in the mean, and what the last one has beyond that follows from the pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fmha.emulator import _core
from fmha.emulator.ptx import Instruction
from fmha.emulator.timing.architecture import Architecture
from fmha.emulator.timing.clock import clock
from fmha.emulator.timing.reuse import AllocationReads, from_memory, kept, on_its_way, readers_at_once, turns_of
from fmha.emulator.timing.shape import ClustersOfGrid
from fmha.emulator.timing.sharing import lasting

TENSOR_COLUMNS: Final = 512  # of an SM's tensor memory
_NEGLIGIBLE: Final = 0.002  # of a launch's time
_HARDLY: Final = 0.02  # of a cluster's time: so little do others hinder it


@dataclass(frozen=True, slots=True)
class WarpTime:
    """A warp of a replay: its fields are the core's, in the order in which `replay` there hands them over."""

    cta: int
    warp: int
    start: float
    end: float
    instructions: int
    waited: Mapping[str, float]  # cycles by cause


@dataclass(frozen=True, slots=True)
class Span:
    """Cycles `start` to `end` of a warp, by its number among those replayed, or of an operation beside it: a `Wait` of
    the core, in the order in which `spans` there hands its fields over."""

    cta: int
    warp: int
    pc: int
    start: float
    end: float
    cause: str
    by: int | None  # an operation, or ~(a warp)
    place: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """One SM with what it holds at once, or the SMs of a cluster. Times in cycles."""

    cycles: float
    busy: Mapping[str, float]  # of each server
    warps: Sequence[WarpTime]
    waits: Sequence[Span]  # of a traced replay, as the operations are
    operations: Sequence[Span]
    issuers: Sequence[int]
    forced: int
    before: float  # cycles that come before the first warp waits for the grid before this one


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model says of a launch."""

    cycles: float  # from the first CTA's start to the last one's end
    clock_mhz: float
    waves: float
    busy: Mapping[str, float]  # of a server, the part of the time that its SM is at work
    bound: str  # the server that is busiest, or "latency" where none is for half of the time
    from_hbm: float  # the part of what is read that L2 does not have
    forced: int  # waits that the model could not follow: above 0, it is not to be trusted

    @property
    def seconds(self) -> float:
        """Without what a launch costs."""
        return self.cycles / self.clock_mhz * 1e-6


@dataclass(frozen=True, slots=True)
class Share:
    """Of what a launch reads, the parts that L2 delivers, what comes to neighbours once counted once, and memory."""

    from_l2: float
    from_hbm: float
    waits: float  # and that which is on its way from memory when it is asked for: who reads together waits together


class LaunchTiming:
    """The recordings of a launch; the model may be asked again, with other constants."""

    def __init__(
        self,
        architecture: Architecture,
        recorder: _core.Recorder,
        program: _core.Program,
        sources: tuple[Instruction, ...],
        shape: ClustersOfGrid,
        sizes: Mapping[int, int],
        resident: frozenset[int],
    ) -> None:
        """`sizes`: bytes of each allocation by its address; `resident`: those that L2 holds before the launch."""
        self.architecture = architecture
        # Whether a cluster goes on with the work of others (clusterlaunchcontrol): then an SM starts no other.
        self.clusters = clusters = recorder.clusters
        self.claims = any(c["claims"] for c in clusters)
        columns = max((c["tensor_columns"] for c in clusters), default=0)
        self.shape = shape = replace(shape, resident=max(1, min(shape.resident, TENSOR_COLUMNS // max(1, columns))))
        self.overlaps = False  # whether it starts while the grid before it runs: what it does until it waits is hidden
        # Where as many CTAs as the GPU holds draw what the grid's would do: in which order, by the number in the grid;
        # and recordings of some that draw two, with whose work they do.
        self.order: Sequence[int] = ()
        self.pairs: tuple[LaunchTiming, Sequence[tuple[int, tuple[int, int]]]] | None = None
        self.to_memory = 1.0  # of what it writes, the part that memory gets while it lasts
        self.pieces: Sequence[float] = ()  # what CTAs draw that are replayed with all that they draw: how long each is
        self.sources = sources  # by pc
        self.ranks: Sequence[int] = ()  # by pc, the order in which warps execute, if not the PTX's
        self._recorder = recorder
        self._program = program
        self.ordinals = shape.samples
        self._alike = {c["ordinal"]: c["like"] for c in clusters}  # to the first that did the same
        self.instructions = sum(c["instructions"] for c in clusters)
        self.touched = frozenset(base for c in clusters for base in (*c["read"], *c["written"]))
        asked: dict[int, float] = {}  # bytes that all SMs read, by allocation
        written: dict[int, float] = {}
        for what, by_base in (("read", asked), ("written", written)):
            for base in {base for cluster in clusters for base in cluster[what]}:
                of = {c["ordinal"]: float(c[what].get(base, 0)) for c in clusters}
                if shape.work or not shape.spread_out:
                    by_base[base] = sum(shape.spread({n: of[n] for n in shape.samples}))
                else:
                    by_base[base] = sum(of.values()) * shape.clusters / len(of)
        # What has to move once, by allocation: no more than it holds.
        self.read = {base: min(nbytes, sizes.get(base, 0)) for base, nbytes in asked.items()}
        self.written = {base: min(nbytes, sizes.get(base, 0)) for base, nbytes in written.items()}
        total = sum(asked.values()) or 1.0
        self.asked = total  # bytes
        self._together = {} if shape.second is None else recorder.shared_reads(shape.samples[0], shape.second)
        first = recorder.first_reads
        streams = {
            base: AllocationReads(nbytes, min(nbytes, sizes.get(base, 0)), readers_at_once(first, base))
            for base, nbytes in asked.items()
        }
        fresh = [s for base, s in streams.items() if base not in resident]
        self.together, self.apart = self._shares(streams, fresh)

    def _shares(
        self, streams: Mapping[int, AllocationReads], fresh: Sequence[AllocationReads]
    ) -> tuple[Share, Share | None]:
        """While CTAs that read the same stay together, and once they do not; None where L2 holds whatever they read.
        `fresh`: of what no launch before this one has left in L2."""
        gpu, all_of_them = self.architecture, [*streams.values()]
        cold = sum(s.known for s in fresh) / self.asked  # each byte once
        new = {id(s) for s in fresh}  # of the others L2 has each byte until it loses it
        waves = self.shape.clusters / self.shape.slots(gpu)
        turns = turns_of(all_of_them, waves) if self._recorder.first_reads else 1.0
        begun = 1 / turns  # in the first turn all are together
        first = self._delivered(streams, turns, gpu.l2_sharing_first.value)
        pairs = self._delivered(streams, turns, gpu.l2_sharing.value)

        def after_the_first(keeps: float, together: bool) -> float:
            """The part of what is read that memory gives."""
            missed = sum(
                max(min(s.known, s.asked) if id(s) in new else 0.0, s.asked * from_memory(s, keeps, together))
                for s in all_of_them
            )
            return max(cold, begun * cold + (1 - begun) * missed / self.asked)

        def waiting(keeps: float) -> float:
            """The part of what is read for which CTAs that go together wait as for memory."""
            at_first = sum(s.asked * on_its_way(s, s.in_a_turn(turns) * turns) for s in fresh)
            later = sum(s.asked * on_its_way(s, s.known) for s in fresh)
            if keeps < turns:
                missed = sum(s.asked * on_its_way(s, s.asked * from_memory(s, keeps, True)) for s in all_of_them)
                later = max(later, missed)
            return (begun * at_first + (1 - begun) * later) / self.asked

        keeps = kept(all_of_them, turns, gpu.l2_capacity.value / gpu.l2_partitions.value)
        from_hbm = after_the_first(keeps, together=True)
        together = Share(begun * first + (1 - begun) * pairs, from_hbm, max(from_hbm, waiting(keeps)))
        if keeps == turns:
            return together, None
        from_hbm = after_the_first(keeps, together=False)
        # What memory gives more than once goes to CTAs that are not together: L2 delivers to each by itself.
        once = sum(s.known for s in all_of_them) / self.asked
        again = max(0.0, 1 - once / from_hbm) if from_hbm else 0.0
        return together, Share(begun * first + (1 - begun) * (again + (1 - again) * pairs), from_hbm, from_hbm)

    def _delivered(self, streams: Mapping[int, AllocationReads], turns: float, sms: float) -> float:
        """The part of what is read that L2 delivers, where what neighbours read together comes once to so many SMs."""
        saved = 0.0
        for base, s in streams.items():
            readers = max(s.together, s.asked / (s.known * turns) if s.known else 1.0)  # of a byte, in a turn
            once = max(1 / readers, min(1.0, self.shape.cluster_size / sms))
            saved += s.asked * self._together.get(base, 0.0) * (1 - once)
        return 1 - saved / self.asked

    def replay(
        self,
        ordinal: int,
        times: Mapping[str, float] | None = None,
        traced: bool = False,
        share: Share | None = None,
        of: LaunchTiming | None = None,
        beside: int | None = None,
    ) -> Replayed:
        """The cluster `ordinal`, with as many copies of it as an SM holds beside it. `share` is that of `modelled` if
        left out; `of` a launch of the same kernel that has recorded it; `beside`: while the GPU has so many clusters
        in all, otherwise with those that there are in the mean."""
        gpu, share = self.architecture, share or self._found(times)[1]
        copies, sms = self.shape.copies(gpu), self.shape.at_work(ordinal, gpu)
        if beside is not None:
            copies, sms = self.shape.divided(beside, gpu)
        if self.order:
            sms = float(gpu.multiprocessors)
        raw = (of or self)._recorder.replay(
            self._program,
            [ordinal] * copies,
            gpu.values | dict(times or {}),
            sms=sms,
            from_l2=share.from_l2,
            from_hbm=share.from_hbm,
            waits=share.waits,
            to_hbm=self.to_memory,
            traced=traced,
            ranks=self.ranks,
        )
        busy = {name: cycles / raw["sms"] for name, cycles in raw["busy"].items()}
        return Replayed(
            raw["cycles"],
            busy,
            [WarpTime(*each) for each in raw["warps"]],
            [Span(*each) for each in raw["waits"]],
            [Span(*each) for each in raw["operations"]],
            raw["issuers"],
            raw["forced"],
            raw["before"],
        )

    def _sms(self, ordinal: int) -> float:
        """That are at work while a cluster is: all, where CTAs draw one piece of work after the other."""
        return (
            float(self.architecture.multiprocessors) if self.order else self.shape.at_work(ordinal, self.architecture)
        )

    def _replays(
        self, times: Mapping[str, float] | None, share: Share, beside: int | None = None
    ) -> dict[int, Replayed]:
        """Of each cluster that is looked at; those that did the same are replayed once. `beside` as in `replay`."""
        if self.shape.work:
            there = None if self.order else min(self.shape.slots(self.architecture), self.shape.clusters)
            return {n: self.replay(n, times, share=share, beside=there) for n in self.ordinals}
        alike = {self._alike[ordinal] for ordinal in self.ordinals}
        of = {n: self.replay(n, times, share=share, beside=beside) for n in alike}
        return {ordinal: of[self._alike[ordinal]] for ordinal in self.ordinals}

    def _lasting(self, replayed: Mapping[int, Replayed]) -> list[float]:
        """Cycles of each cluster."""
        return self.shape.spread({ordinal: r.cycles for ordinal, r in replayed.items()})

    def _paces(
        self, times: Mapping[str, float], share: Share, full: Sequence[float]
    ) -> list[tuple[int, Sequence[float]]]:
        """How long each cluster lasts while so many are there: as many as the GPU holds, where that is `full`, half as
        many and so on, until those that are there no longer hinder one another."""
        there = min(self.shape.slots(self.architecture), self.shape.clusters)
        found: list[tuple[int, Sequence[float]]] = [(there, full)]
        while there > 1:
            there //= 2
            alone = {n: self.replay(n, times, share=share, beside=there).cycles for n in self.ordinals}
            found.append((there, self.shape.spread(alone)))
            if sum(found[-2][1]) - sum(found[-1][1]) <= _HARDLY * sum(found[-1][1]):
                break
        return found

    def _leaves(self, replayed: Mapping[int, Replayed], last: int) -> bool:
        """Whether the `last` clusters of a grid, which are fewer than the GPU holds, have for themselves what all would
        share: memory and L2, or their SMs."""
        gpu = self.architecture
        if self.order or self.claims or not last or self.shape.clusters < self.shape.slots(gpu):
            return False
        waits = max(r.busy["memory"] / r.cycles for r in replayed.values()) >= 0.5
        return waits or self.shape.divided(last, gpu)[0] < self.shape.copies(gpu)

    def product_cycles(self) -> float:
        """What the tensor cores of the launch are busy for, if all SMs of the GPU had an equal part of it."""
        replayed = self._replays(None, self._found(None)[1])
        busy = sum(r.busy["tensor"] for r in replayed.values()) / len(replayed) / self.shape.copies(self.architecture)
        return busy * self.shape.clusters * self.shape.cluster_size / self.architecture.multiprocessors

    def _overlap(self, alone: Sequence[float], times: Mapping[str, float], share: Share) -> float:
        """Cycles that a CTA which draws what `alone` lasts so long begins the next before it has ended one."""
        if self.pairs is None:
            return 0.0
        drawn, pairs = self.pairs
        both = {cta: self.replay(cta, times, share=share, of=drawn).cycles for cta, _ in pairs}
        saved = [sum(alone[n] for n in own) - both[cta] for cta, own in pairs]
        return max(0.0, sum(saved) / len(saved)) if saved else 0.0

    def modelled(self, times: Mapping[str, float] | None = None) -> Modelled:
        """The whole launch, with these of the constants in the architecture's place."""
        return self._found(times)[0]

    def _found(self, times: Mapping[str, float] | None) -> tuple[Modelled, Share]:
        """CTAs that wait for memory or L2 go each at a pace of its own and do not stay together. Those that wait for
        their products go at one pace."""
        said = self._modelled(times, self.together)
        if self.apart is None or said.bound != "memory":
            return said, self.together
        return self._modelled(times, self.apart), self.apart

    def _modelled(self, times: Mapping[str, float] | None, share: Share) -> Modelled:
        """Memory has a clock of its own: while that of SMs is lower it moves more in a cycle of theirs. A launch that
        hardly uses memory is not replayed again for that."""
        said, gpu = self._at_once(times, share), self.architecture
        rate, slower = gpu.times["hbm_bytes"].value, said.clock_mhz / gpu.clock_mhz.value
        if self._moved(share) / rate * (1 - slower) <= _NEGLIGIBLE * said.cycles:
            return said
        return self._at_once({"hbm_bytes": rate / slower, **(times or {})}, share)

    def _moved(self, share: Share) -> float:
        """Bytes that memory reads and writes while it lasts."""
        return share.from_hbm * self.asked + self.to_memory * sum(self.written.values())

    def _at_once(self, times: Mapping[str, float] | None, share: Share) -> Modelled:
        replayed = self._replays(times, share)
        first = self._lasting(replayed)
        slots = self.shape.slots(self.architecture)
        ends = [0.0] * min(slots, self.shape.clusters)
        later, warmed = first, dict(times or {})
        if self.shape.clusters > slots:  # an SM that has run one CTA has the code; one that draws has started, too
            known = {"code_miss": 0.0, "code_jump": 0.0} | ({"cta_start": 0.0} if self.order or self.claims else {})
            warmed |= known
            later = self._lasting(self._replays(warmed, share))
            later = [cycles - overlap for overlap in [self._overlap(later, warmed, share)] for cycles in later]
        if self.shape.work and not self.order:
            cycles = lasting(first, self._paces(warmed, share, later))
        elif self.pieces:
            cycles = sum(first) / len(first) * uneven(self.pieces, len(ends))
        elif self._leaves(replayed, last := self.shape.clusters % slots):
            alone = self._lasting(self._replays(warmed, share, last))
            cycles = lasting(first, [(slots, later), (last, alone)])
        else:
            for n in self.order or range(self.shape.clusters):
                heapq.heapreplace(ends, ends[0] + (later[n] if ends[0] else first[n]))
            cycles = max(ends)
        own = sum(r.cycles for r in replayed.values())
        servers = next(iter(replayed.values())).busy
        busy = {name: sum(r.busy[name] for r in replayed.values()) / own for name in servers}
        bound = max(busy, key=lambda name: busy[name])
        at_work = self.shape.clusters * sum(later) / len(later) / (slots * cycles)
        hidden = min(r.before for r in replayed.values()) if self.overlaps else 0.0
        return Modelled(
            cycles - hidden,
            clock(self.architecture, busy["tensor"] * at_work, self._moved(share) / cycles),
            self.shape.clusters / slots,
            busy,
            bound if busy[bound] >= 0.5 else "latency",
            share.from_hbm,
            sum(r.forced for r in replayed.values()),
        )


def uneven(pieces: Sequence[float], ctas: int) -> float:
    """How much longer the last of so many CTAs is at work than the mean, where each draws as soon as it is free and the
    longest pieces come first."""
    ends = [0.0] * ctas
    for piece in sorted(pieces, reverse=True):
        heapq.heapreplace(ends, ends[0] + piece)
    return max(ends) * ctas / sum(ends)
