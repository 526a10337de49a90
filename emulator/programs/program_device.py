"""The device of one process of a program: memory, modules and launches as its CUDA runtime asks for them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.decode import Decoded, uses_heap
from fmha.emulator.device import SHARED_UNASKED, Around, Buffer, Device, Entry, LaunchError, Module, Profile, Schedule
from fmha.emulator.fatbin import FatbinError
from fmha.emulator.grids import PORTABLE_CLUSTER
from fmha.emulator.launch_report import Finding, causes
from fmha.emulator.names import brief
from fmha.emulator.programs.fields import PitchedBox, image_of, sampler_of, tensor_of
from fmha.emulator.programs.gpu_models import GPUS, EmulatedGpu
from fmha.emulator.programs.images import units_for
from fmha.emulator.programs.statuses import (
    CLUSTER_SIZE,
    COOPERATIVE_TOO_LARGE,
    INVALID_FILTER,
    INVALID_FUNCTION,
    INVALID_PTX,
    INVALID_SCALE,
    INVALID_SYMBOL,
    INVALID_VALUE,
    NO_IMAGE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SUCCESS,
    CudaStatusError,
    fault_of,
)
from fmha.emulator.programs.wire import Field, Fields
from fmha.emulator.ptx import PtxError, link
from fmha.emulator.tensormap import encode_im2col, encode_tiled
from fmha.emulator.tensormap_rules import TensorMapError
from fmha.emulator.texture_objects import FilterError, ImageError, ScaleError
from fmha.emulator.timing.launch_time import Modelled

Answer = tuple[int, Sequence[Field]]
Access = tuple[int, int, bool, str]  # address, size, whether it writes, the verb
Keeping = Literal["whole", "sampled"]

_KINDS: Final = ("cudaMalloc", "cudaMallocManaged", "cudaMallocHost", "cudaHostRegister", "cudaMallocArray")
_HOST_KINDS: Final = range(1, 4)  # which the program has at hand
_DEFAULT_STREAMS: Final = 2
_BRANCHES: Final = 1 << 32  # from here on, the streams that a graph's branches are run in


@dataclass(frozen=True, slots=True)
class Options:
    """Which GPU the program finds, and how the machine runs its launches.

    `timing` has the time of each launch modelled: the `whole` launch runs, or `sampled`, only the few clusters that the
    model looks at. Then outputs are not written, and no hazard is looked for. The time is that of the GPU which the
    program finds, or of another that runs the same code, by the timing model's name for it: `timed_as`.
    """

    arch: str = "sm_100a"
    schedule: Schedule = "realistic"
    seed: int = 0
    profile: Profile = "lenient"
    threads: int = 1
    timing: Keeping | None = None
    timed_as: str | None = None
    around: Around | None = None  # of somebody who looks on: what each launch runs within


@dataclass(frozen=True, slots=True)
class ProgramLaunch:
    """A launch that a program made, and what the machine counted."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stats: Mapping[str, float]
    modelled: Modelled | None = None


@dataclass(frozen=True, slots=True)
class ToldFinding:
    """A finding, in the first launch of this kernel that had it; launches are counted from 1. Of a copy or the like
    `kernel` says what it is, and `launch` is 0. `alike`: others of the launch that have the same cause. `stream` is
    what it is called in a program that has several."""

    finding: Finding
    kernel: str
    launch: int
    alike: int = 0
    stream: str = ""
    names: tuple[str, ...] = ()  # what allocations that the finding names are to the kernel

    def __str__(self) -> str:
        of_stream = f" in {self.stream}" if self.stream else ""
        where = f"launch {self.launch}, {brief(self.kernel)}{of_stream}\n" if self.launch else ""
        more = f"\n  and {self.alike} more between the same lines" if self.alike else ""
        names = "".join(f"\n  {name}" for name in self.names)
        return f"{where}{self.finding}{names}{more}"


@dataclass(slots=True)
class ProgramHistory:
    """What all processes of a program have done."""

    launches: list[ProgramLaunch] = field(default_factory=list)
    findings: list[ToldFinding] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    elapsed: int = 0  # times that were asked of events
    unprinted: int = 0  # bytes of printf that no synchronisation has fetched

    @property
    def hazards(self) -> list[ToldFinding]:
        """Findings that are errors."""
        return [told for told in self.findings if told.finding.severity == "error"]


def _bytes(box: PitchedBox) -> str:
    return f"{box.width * box.height * box.depth} bytes"


def _accesses(box: PitchedBox, verb: str) -> list[Access]:
    return [(at, size, verb == "writes", verb) for at, size in box.rows()]


def _stream_name(number: int) -> str:
    """As a program's author counts them: cudaStreamCreate made the first of these."""
    if number >= _BRANCHES:
        return "a branch of a graph"
    return "the default stream" if number <= _DEFAULT_STREAMS else f"stream {number - _DEFAULT_STREAMS}"


@dataclass(frozen=True, slots=True)
class _Kernel:
    module: Module
    entry: str
    shown: str


@dataclass(slots=True)
class ProgramDevice:
    """Answers one process. `say` takes lines for standard error."""

    options: Options
    seen: ProgramHistory
    say: Callable[[str], None]
    launching: str = ""  # the kernel that is running
    stopped: bool = False  # since the program has ended
    _device: Device | None = None
    _buffers: dict[int, Buffer] = field(default_factory=dict)
    _shared: dict[int, NDArray[np.uint8]] = field(default_factory=dict)  # what the program has of memory that it shares
    _modules: list[Module] = field(default_factory=list)
    _kernels: list[_Kernel] = field(default_factory=list)
    _texts: dict[bytes, Module] = field(default_factory=dict)
    _launched: set[_Kernel] = field(default_factory=set)
    _held: int = 0
    _made: int = 0
    _known: set[tuple[object, ...]] = field(default_factory=set)
    _latest: dict[int, int] = field(default_factory=dict)  # launches, by the numbers of streams

    @property
    def gpu(self) -> EmulatedGpu:
        """The GPU that the program is told it has."""
        return GPUS[self.options.arch]

    @property
    def device(self) -> Device:
        """The machine, made when it is first needed."""
        if self._device is None:
            o = self.options
            self._device = Device(
                o.seed,
                o.schedule,
                o.profile,
                checks=o.timing != "sampled",
                threads=o.threads,
                timing=(o.timed_as or self.gpu.timing) if o.timing else None,
                sampled=o.timing == "sampled",
                multiprocessors=self.gpu.multiprocessors,
            )
        return self._device

    def answer(self, name: str, fields: Fields) -> Answer:
        """A status of CUDA's, and what the call gives."""
        try:
            return SUCCESS, list(OPERATIONS[name](self, fields))
        except CudaStatusError as error:
            if str(error):
                self.say(f"fmha: {error}")
            return error.status, ()
        except IndexError as error:  # of memory: not within one allocation
            self.say(f"fmha: {error}")
            return INVALID_VALUE, ()

    def _refuse(self, what: str) -> CudaStatusError:
        """Of what is not modelled: told once, and counted."""
        self.seen.refused[what] += 1
        return CudaStatusError(NOT_SUPPORTED, f"refused: {what}" if self.seen.refused[what] == 1 else "")

    def stop(self) -> None:
        """The program has ended: ends a launch that is in progress in another thread."""
        self.stopped = True
        self.device.stop()

    # The process

    def hello(self, fields: Fields) -> Iterator[Field]:
        """Answers the first message of a process: the properties of its device."""
        fields.integer()  # its number
        gpu = self.gpu
        yield gpu.name.encode()
        yield from divmod(gpu.arch, 10)
        yield gpu.multiprocessors
        yield self._most_memory()
        yield from (gpu.l2, gpu.bus_bits, gpu.clock, gpu.memory_clock)

    def _most_memory(self) -> int:
        """What of the GPU's memory this host can stand for."""
        return min(self.gpu.memory, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)

    def refused(self, fields: Fields) -> Iterator[Field]:
        """Raises the refusal of what the library does not have, so that the run's end names it."""
        raise self._refuse(fields.text())

    def elapsed(self, fields: Fields) -> Iterator[Field]:
        """Notes that a time was asked for, which the run's end tells."""
        self.seen.elapsed += 1
        yield from ()

    def end(self, fields: Fields) -> Iterator[Field]:
        """Answers the last message: bytes that were printed and not passed on."""
        self.seen.unprinted += fields.integer()
        yield from ()

    def reset(self, fields: Fields) -> Iterator[Field]:
        """cudaDeviceReset: memory and modules are gone."""
        self._device = None
        self._launched.clear()
        self._latest.clear()
        self._buffers.clear()
        self._shared.clear()
        self._held = 0
        yield from ()

    # Memory

    def alloc(self, fields: Fields) -> Iterator[Field]:
        """Allocates device or host memory; cudaErrorMemoryAllocation where there is too little."""
        size, kind = fields.integer(), fields.integer()
        if size > self._most_memory() - self._held:
            raise CudaStatusError(OUT_OF_MEMORY)
        shared = kind in _HOST_KINDS
        self._made += 1
        buffer = self.device.alloc(size, f"{_KINDS[kind]} {self._made}", zeroed=shared)
        self._buffers[buffer.address] = buffer
        self._held += size
        if shared:
            self._shared[buffer.address] = np.zeros(size, np.uint8)
        yield buffer.address

    def free(self, fields: Fields) -> Iterator[Field]:
        """Frees memory, in the order of its stream. cudaErrorInvalidValue for what is no allocation."""
        buffer = self._buffers.pop(fields.integer(), None)
        if buffer is None:
            raise CudaStatusError(INVALID_VALUE)
        yield self._in_order(fields, "cudaFreeAsync", [(buffer.address, buffer.nbytes, True, "frees")])
        self._shared.pop(buffer.address, None)
        self._held -= buffer.nbytes
        self.device.free(buffer)

    def share(self, fields: Fields) -> Iterator[Field]:
        """A managed variable: the program has its bytes, too."""
        address, size = fields.integer(), fields.integer()
        self._shared[address] = self.device.read(address, size)
        yield from ()

    def write(self, fields: Fields) -> Iterator[Field]:
        """Copies from the program's memory to the device's."""
        box, data = PitchedBox.of(fields), fields.data()
        for n, (at, size) in enumerate(box.rows()):
            self.device.write(at, data[n * size : (n + 1) * size])
        yield self._in_order(fields, f"a copy of {_bytes(box)} from the host", _accesses(box, "writes"))

    def read(self, fields: Fields) -> Iterator[Field]:
        """Copies from the device's memory to the program's."""
        box = PitchedBox.of(fields)
        yield self._in_order(fields, f"a copy of {_bytes(box)} to the host", _accesses(box, "reads"))
        yield b"".join(self.device.read(at, size).tobytes() for at, size in box.rows())

    def copy(self, fields: Fields) -> Iterator[Field]:
        """Copies within the device's memory."""
        to = PitchedBox.of(fields)
        source = PitchedBox(*fields.dims(), to.width, to.height, to.depth)
        if to.flat and source.flat:
            self.device.copy(to.address, source.address, to.width * to.height * to.depth)
        else:
            for at, origin in zip(to.steps(), source.steps(), strict=True):
                self.device.copy(at, origin, to.width)
        accesses = [*_accesses(source, "reads"), *_accesses(to, "writes")]
        yield self._in_order(fields, f"a copy of {_bytes(to)} on the device", accesses)

    def fill(self, fields: Fields) -> Iterator[Field]:
        """Fills a box with a value, over and over."""
        box, value = PitchedBox.of(fields), fields.data()
        for at, size in box.rows():
            self.device.write(at, value * (size // len(value)))
        yield self._in_order(fields, f"a cudaMemset of {_bytes(box)}", _accesses(box, "writes"))

    def _in_order(self, fields: Fields, name: str, accesses: Sequence[Access]) -> int:
        """Holds work of the host against launches that may run beside it. Its name, which later launches may give, or
        0 where the program has one stream."""
        stream, several = _stream_name(fields.integer()), bool(fields.integer())
        beside = [fields.integer() for _ in range(fields.integer())]
        if not several or self.options.timing == "sampled":
            return 0
        number, found = self.device.host_work(name, accesses, beside, stream)
        self._tell_all(name, found, 0)
        return number

    def heap(self, fields: Fields) -> Iterator[Field]:
        """cudaLimitMallocHeapSize: no longer once a kernel that allocates has been launched."""
        size = fields.integer()
        if any(uses_heap(self._decoded(kernel)) for kernel in self._launched):
            raise CudaStatusError(
                INVALID_VALUE, "the size of the kernels' heap is set before a kernel that uses it runs"
            )
        self.device.heap_bytes = size
        yield from ()

    def pending(self, fields: Fields) -> Iterator[Field]:
        """cudaLimitDevRuntimePendingLaunchCount."""
        self.device.pending_launches = fields.integer()
        yield from ()

    def permit(self, fields: Fields) -> Iterator[Field]:
        """cudaFuncAttributeMaxDynamicSharedMemorySize, for launches from the device."""
        kernel = self._kernels[fields.integer() - 1]
        self.device.permit_dynamic_shared(kernel.module, kernel.entry, fields.integer())
        yield from ()

    # Modules

    def module(self, fields: Fields) -> Iterator[Field]:
        """Links an image and loads the PTX in it. cudaErrorNoKernelImageForDevice where it has none for this device."""
        image = fields.data()
        if image not in self._texts:
            try:
                self._texts[image] = Module(link(units_for(image, self.gpu.arch)))
            except FatbinError as error:
                self.seen.refused["a module without PTX for this device"] += 1
                raise CudaStatusError(NO_IMAGE, str(error)) from error
            except PtxError as error:
                self.seen.refused["PTX that does not parse"] += 1
                raise CudaStatusError(INVALID_PTX, str(error)) from error
        self._modules.append(self._texts[image])
        yield len(self._modules)

    def function(self, fields: Fields) -> Iterator[Field]:
        """The number of a kernel of a module, and the bytes of its parameters."""
        module, name, shown = self._modules[fields.integer() - 1], fields.text(), fields.text()
        entry = module.entries.get(name)
        if entry is None:
            raise CudaStatusError(INVALID_FUNCTION)
        self._kernels.append(_Kernel(module, name, shown))
        yield len(self._kernels)
        yield entry.param_bytes
        yield len(entry.params)
        for param in entry.params:
            yield from (param.offset, param.nbytes)

    def variable(self, fields: Fields) -> Iterator[Field]:
        """Address and bytes of a variable of a module."""
        module, name = self._modules[fields.integer() - 1], fields.text()
        try:
            found = self.device.variables(module).get(name)
        except LaunchError as error:
            raise CudaStatusError(OUT_OF_MEMORY, str(error)) from error
        if found is None:
            raise CudaStatusError(INVALID_SYMBOL)
        yield from (found.address, found.nbytes)

    def facts(self, fields: Fields) -> Iterator[Field]:
        """What cudaFuncGetAttributes tells. Registers are the most that so many threads may have: no ptxas has said
        how many are used, nor how much local memory."""
        kernel = self._kernels[fields.integer() - 1]
        entry = kernel.module.entries[kernel.entry]
        decoded = self._decoded(kernel)
        constants = [v for v in kernel.module.parsed.variables.values() if v.space == "const"]
        threads = min(entry.max_threads or 1024, 1024)
        yield from (decoded.shared_static, 0, sum(v.nbytes for v in constants), threads)
        yield min(255, 65536 // threads)
        yield self.gpu.arch
        yield from entry.required_cluster or (0, 0, 0)
        yield int(entry.explicit_cluster)

    def _decoded(self, kernel: _Kernel) -> Decoded:
        try:
            return self.device.decoded(kernel.module, kernel.entry)
        except PtxError as error:
            raise self._refuse(f"{kernel.shown}: {error}") from error

    def resident(self, fields: Fields) -> Iterator[Field]:
        """How many CTAs of a kernel a multiprocessor can hold: what occupancy functions are told."""
        kernel, block, shared = self._kernels[fields.integer() - 1], fields.dims(), fields.integer()
        entry = kernel.module.entries[kernel.entry]
        given = fields.dims()
        cluster = given if all(given) else entry.required_cluster or (1, 1, 1)
        if math.prod(block) > min(entry.max_threads or 1024, 1024):
            yield 0
            return
        self._decoded(kernel)
        yield self.device.resident(kernel.module, kernel.entry, block, shared, cluster)

    # Launches

    def launch(self, fields: Fields) -> Iterator[Field]:
        """Launches a kernel, and tells what was found."""
        kernel = self._kernels[fields.integer() - 1]
        grid, block, shared = fields.dims(), fields.dims(), fields.integer()
        asked, most_shared = fields.integer(), fields.integer()
        given = fields.dims()
        non_portable, cooperative, programmatic = (bool(fields.integer()) for _ in range(3))
        params = fields.data()
        stream, several = fields.integer(), bool(fields.integer())
        beside = [fields.integer() for _ in range(fields.integer())]
        changed = [(fields.integer(), fields.data()) for _ in range(fields.integer())]
        for address, data in changed:
            self.device.write(address, data)
            base, held = self._share_of(address)
            held[address - base : address - base + len(data)] = np.frombuffer(data, np.uint8)
        cluster = given if all(given) else None
        self._check(kernel, grid, block, shared, most_shared if asked else None, cluster, non_portable, cooperative)
        entry = kernel.module.entries[kernel.entry]
        arguments = [params[p.offset : p.offset + p.nbytes] for p in entry.params]
        self.launching = kernel.shown
        self._launched.add(kernel)
        look = self.options.around
        try:
            with look(self.device, kernel.module, kernel.entry) if look else nullcontext():
                report = self.device.launch(
                    kernel.module,
                    kernel.entry,
                    grid,
                    block,
                    arguments,
                    shared,
                    cluster,
                    cooperative,
                    programmatic,
                    beside=beside if several else None,
                    title=kernel.shown,
                    after=self._latest.get(stream, 0),
                    stream=_stream_name(stream) if several else "",
                )
        except PtxError as error:
            raise self._refuse(f"{kernel.shown}: {error}") from error
        except LaunchError as error:
            raise CudaStatusError(INVALID_VALUE, f"launch of {kernel.shown}: {error}") from error
        finally:
            self.launching = ""
        modelled = None
        if report.timing is not None:
            report.timing.overlaps = programmatic
            modelled = report.timing.modelled()
        self.seen.launches.append(ProgramLaunch(kernel.shown, grid, block, report.stats, modelled))
        self._latest[stream] = self.device.launches
        self._tell_all(
            kernel.shown,
            report.findings,
            len(self.seen.launches),
            self._pointed_at(entry, params) if report.findings else {},
            _stream_name(stream) if several else "",
        )
        yield self.device.launches
        yield fault_of(report)
        yield len(report.printed)
        for to_error, text in report.printed:
            yield from (int(to_error), text)
        yield from self._changes()

    def _check(
        self,
        kernel: _Kernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        most_shared: int | None,
        cluster: tuple[int, int, int] | None,
        non_portable: bool,
        cooperative: bool,
    ) -> None:
        """Refuses what the driver refuses that `Device.launch` has no own error for, with the driver's error."""

        def refuse(status: int, why: str) -> CudaStatusError:
            return CudaStatusError(status, f"launch of {kernel.shown}: {why}")

        entry = kernel.module.entries[kernel.entry]
        threads = math.prod(block)
        if not all(grid) or not all(block) or threads > 1024:
            raise refuse(INVALID_VALUE, f"grid {grid}, block {block}: 1 to 1024 threads")
        if entry.max_threads is not None and threads > entry.max_threads:
            raise refuse(INVALID_VALUE, f"{threads} threads a CTA; its bounds are {entry.max_threads}")
        static = self._decoded(kernel).shared_static
        allowed = max(0, SHARED_UNASKED - static) if most_shared is None else most_shared
        if shared > allowed:
            how = "" if most_shared is not None else ": cudaFuncAttributeMaxDynamicSharedMemorySize asks for more"
            raise refuse(INVALID_VALUE, f"{shared} bytes of dynamic shared memory, {allowed} are allowed{how}")
        dims = cluster or entry.required_cluster or (1, 1, 1)
        if any(n % c for n, c in zip(grid, dims, strict=True)):
            raise refuse(CLUSTER_SIZE, f"a grid of {grid} CTAs, no multiple of the cluster's {dims}")
        if math.prod(dims) > PORTABLE_CLUSTER and not non_portable:
            why = f"a cluster of {math.prod(dims)} CTAs: cudaFuncAttributeNonPortableClusterSizeAllowed is not set"
            raise refuse(CLUSTER_SIZE, why)
        if cooperative and math.prod(grid) > math.prod(dims) * self.device.resident(
            kernel.module, kernel.entry, block, shared, dims
        ):
            raise refuse(COOPERATIVE_TOO_LARGE, f"{math.prod(grid)} CTAs are more than the device holds at a time")

    def _pointed_at(self, entry: Entry, params: bytes) -> dict[str, str]:
        """By the name of an allocation, the first of a kernel's parameters that points into it."""
        found: dict[str, str] = {}
        for n, param in enumerate(entry.params, 1):
            for at in range(param.offset, param.offset + param.nbytes - 7, 8):
                buffer = self.device.buffer_at(int.from_bytes(params[at : at + 8], "little"))
                if buffer is not None:
                    inside = f", byte {at - param.offset}" if param.nbytes > 8 else ""
                    found.setdefault(buffer.name, f"parameter {n} of the kernel{inside}")
        return found

    def _tell_all(
        self,
        kernel: str,
        findings: Sequence[Finding],
        launch: int,
        pointed: Mapping[str, str] | None = None,
        stream: str = "",
    ) -> None:
        """Each cause once, of all launches of a kernel: with the first of its findings, and how many there are."""
        for group in causes(findings):
            finding = group[0]
            key = (kernel, *finding.cause)
            if finding.rule == "printf" or (self.stopped and finding.rule == "instruction-limit") or key in self._known:
                continue
            self._known.add(key)
            names = [
                f"'{name}' is {where}" for name, where in (pointed or {}).items() if f"'{name}'" in finding.message
            ]
            told = ToldFinding(finding, kernel, launch, len(group) - 1, stream, tuple(names))
            self.seen.findings.append(told)
            self.say(f"{told}\n  what to do: {finding.remedy}" if finding.remedy else str(told))

    def _share_of(self, address: int) -> tuple[int, NDArray[np.uint8]]:
        return next((base, held) for base, held in self._shared.items() if base <= address < base + len(held))

    def _changes(self) -> Iterator[Field]:
        """What the launch has changed of memory that the program shares: a count, then addresses and bytes."""
        runs: list[tuple[int, bytes]] = []
        for base, held in self._shared.items():
            now = self.device.read(base, len(held))
            differing = np.flatnonzero(now != held)
            if not len(differing):
                continue
            for part in np.split(differing, np.flatnonzero(np.diff(differing) > 64) + 1):
                begin, end = int(part[0]), int(part[-1]) + 1
                runs.append((base + begin, now[begin:end].tobytes()))
            self._shared[base] = now
        yield len(runs)
        for address, data in runs:
            yield from (address, data)

    # Textures and surfaces

    def texture(self, fields: Fields) -> Iterator[Field]:
        """Makes a texture object."""
        image = image_of(fields)
        yield self._made_object(lambda: self.device.texture(image, sampler_of(fields)))

    def surface(self, fields: Fields) -> Iterator[Field]:
        """Makes a surface object."""
        image = image_of(fields)
        yield self._made_object(lambda: self.device.surface(image))

    def _made_object(self, make: Callable[[], int]) -> int:
        try:
            return make()
        except FilterError as error:
            raise CudaStatusError(INVALID_FILTER, f"a texture is refused: {error}") from error
        except ScaleError as error:
            raise CudaStatusError(INVALID_SCALE, f"a texture is refused: {error}") from error
        except ImageError as error:
            raise CudaStatusError(INVALID_VALUE, f"a texture or surface is refused: {error}") from error

    def destroy(self, fields: Fields) -> Iterator[Field]:
        """Of a texture or a surface object."""
        self.device.destroy(fields.integer())
        yield from ()

    # Tensor maps

    def tiled(self, fields: Fields) -> Iterator[Field]:
        """Encodes a tensor map of tiles; the driver's error where it refuses."""
        tensor = tensor_of(fields)
        yield self._encoded(lambda: encode_tiled(**tensor, box_dim=fields.integers()))

    def im2col(self, fields: Fields) -> Iterator[Field]:
        """Encodes a tensor map of im2col; the driver's error where it refuses."""
        tensor = tensor_of(fields)
        lower, upper = ([fields.signed() for _ in range(fields.integer())] for _ in range(2))
        del tensor["rank"]
        yield self._encoded(
            lambda: encode_im2col(
                **tensor,
                pixel_box_lower_corner=lower,
                pixel_box_upper_corner=upper,
                channels_per_pixel=fields.integer(),
                pixels_per_column=fields.integer(),
            )
        )

    def _encoded(self, encode: Callable[[], bytes]) -> bytes:
        try:
            return encode()
        except TensorMapError as error:
            raise CudaStatusError(INVALID_VALUE, f"a tensor map is refused: {error}") from error


OPERATIONS: Final[dict[str, Callable[[ProgramDevice, Fields], Iterator[Field]]]] = {
    operation.__name__: operation
    for operation in (
        ProgramDevice.hello,
        ProgramDevice.refused,
        ProgramDevice.elapsed,
        ProgramDevice.end,
        ProgramDevice.reset,
        ProgramDevice.alloc,
        ProgramDevice.free,
        ProgramDevice.share,
        ProgramDevice.write,
        ProgramDevice.read,
        ProgramDevice.copy,
        ProgramDevice.fill,
        ProgramDevice.heap,
        ProgramDevice.pending,
        ProgramDevice.permit,
        ProgramDevice.module,
        ProgramDevice.function,
        ProgramDevice.variable,
        ProgramDevice.facts,
        ProgramDevice.resident,
        ProgramDevice.launch,
        ProgramDevice.texture,
        ProgramDevice.surface,
        ProgramDevice.destroy,
        ProgramDevice.tiled,
        ProgramDevice.im2col,
    )
}
