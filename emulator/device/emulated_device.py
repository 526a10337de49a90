"""One machine that launches kernels: what it is made of, the launch, and who looks on."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from fmha.emulator import _core
from fmha.emulator.decode import Decoded, device_steps
from fmha.emulator.device.checks import (
    MAX_SHARED_BYTES,
    SHARED_UNASKED,
    check_launch,
    check_size,
    cluster_dims,
    dim3,
    no_entry,
)
from fmha.emulator.device.device_memory import Buffer, Memory
from fmha.emulator.device.executed_marks import ExecutedMarks
from fmha.emulator.device.illegal_launch import LaunchError, UnmodelledError
from fmha.emulator.device.machine_settings import PROFILES, MmaSums, Profile, Schedule, machine_of
from fmha.emulator.device.module import Dim3, Module, entry_of
from fmha.emulator.device.parameter_bytes import pack_args
from fmha.emulator.device.timed import TimedMachine
from fmha.emulator.executed_lines import ExecutedLines, coverage_of
from fmha.emulator.grids import Below, tell_kernels
from fmha.emulator.launch_report import Finding, Report, Waiver, findings_of
from fmha.emulator.names import brief, readable
from fmha.emulator.ptx import Instruction

# What %envreg1 and %envreg2 point at in a cooperative launch, as a driver for an H100 leaves it: the workspace's size,
# the barrier of grid.sync(), and two words that CUDA's headers do not name.
_WORKSPACE = struct.pack("<4I", 16, 0, 1, 0)
_HOST_WORK = 1 << 31  # above the numbers of launches: those of what the host does beside them


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch of a device: what it was asked for, and its report once it is over. `params` are all parameters, as the
    kernel reads them."""

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    params: bytes
    cooperative: bool
    programmatic: bool
    report: Report | None = None


class Device(Memory):
    """One machine: its memory lives as long as the object. Not for use from several threads at once.

    `schedule` says when asynchronous work completes and in which order warps run; `random` draws it from `seed`, and so
    does `pct`, by priorities that change `depth` - 1 times in the first `steps` steps of a launch: `search` chooses.
    `spurious` is `realistic` with waits on mbarriers that fail, drawn from `seed`, though their phase is complete.
    `profile` "strict" reports every broken rule, "lenient" leaves out those that released kernels are known to break.
    `mma_sums` "silicon" makes the sums of tcgen05.mma as a B200 does, "fast" in an order that is fast on the host.
    `checks` False turns conflict checks off (faults are still faults). `waivers` mark findings that are accepted.
    `max_instructions` ends a launch that executes more warp instructions. `threads` of the host may run CTAs side by
    side; what a launch does and reports is the same with any number of them. `watch` marks the instructions that are
    executed, for `coverage`. `timing` names the GPU, one of timing.architecture's NAMES, whose time is modelled
    (docs/understand/timing.md): then reports have a `timing`. `sampled` True runs only the clusters that the model
    looks at: the rest of the outputs is not written. `reordered` is for a timing that is given ranks. `multiprocessors`
    says how many CTAs are resident at a time.
    """

    def __init__(
        self,
        seed: int = 0,
        schedule: Schedule = "realistic",
        profile: Profile = "strict",
        checks: bool = True,
        waivers: Sequence[Waiver] = (),
        max_instructions: int | None = None,
        threads: int = 1,
        mma_sums: MmaSums = "fast",
        watch: bool = False,
        timing: str | None = None,
        sampled: bool = False,
        multiprocessors: int = 148,
        depth: int = 3,
        steps: int = 1000,
        reordered: bool = False,
    ) -> None:
        if sampled and timing is None:
            raise ValueError("sampled is for a device with timing")
        super().__init__(
            machine_of(
                seed,
                schedule,
                profile,
                checks,
                max_instructions,
                threads,
                mma_sums,
                watch,
                multiprocessors,
                depth,
                steps,
            )
        )
        self._timed = None if timing is None else TimedMachine(self._machine, timing, sampled)
        self._watched = ExecutedMarks(self._machine)
        self._waivers = tuple(waivers)
        self._dynamic_shared: dict[tuple[Module, str], int] = {}  # that launches from the device may have
        self._workspace: Buffer | None = None  # of cooperative launches
        self.work: Sequence[float] = ()  # with timing: what each cluster of the next launch of so many has to do
        self.counter = 0  # sampled: the address of a count from which CTAs draw, each what it would if all did in turns
        self.looked_at: Sequence[int] = ()  # with timing: clusters that are, in place of those that the model chooses
        self._reordered = reordered
        self._observers = 0
        self._host_work = 0
        self._sources: dict[int, Sequence[Instruction]] = {}  # by launch, of those that reports may name
        self.launches = 0  # that have begun: the number of the latest
        self.latest: Launched | None = None  # of those

    def stop(self) -> None:
        """Ends the launch that another thread has in progress, with `instruction-limit` found; and all to come."""
        self._machine.max_instructions = 0

    def resident(
        self,
        module: Module,
        entry: str,
        block: int | Sequence[int],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] = 1,
    ) -> int:
        """How many clusters of a launch the device holds at a time. PtxError for what is not modelled."""
        decoded = self._decode(module, entry)
        return self._machine.resident_clusters(
            decoded.program, dim3("block", block), dim3("cluster", cluster), shared_bytes
        )

    @property
    def profile(self) -> Profile:
        """Of the launches to come."""
        return PROFILES[self._machine.profile]

    @profile.setter
    def profile(self, profile: Profile) -> None:
        self._machine.profile = PROFILES.index(profile)

    @property
    def heap_bytes(self) -> int:
        """What the kernels' malloc may have given at a time, cudaLimitMallocHeapSize: 8 MiB at first."""
        return self._machine.heap_limit

    @heap_bytes.setter
    def heap_bytes(self, nbytes: int) -> None:
        self._machine.heap_limit = nbytes

    @property
    def pending_launches(self) -> int:
        """What kernels are told of cudaLimitDevRuntimePendingLaunchCount: 2048 at first. More launches are no error,
        as an H200 has it."""
        return self._machine.pending_limit

    @pending_launches.setter
    def pending_launches(self, grids: int) -> None:
        self._machine.pending_limit = grids

    def permit_dynamic_shared(self, module: Module, entry: str, nbytes: int) -> None:
        """So much dynamic shared memory may launches of `entry` from the device have, as the host sets
        cudaFuncAttributeMaxDynamicSharedMemorySize; at first it is 48 KiB with the static part. `launch` asks for no
        permission. LaunchError for more than a CTA has, and for an unknown entry."""
        if entry not in module.entries:
            raise no_entry(module, entry)
        if not 0 <= nbytes <= MAX_SHARED_BYTES:
            raise LaunchError(f"{nbytes} bytes of shared memory; a CTA has {MAX_SHARED_BYTES}")
        self._dynamic_shared[module, entry] = nbytes

    # Launching

    def launch(
        self,
        module: Module,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[bytes | int | float],
        shared_bytes: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
        first_plane: int = 0,
        beside: Sequence[int] | None = None,
        title: str | None = None,
        after: int = 0,
        stream: str = "",
    ) -> Report:
        """Runs a grid to its end. `cluster` defaults to the kernel's own .reqnctapercluster, or to one CTA.

        Of the grid, a block and a cluster x, y and z are given; those that are left out are 1. `args` are the kernel's
        parameters in order: raw bytes of the parameter's size, or a number. In a `cooperative` launch, as
        cuLaunchCooperativeKernel makes it, all CTAs are resident and may synchronise (grid.sync()). A `programmatic`
        launch (cudaLaunchAttributeProgrammaticStreamSerialization) may begin once the launch before it on this device
        has executed griddepcontrol.launch_dependents: what the two access is ordered by griddepcontrol.wait alone.
        `after` is the number of the launch that it follows, where one of another stream has come in between.
        `beside` names earlier launches, counted as `launches` does, that may be running still, in other streams: all
        others are over. Not None says as well that launches to come may be beside this one. `title` is what reports of
        later launches call the kernel, by default its name, and `stream` what they call its stream.
        CTAs of a lower z than `first_plane` are left out, and what they would have written stays as it was.
        Raises LaunchError for what the driver would refuse and PtxError for PTX that the machine does not model; all
        that the kernel does wrong is in the report.
        """
        info = module.entries.get(entry)
        if info is None:
            raise no_entry(module, entry)
        decoded = self._decode(module, entry)
        ctas, threads = dim3("grid", grid), dim3("block", block)
        check_launch(module.target, info, decoded, ctas, threads, shared_bytes)
        clusters = cluster_dims(info, ctas, None if cluster is None else dim3("cluster", cluster))
        if not 0 <= first_plane < ctas[2] or first_plane % clusters[2]:
            raise LaunchError(f"first_plane is {first_plane}; the grid has {ctas[2]} planes, {clusters[2]} a cluster")
        check_size((*ctas[:2], ctas[2] - first_plane), threads, self._machine.max_instructions)
        packed = pack_args(info, args)
        below = self._below(module, entry, decoded)
        workspace = self._cooperate(decoded, ctas, threads, clusters, shared_bytes) if cooperative else 0
        before = time.thread_time()
        self.launches += 1
        asked = Launched(entry, ctas, threads, clusters, shared_bytes, packed, cooperative, programmatic)
        self.latest = asked
        if not beside and not programmatic:
            self._sources.clear()  # of launches that are over
        self._sources[self.launches] = decoded.sources
        shape = None
        if self._timed is not None:
            in_memory = sum(b.nbytes for b in self._buffers.values())
            launch = (info, decoded, ctas, threads, clusters, shared_bytes)
            shape = self._timed.record(*launch, self.work, in_memory, self.counter, self.looked_at)
            self.work = () if shape.work else self.work  # a launch behind it may be of as many
        raw = self._machine.run(
            decoded.program,
            ctas,
            threads,
            clusters,
            shared_bytes,
            packed,
            workspace,
            programmatic,
            first_plane,
            number=self.launches,
            beside=list(beside or ()),
            overlaps=beside is not None,
            after=after,
            name=f"launch {self.launches}, {brief(title or readable(entry))}",
            stream=stream,
        )
        self._watched.mark(module, entry)
        findings = findings_of(decoded.sources, raw, self._sources, cooperative, decoded.shared, self._waivers)
        printed = tuple(self._machine.printed)
        if below is not None:
            findings, printed = below.run(findings, printed)
        stats = dict(self._machine.stats) | {"thread_seconds": time.thread_time() - before}
        timing = None
        if self._timed is not None and shape is not None:
            timing = self._timed.timing(decoded, shape, self._sizes)
        report = Report(findings, stats, timing, printed)
        self.latest = replace(asked, report=report)
        return report

    def host_work(
        self, name: str, accesses: Sequence[tuple[int, int, bool, str]], beside: Sequence[int], stream: str = ""
    ) -> tuple[int, tuple[Finding, ...]]:
        """A copy, a fill or a release of memory that works in the order of a stream: of each access the address, the
        size, whether it writes and the verb that reports use. Call it when the bytes are there, and before they are
        gone. `beside` and `stream` are as in `launch`. The number by which `beside` of later work names it, and what is
        wrong."""
        self._host_work += 1
        number = _HOST_WORK + self._host_work
        raw = self._machine.work_for_host(number, list(beside), name, stream, list(accesses))
        return number, findings_of((), raw, self._sources)

    def _below(self, module: Module, entry: str, decoded: Decoded) -> Below | None:
        """The grids that a kernel may launch, of one that uses the device runtime."""
        steps = device_steps(decoded)
        if not steps:
            return None

        def decode(name: str) -> Decoded:
            return self._decode(module, name)

        def ran(name: str) -> None:
            self._watched.mark(module, name)

        def most_shared(name: str, static: int) -> int:
            permitted = self._dynamic_shared.get((module, name))
            return max(static, SHARED_UNASKED) if permitted is None else min(static + permitted, MAX_SHARED_BYTES)

        tell_kernels(self._machine, module.parsed, entry, entry_of, decode, most_shared)
        if "launch" not in steps:
            return None
        if self._timed is not None:
            raise UnmodelledError(f"{entry} launches kernels: how long that takes is not modelled")
        if self._observers:
            raise UnmodelledError(f"{entry} launches kernels: an observer is shown one kernel a launch")
        return Below(self._machine, module.parsed, decode, ran, self._waivers)

    @contextmanager
    def observed(self, observer: _core.Observer) -> Iterator[None]:
        """Shows `observer` what launches do meanwhile. They run on one thread of the host then, and several times as
        long; what they do is the same."""
        observer.watch(self._machine)
        self._observers += 1
        try:
            yield
        finally:
            self._observers -= 1
            observer.leave()

    def decoded(self, module: Module, entry: str) -> Decoded:
        """The program that a launch of `entry` runs. PtxError for what is not modelled."""
        return self._decode(module, entry)

    def watch(self) -> None:
        """From now on launches mark the instructions that they execute, for `coverage`."""
        self._watched.start()

    def executed(self, module: Module) -> dict[str, bytes]:
        """What this device's launches have executed of each entry of `module`: a byte an instruction, 1 or 0; no bytes
        for an entry that it has not launched, or not watched."""
        return self._watched.executed(module)

    def coverage(self, module: Module, executed: Mapping[str, bytes] | None = None) -> dict[str, ExecutedLines]:
        """The lines of each entry of `module`, and what `executed`, by default this device's own, has of them."""
        marks = self.executed(module) if executed is None else executed
        return {entry: coverage_of(self._decode(module, entry).sources, marks[entry]) for entry in module.entries}

    def _cooperate(self, decoded: Decoded, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int) -> int:
        """The address of the workspace that the CTAs of a cooperative launch meet at. LaunchError for too many CTAs."""
        size = cluster[0] * cluster[1] * cluster[2]
        most = size * self._machine.resident_clusters(decoded.program, block, cluster, shared_bytes)
        if grid[0] * grid[1] * grid[2] > most:
            raise LaunchError(
                f"a cooperative launch of {grid[0] * grid[1] * grid[2]} CTAs; the device holds {most} of them at a time"
            )
        if self._workspace is None:
            self._workspace = self.alloc(len(_WORKSPACE), "the cooperative launch's workspace")
        self.write(self._workspace.address, _WORKSPACE)
        return self._workspace.address

    def _decode(self, module: Module, entry: str) -> Decoded:
        return module.decode(entry, self._placed(module), apart=self._reordered)


Around = Callable[
    [Device, Module, str], AbstractContextManager[object]
]  # what somebody who looks on makes for a launch
