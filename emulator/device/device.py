"""The emulator's public face: load PTX, fill device memory, launch, read back, get a report."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.coverage import Coverage, coverage_of
from fmha.emulator.decode import (
    MULTIMEM,
    Decoded,
    decode_entry,
    device_steps,
    function_address,
    parameter_layout,
)
from fmha.emulator.fatbin import FatbinError, embedded_ptx, is_binary
from fmha.emulator.grids import Below, tell_device, tell_kernels
from fmha.emulator.names import brief, readable
from fmha.emulator.ptx import Function, Instruction, PtxError, Variable, parse
from fmha.emulator.ptx import Module as ParsedModule
from fmha.emulator.report import Finding, Report, Waiver, apply_waivers, findings_of
from fmha.emulator.textures import Image, Sampler, packed
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch import (
    Shape,
    Timing,
    at_once,
    behind_first,
    first_ctas,
    resident_ctas,
    sampled,
    sampled_by,
)

if TYPE_CHECKING:
    from torch import Tensor

Schedule = Literal["realistic", "early", "late", "random", "spurious", "pct"]
Profile = Literal["strict", "lenient"]
MmaSums = Literal["fast", "silicon"]
Dim3 = tuple[int, int, int]

SCHEDULES: tuple[Schedule, ...] = ("realistic", "early", "late", "random", "spurious")
_SEARCHING: tuple[Schedule, ...] = ("pct",)  # of fmha.emulator.search, with `depth` and `steps` of their own
PROFILES: tuple[Profile, ...] = ("strict", "lenient")
MMA_SUMS: tuple[MmaSums, ...] = ("fast", "silicon")
MAX_DEPTH = 32  # of a race that pct looks for
MAX_SHARED_BYTES = 232448  # a CTA's limit on sm_90 and sm_100: 227 KiB
SHARED_UNASKED = 49152  # what a launch may have of it with no permission
_PORTABLE_STATIC_SHARED = 49152
_STATIC_SHARED = {"sm_120a": 101376, "sm_121a": 101376}  # as ptxas 13.0 has it
# What %envreg1 and %envreg2 point at in a cooperative launch, as a driver for an H100 leaves it: the workspace's size,
# the barrier of grid.sync(), and two words that CUDA's headers do not name.
_WORKSPACE = struct.pack("<4I", 16, 0, 1, 0)
_HOST_WORK = 1 << 31  # above the numbers of launches: those of what the host does beside them
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)


class LaunchError(ValueError):
    """A launch that the driver would refuse; the message says which argument and why."""


class UnmodelledError(LaunchError):
    """A launch that a driver would take, and that this machine does not carry out; the message says why."""


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter, sizes in bytes."""

    name: str
    nbytes: int
    align: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    params: tuple[Param, ...]
    param_bytes: int
    max_threads: int | None  # .maxntid, or the product of .reqntid
    required_block: Dim3 | None  # .reqntid
    required_cluster: Dim3 | None = None  # .reqnctapercluster
    explicit_cluster: bool = False  # .explicitcluster: a launch has to give cluster dimensions
    max_cluster: int | None = None  # .maxclusterrank
    least_ctas: int | None = None  # .minnctapersm


@dataclass(frozen=True, slots=True)
class Buffer:
    address: int
    nbytes: int
    name: str

    @property
    def multimem_address(self) -> int:
        """Where `multimem` instructions reach it: the address of a multicast object whose team is this device."""
        return self.address + MULTIMEM


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


class Module:
    """Parsed PTX. Entries are decoded when they are first launched."""

    def __init__(self, parsed: ParsedModule) -> None:
        self.parsed = parsed
        self.entries = {name: _entry(f) for name, f in parsed.entries.items() if f.defined}
        self._decoded: dict[tuple[object, ...], Decoded] = {}

    @property
    def target(self) -> str:
        return self.parsed.target

    def decode(self, entry: str, symbols: Mapping[str, int], shared: bool = True) -> Decoded:
        """The program of an entry whose module's variables lie at `symbols`; PtxError for what is not modelled. Its
        registers share places, or do not, so that its instructions can be ordered anew."""
        key = (entry, shared, *sorted(symbols.items()))
        if key not in self._decoded:
            self._decoded[key] = decode_entry(self.parsed, entry, symbols, shared)
        return self._decoded[key]


def _entry(function: Function) -> Entry:
    offsets, total = parameter_layout(function)
    params = tuple(Param(p.name, p.nbytes, p.align, offsets[p.name]) for p in function.params)
    directives = function.directives
    required = directives.get("reqntid")
    limit = required or directives.get("maxntid")
    threads = int(np.prod([int(x) for x in limit])) if limit else None
    block = _three(required) if required else None
    cluster = directives.get("reqnctapercluster")
    most = directives.get("maxclusterrank")
    least = directives.get("minnctapersm")
    return Entry(
        function.name,
        params,
        total,
        threads,
        block,
        _three(cluster) if cluster else None,
        "explicitcluster" in directives,
        int(most[0]) if most else None,
        int(least[0]) if least else None,
    )


def _three(values: Sequence[object]) -> Dim3:
    x, y, z = (*(int(str(n)) for n in values), 1, 1)[:3]
    return (x, y, z)


def load_ptx(source: str | Path, arch: int | None = None) -> Module:
    """Parses PTX text, or the file at a path: PTX, or a fat binary, object or executable that holds PTX.

    `arch` chooses among the targets of a binary that holds several: 100 for sm_100a. Raises PtxError naming the line,
    and FatbinError for a binary without PTX, or with several modules of which none is chosen.
    """
    if not isinstance(source, Path):
        return Module(parse(source))
    data = source.read_bytes()
    if not is_binary(data):
        return Module(parse(data.decode(), str(source)))
    found = [ptx for ptx in embedded_ptx(data) if arch is None or ptx.arch == arch]
    if len(found) != 1:
        inside = ", ".join(f"compute_{ptx.arch}" for ptx in embedded_ptx(data))
        raise FatbinError(f"{len(found)} PTX modules to choose from (inside: {inside}); pass arch, or link them apart")
    return Module(parse(found[0].text, str(source)))


class Device:
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
        known = (*SCHEDULES, *_SEARCHING)
        if schedule not in known:
            raise ValueError(f"schedule {schedule!r} is not one of {', '.join(known)}")
        if not 1 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth}; 1 to {MAX_DEPTH} are allowed")
        if not 1 <= steps < 2**63:
            raise ValueError(f"steps is {steps}; at least 1 is needed")
        if profile not in PROFILES:
            raise ValueError(f"profile {profile!r} is not one of {', '.join(PROFILES)}")
        if mma_sums not in MMA_SUMS:
            raise ValueError(f"mma_sums {mma_sums!r} is not one of {', '.join(MMA_SUMS)}")
        if threads < 1:
            raise ValueError(f"threads is {threads}; at least 1 is needed")
        self._machine = _core.Machine()
        self._machine.threads = threads
        self._machine.multiprocessors = multiprocessors
        self._machine.seed = seed
        self._machine.schedule = known.index(schedule)
        self._machine.depth, self._machine.steps = depth, steps
        self._machine.profile = PROFILES.index(profile)
        self._machine.mma_sums = MMA_SUMS.index(mma_sums)
        self._machine.checks = checks
        self._machine.watched = watch
        tell_device(self._machine)
        if max_instructions is not None:
            self._machine.max_instructions = max_instructions
        self._waivers = tuple(waivers)
        self._symbols: dict[Module, dict[str, int]] = {}
        self._executed: dict[tuple[Module, str], bytes] = {}
        self._dynamic_shared: dict[tuple[Module, str], int] = {}  # that launches from the device may have
        self._workspace: Buffer | None = None  # of cooperative launches
        if sampled and timing is None:
            raise ValueError("sampled is for a device with timing")
        self._architecture = None if timing is None else architecture(timing)
        self._sampled = sampled
        self.work: Sequence[float] = ()  # with timing: what each cluster of a launch of so many has to do, in any unit
        self._reordered = reordered
        self._sizes: dict[int, int] = {}  # of allocations, by their addresses
        self._in_l2: list[int] = []  # allocations that launches have touched, the latest last
        self._buffers: dict[int, Buffer] = {}  # by address
        self._observers = 0
        self._host_work = 0
        self._sources: dict[int, Sequence[Instruction]] = {}  # by launch, of those that reports may name
        self.launches = 0  # that have begun: the number of the latest
        self.latest: Launched | None = None  # of those

    # Memory

    def alloc(self, nbytes: int, name: str = "buffer", zeroed: bool = False) -> Buffer:
        """Device memory, 256-byte aligned, with a guard gap behind it; `name` appears in reports.

        It is full of NaN, and a kernel that reads what neither `write` nor a launch has written is reported. `zeroed`
        makes it zero, as cudaMemset does, and counts as written.
        """
        if nbytes <= 0:
            raise ValueError(f"allocation of {nbytes} bytes")
        buffer = Buffer(self._machine.allocate(nbytes, name), nbytes, name)
        self._buffers[buffer.address] = buffer
        self._sizes[buffer.address] = nbytes
        if zeroed:
            self._machine.zero(buffer.address, nbytes)
        return buffer

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
            raise _no_entry(module, entry)
        if not 0 <= nbytes <= MAX_SHARED_BYTES:
            raise LaunchError(f"{nbytes} bytes of shared memory; a CTA has {MAX_SHARED_BYTES}")
        self._dynamic_shared[module, entry] = nbytes

    def reserve(self, nbytes: int) -> int:
        """Addresses that no other buffer gets, 256-byte aligned. There is memory where `back` puts some: a tensor may
        be larger than this computer's memory, and only what a kernel touches of it be there."""
        if nbytes <= 0:
            raise ValueError(f"reservation of {nbytes} bytes")
        return self._machine.reserve(nbytes)

    def back(self, address: int, nbytes: int, name: str = "buffer") -> Buffer:
        """Memory at addresses that are reserved, as `alloc` makes it. ValueError where some of them are not free."""
        if nbytes <= 0 or address % 256:
            raise ValueError(f"{nbytes} bytes at {address:#x}: memory begins at a multiple of 256")
        self._machine.back(address, nbytes, name)
        buffer = Buffer(address, nbytes, name)
        self._buffers[address] = buffer
        self._sizes[address] = nbytes
        return buffer

    def free(self, buffer: Buffer) -> None:
        self._machine.release(buffer.address)
        del self._buffers[buffer.address]

    def buffer_at(self, address: int) -> Buffer | None:
        """The buffer that holds an address."""
        held = (b for b in self._buffers.values() if b.address <= address < b.address + b.nbytes)
        return next(held, None)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The memory that is there, by its addresses."""
        return tuple(self._buffers[address] for address in sorted(self._buffers))

    def write(self, address: int, data: NDArray[Any] | Tensor | bytes) -> None:
        """Copies the bytes of an array or a torch tensor. IndexError when they do not fit one allocation."""
        self._machine.write(address, data if isinstance(data, bytes) else _bytes_of(data))

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Copies bytes from the device. IndexError when they are not in one allocation."""
        return np.frombuffer(self._machine.read(address, nbytes), dtype=np.uint8).copy()

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes on the device; those that nobody has written stay so. IndexError when they do not fit."""
        self._machine.copy(to, source, nbytes)

    def texture(self, image: Image, sampler: Sampler | None = None) -> int:
        """A texture object: its handle, which is a kernel's argument of 64 bits. ImageError for what CUDA refuses."""
        return self._machine.add_image(packed(image, sampler or Sampler()))

    def surface(self, image: Image) -> int:
        """The same for a surface object."""
        return self._machine.add_image(packed(image, None))

    def destroy(self, handle: int) -> None:
        """Of a texture or surface object. ValueError where it is none."""
        if not self._machine.drop_image(handle):
            raise ValueError(f"0x{handle:x} is no texture or surface object")

    def variables(self, module: Module) -> dict[str, Buffer]:
        """Where the .global and .const variables of a module lie. LaunchError where there is no room."""
        places, sizes = self._placed(module), module.parsed.variables
        return {name: Buffer(address, max(sizes[name].nbytes, 1), name) for name, address in places.items()}

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
            decoded.program, _dim3("block", block), _dim3("cluster", cluster), shared_bytes
        )

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
    ) -> Report:
        """Runs a grid to its end. `cluster` defaults to the kernel's own .reqnctapercluster, or to one CTA.

        Of the grid, a block and a cluster x, y and z are given; those that are left out are 1. `args` are the kernel's
        parameters in order: raw bytes of the parameter's size, or a number. In a `cooperative` launch, as
        cuLaunchCooperativeKernel makes it, all CTAs are resident and may synchronise (grid.sync()). A `programmatic`
        launch (cudaLaunchAttributeProgrammaticStreamSerialization) may begin once the launch before it on this device
        has executed griddepcontrol.launch_dependents: what the two access is ordered by griddepcontrol.wait alone.
        `beside` names earlier launches, counted as `launches` does, that may be running still, in other streams: all
        others are over. Not None says as well that launches to come may be beside this one. `title` is what reports of
        later launches call the kernel, by default its name.
        CTAs of a lower z than `first_plane` are left out, and what they would have written stays as it was.
        Raises LaunchError for what the driver would refuse and PtxError for PTX that the machine does not model; all
        that the kernel does wrong is in the report.
        """
        info = module.entries.get(entry)
        if info is None:
            raise _no_entry(module, entry)
        decoded = self._decode(module, entry)
        ctas, threads = _dim3("grid", grid), _dim3("block", block)
        _check_launch(module.target, info, decoded, ctas, threads, shared_bytes)
        clusters = _cluster_dims(info, ctas, None if cluster is None else _dim3("cluster", cluster))
        if not 0 <= first_plane < ctas[2] or first_plane % clusters[2]:
            raise LaunchError(f"first_plane is {first_plane}; the grid has {ctas[2]} planes, {clusters[2]} a cluster")
        _check_size((*ctas[:2], ctas[2] - first_plane), threads, self._machine.max_instructions)
        packed = _pack_args(info, args)
        below = self._below(module, entry, decoded)
        workspace = self._cooperate(decoded, ctas, threads, clusters, shared_bytes) if cooperative else 0
        before = time.thread_time()
        self.launches += 1
        asked = Launched(entry, ctas, threads, clusters, shared_bytes, packed, cooperative, programmatic)
        self.latest = asked
        if beside is None and not programmatic:
            self._sources.clear()  # of launches that are over
        self._sources[self.launches] = decoded.sources
        shape = self._record(info, decoded, ctas, threads, clusters, shared_bytes)
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
            name=f"launch {self.launches}, {brief(title or readable(entry))}",
        )
        if self._machine.watched:
            self._mark(module, entry)
        findings = findings_of(decoded.sources, raw, self._sources, cooperative)
        printed = tuple(self._machine.printed)
        if below is not None:
            findings, printed = below.run(findings, printed)
        stats = dict(self._machine.stats) | {"thread_seconds": time.thread_time() - before}
        timing = None if shape is None else self._timing(decoded, shape)
        report = Report(apply_waivers(findings, self._waivers), stats, timing, printed)
        self.latest = replace(asked, report=report)
        return report

    def host_work(
        self, name: str, accesses: Sequence[tuple[int, int, bool, str]], beside: Sequence[int]
    ) -> tuple[int, tuple[Finding, ...]]:
        """A copy, a fill or a release of memory that works in the order of a stream: of each access the address, the
        size, whether it writes and the verb that reports use. Call it when the bytes are there, and before they are
        gone. `beside` is as in `launch`. The number by which `beside` of later work names it, and what is wrong."""
        self._host_work += 1
        number = _HOST_WORK + self._host_work
        raw = self._machine.work_for_host(number, list(beside), name, list(accesses))
        return number, findings_of((), raw, self._sources)

    def _below(self, module: Module, entry: str, decoded: Decoded) -> Below | None:
        """The grids that a kernel may launch, of one that uses the device runtime."""
        steps = device_steps(decoded)
        if not steps:
            return None

        def decode(name: str) -> Decoded:
            return self._decode(module, name)

        def ran(name: str) -> None:
            if self._machine.watched:
                self._mark(module, name)

        def most_shared(name: str, static: int) -> int:
            permitted = self._dynamic_shared.get((module, name))
            return max(static, SHARED_UNASKED) if permitted is None else min(static + permitted, MAX_SHARED_BYTES)

        tell_kernels(self._machine, module.parsed, entry, _entry, decode, most_shared)
        if "launch" not in steps:
            return None
        if self._architecture is not None:
            raise UnmodelledError(f"{entry} launches kernels: how long that takes is not modelled")
        if self._observers:
            raise UnmodelledError(f"{entry} launches kernels: an observer is shown one kernel a launch")
        return Below(self._machine, module.parsed, decode, ran)

    def _record(
        self, info: Entry, decoded: Decoded, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int
    ) -> Shape | None:
        """Asks the machine for recordings of some clusters of the launch to come."""
        if self._architecture is None:
            return None
        along_x, size = grid[0] // cluster[0], math.prod(cluster)
        samples = tuple(x * cluster[0] for x in sampled(along_x))
        firsts: tuple[int, ...] = ()
        if len(self.work) * size == math.prod(grid):
            firsts = first_ctas(grid, cluster)
            samples = tuple(firsts[n] for n in sampled_by(self.work))
        second = behind_first(grid, cluster)
        self._machine.recorded = sorted({*samples, *(() if second is None else (second,))})
        self._machine.only_recorded = self._sampled
        by_memory = self._machine.resident_clusters(decoded.program, block, (1, 1, 1), shared_bytes)
        by_memory //= self._machine.multiprocessors
        resident = resident_ctas(
            by_memory, math.prod(block), self._architecture.registers, info.least_ctas, decoded.live
        )
        shape = Shape(along_x, cluster[0], math.prod(grid) // size, size, resident, samples, second)
        if firsts:
            shape = replace(shape, firsts=firsts, work=tuple(self.work))
        # Of a launch that fits into L2 and into one wave with room to spare nobody needs to know who reads what.
        small = sum(b.nbytes for b in self._buffers.values()) <= self._architecture.l2_capacity.value
        one_turn = small and shape.clusters < shape.slots(self._architecture)
        self._machine.glimpsed = [] if one_turn else at_once(grid, cluster, shape.slots(self._architecture))
        return shape

    def _timing(self, decoded: Decoded, shape: Shape) -> Timing:
        assert self._architecture is not None
        assert self._machine.recorder is not None
        held, room = set(), self._architecture.l2_capacity.value
        for base in reversed(self._in_l2):
            room -= self._sizes.get(base, 0)
            if room >= 0:
                held.add(base)
        timing = Timing(
            self._architecture,
            self._machine.recorder,
            decoded.program,
            decoded.sources,
            shape,
            self._sizes,
            frozenset(held),
        )
        self._in_l2 = [base for base in self._in_l2 if base not in timing.touched] + sorted(timing.touched)
        return timing

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
        self._machine.watched = True

    def executed(self, module: Module) -> dict[str, bytes]:
        """What this device's launches have executed of each entry of `module`: a byte an instruction, 1 or 0; no bytes
        for an entry that it has not launched, or not watched."""
        return {entry: self._executed.get((module, entry), b"") for entry in module.entries}

    def coverage(self, module: Module, executed: Mapping[str, bytes] | None = None) -> dict[str, Coverage]:
        """The lines of each entry of `module`, and what `executed`, by default this device's own, has of them."""
        marks = self.executed(module) if executed is None else executed
        return {entry: coverage_of(self._decode(module, entry).sources, marks[entry]) for entry in module.entries}

    def _mark(self, module: Module, entry: str) -> None:
        new, before = self._machine.executed, self._executed.get((module, entry), b"")
        if before:
            new = bytes(np.frombuffer(new, np.uint8) | np.frombuffer(before, np.uint8))
        self._executed[module, entry] = new

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
        return module.decode(entry, self._placed(module), shared=not self._reordered)

    def _placed(self, module: Module) -> dict[str, int]:
        if module not in self._symbols:
            self._symbols[module] = self._place_variables(module)
        return self._symbols[module]

    def _place_variables(self, module: Module) -> dict[str, int]:
        """Gives the module's .global and .const variables device memory and their initial values."""
        variables = [v for v in module.parsed.variables.values() if v.space in ("global", "const") and not v.extern]
        placed: dict[str, int] = {}
        for v in variables:
            try:
                placed[v.name] = self._machine.allocate(max(v.nbytes, 1), v.name)
                self._machine.zero(placed[v.name], max(v.nbytes, 1))
            except (MemoryError, TypeError, ValueError):  # of more than 64 bits, or than there are addresses
                raise LaunchError(f"there is no room for the {v.nbytes} bytes of {v.name}") from None
        for v in variables:
            if v.initializer:
                self._machine.write(placed[v.name], _initial_bytes(v, module.parsed, placed))
        return placed


Around = Callable[
    [Device, Module, str], AbstractContextManager[object]
]  # what somebody who looks on makes for a launch


def _no_entry(module: Module, entry: str) -> LaunchError:
    return LaunchError(f"no entry {entry!r}; the module has {', '.join(module.entries) or 'none'}")


def _initial_bytes(v: Variable, module: ParsedModule, placed: Mapping[str, int]) -> bytes:
    """A variable's initializer with the addresses that it names: of variables and functions, or bytes of one."""
    data = bytearray(v.initializer or b"")
    for r in v.relocations:
        if r.symbol in placed:
            address = placed[r.symbol]
        elif r.symbol in module.functions:
            address = function_address(module, r.symbol)
        else:
            message = f"initializer of '{v.name}' holds the address of '{r.symbol}', which is not modelled"
            raise PtxError(message, v.line)
        value = address + r.addend
        if r.mask:
            value = (value & r.mask) >> (r.mask & -r.mask).bit_length() - 1
        data[r.offset : r.offset + r.nbytes] = (value % (1 << 8 * r.nbytes)).to_bytes(r.nbytes, "little")
    return bytes(data)


def _bytes_of(data: NDArray[Any] | Tensor) -> bytes:
    if isinstance(data, np.ndarray) or not hasattr(data, "untyped_storage"):
        return np.ascontiguousarray(data).tobytes()
    import torch  # here: whoever has a tensor has it

    # As bytes: NumPy has not all of torch's types.
    raw: bytes = data.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return raw


def _dim3(name: str, value: int | Sequence[int]) -> Dim3:
    dims = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(dims) <= 3:
        raise LaunchError(f"{name} has {len(dims)} dimensions; one to three are allowed")
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


_MAX_CLUSTER = 16  # more than 8 is non-portable, which a launch on this device opts into


def _cluster_dims(info: Entry, grid: Dim3, cluster: Dim3 | None) -> Dim3:
    """The cluster dimensions of a launch, after the driver's checks."""
    required = info.required_cluster
    if cluster is None and required is None and info.explicit_cluster:
        raise LaunchError(f"{info.name} is declared .explicitcluster: the launch has to give cluster dimensions")
    dims = cluster or required or (1, 1, 1)
    if required and dims != required:
        raise LaunchError(f"cluster is {dims}; {info.name} requires {required}")
    size = dims[0] * dims[1] * dims[2]
    if min(dims) < 1 or size > _MAX_CLUSTER:
        raise LaunchError(f"cluster is {dims}; 1..{_MAX_CLUSTER} CTAs are allowed")
    if info.max_cluster is not None and size > info.max_cluster:
        raise LaunchError(f"cluster of {size} CTAs; {info.name} allows {info.max_cluster}")
    for axis, n, c in zip("xyz", grid, dims, strict=True):
        if n % c:
            raise LaunchError(f"grid.{axis} is {n}, no multiple of the cluster's {c}")
    return dims


def _static_shared(target: str) -> int:
    """The static shared memory that ptxas allows: all of a CTA's for a target of one architecture alone."""
    return _STATIC_SHARED.get(target, MAX_SHARED_BYTES if target.endswith("a") else _PORTABLE_STATIC_SHARED)


def _check_launch(target: str, info: Entry, decoded: Decoded, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    for name, value, limits in (("grid", grid, _MAX_GRID), ("block", block, _MAX_BLOCK)):
        for axis, n, limit in zip("xyz", value, limits, strict=True):
            if not 1 <= n <= limit:
                raise LaunchError(f"{name}.{axis} is {n}; 1..{limit} is allowed")
    threads = block[0] * block[1] * block[2]
    limit = info.max_threads or 1024
    if threads > min(limit, 1024):
        raise LaunchError(f"{threads} threads a CTA; {info.name} allows {min(limit, 1024)}")
    if info.required_block and tuple(block) != info.required_block:
        raise LaunchError(f"block is {block}; {info.name} requires {info.required_block}")
    if shared_bytes < 0 or decoded.shared_static + shared_bytes > MAX_SHARED_BYTES:
        asked = f"{decoded.shared_static} static and {shared_bytes} dynamic bytes"
        raise LaunchError(f"{asked} of shared memory; a CTA has {MAX_SHARED_BYTES}")
    if decoded.shared_static > _static_shared(target):
        asked = f"{decoded.shared_static} bytes of static shared memory"
        raise LaunchError(f"{asked}; {_static_shared(target)} are allowed for {target}")


def _check_size(grid: Dim3, block: Dim3, most: int) -> None:
    """A warp executes one instruction at least: some grids could not end within the limit."""
    warps = math.prod(grid) * -(-math.prod(block) // 32)
    if warps > most:
        raise UnmodelledError(f"{warps:,} warps; a launch may execute {most:,} instructions: launch a smaller grid")


def _pack_args(info: Entry, args: Sequence[bytes | int | float]) -> bytes:
    if len(args) != len(info.params):
        raise LaunchError(f"{info.name} takes {len(info.params)} parameters, {len(args)} were passed")
    out = bytearray(info.param_bytes)
    for param, value in zip(info.params, args, strict=True):
        out[param.offset : param.offset + param.nbytes] = _argument_bytes(param, value)
    return bytes(out)


def _argument_bytes(param: Param, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        if len(value) != param.nbytes:
            raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, {len(value)} were passed")
        return value
    if isinstance(value, int):
        try:
            return value.to_bytes(param.nbytes, "little", signed=value < 0)
        except OverflowError:
            raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, {value} does not fit") from None
    if param.nbytes not in (4, 8):
        raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, a float has 4 or 8")
    return struct.pack("<f" if param.nbytes == 4 else "<d", value)
