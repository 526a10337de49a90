"""The emulator as Python's launches see it: memory is the process's own, and every launch has the line that made it."""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import Around, Profile, Schedule
from fmha.emulator.timing.architecture import architecture

MULTIPROCESSORS: Final = 148  # those of a B200
REGISTERS: Final = 65536  # of a multiprocessor
ARCHS: Final[Mapping[str, int]] = {"sm_80": 80, "sm_90a": 90, "sm_100a": 100}
NOBODYS: Final = ("fmha", "triton", "torch", "cutlass")  # packages whose frames are not the line that launched


class LaunchRefusedError(RuntimeError):
    """A launch that cannot be run: the driver would refuse it, or the machine does not model it."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What the kernels are compiled for, and how the machine runs them."""

    arch: str = "sm_100a"
    schedule: Schedule = "realistic"
    seed: int = 0
    profile: Profile = "lenient"  # compilers rely on what the ISA does not promise: docs/reference/thirdparty.md
    threads: int = 1
    timing: str | None = None  # the GPU whose time is modelled; then a few clusters run alone, and nothing is checked
    whole: bool = False  # though its time is modelled, all of a launch runs
    checks: bool = False  # and then, though its time is modelled, hazards are looked for
    around: Around | None = None  # of somebody who looks on: what each launch runs within


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of this process that a kernel may be handed the address of."""

    name: str
    address: int
    nbytes: int
    owner: object = field(default=None, repr=False, compare=False)  # lets the bytes live as long as this does


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """An argument: an address of this process."""

    address: int


@dataclass(frozen=True, slots=True)
class TensorMapArgument:
    """An argument: a tensor map over the bytes at an address of this process, as `encode_tiled` takes the rest."""

    address: int
    dtype: str
    global_dim: Sequence[int]
    global_strides: Sequence[int]
    box_dim: Sequence[int]
    swizzle: str
    oob_fill: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """An argument: memory of the launch's own; none of it is a null pointer."""

    nbytes: int


Argument = PointerArgument | TensorMapArgument | Scratch | bytes | int | float


@dataclass(frozen=True, slots=True)
class GridShape:
    """How many threads a launch has, and what they share."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class ScriptLaunch:
    """A launch that a script made."""

    kernel: str
    line: str  # of the Python code: "file:line"
    grid: tuple[int, int, int]
    report: emulator.Report


@dataclass(frozen=True, slots=True)
class ScriptFinding:
    """A finding, in the first launch of this kernel from this line that had it."""

    finding: emulator.Finding
    kernel: str
    line: str

    def __str__(self) -> str:
        return f"{self.line}: launch of {self.kernel}\n{self.finding}"


@dataclass(slots=True)
class Recording:
    """What a graph's capture records, to be done again, and memory as it was before the capture."""

    steps: list[Callable[[], list[ScriptFinding]]] = field(
        default_factory=list
    )  # with what launches find that was not known
    computed: set[int] = field(default_factory=set)  # addresses of memory that steps write
    failed: bool = False  # something in it cannot be captured
    _before: dict[int, tuple[HostMemory, NDArray[np.uint8]]] = field(default_factory=dict)

    def keep(self, memory: HostMemory) -> None:
        """Before the first step that may write there."""
        if memory.nbytes and memory.address not in self._before:
            self._before[memory.address] = memory, _bytes_at(memory).copy()

    def undo(self) -> None:
        """Memory as it was before the first step."""
        for memory, before in self._before.values():
            if not np.array_equal(before, _bytes_at(memory)):
                _bytes_at(memory)[:] = before
        self._before.clear()


@dataclass(slots=True)
class ScriptMachine:
    """Runs launches one after the other. Memory is copied there before each, and what has changed is copied back."""

    options: ScriptOptions = field(default_factory=ScriptOptions)
    launches: list[ScriptLaunch] = field(default_factory=list)
    findings: list[ScriptFinding] = field(default_factory=list)
    compiling: bool = False  # launches are not run: what is benchmarked is compiled only
    recording: Recording | None = None  # a graph's capture: launches are its steps, and count when it is replayed
    _device: emulator.Device | None = None
    _known: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def hazards(self) -> list[ScriptFinding]:
        """Findings that are errors."""
        return [told for told in self.findings if told.finding.severity == "error"]

    @property
    def number(self) -> int:
        """The architecture as Triton counts: 100 for sm_100a."""
        return ARCHS[self.options.arch]

    @property
    def multiprocessors(self) -> int:
        """Those of the GPU whose time is modelled, or else of a B200."""
        timing = self.options.timing
        return MULTIPROCESSORS if timing is None else architecture(timing).multiprocessors

    def launch(
        self,
        module: emulator.Module,
        kernel: str,
        shape: GridShape,
        arguments: Sequence[Argument],
        memory: Sequence[HostMemory],
    ) -> list[ScriptFinding]:
        """Runs a launch; what it found that was not known before. LaunchRefusedError for one that cannot be run."""
        if self.compiling or 0 in shape.grid:  # Triton leaves out a launch of no programs
            return []
        line = calling_line()

        def run() -> emulator.Report:
            return self._run(module, kernel, shape, arguments, memory, line)

        if self.recording is None:
            return self._noted(kernel, line, shape.grid, run())
        for item in memory:
            self.recording.keep(item)
            self.recording.computed.add(item.address)
        run()
        self.recording.steps.append(lambda: self._noted(kernel, line, shape.grid, run()))
        return []

    def _run(
        self,
        module: emulator.Module,
        kernel: str,
        shape: GridShape,
        arguments: Sequence[Argument],
        memory: Sequence[HostMemory],
        line: str,
    ) -> emulator.Report:
        device = self._device = self._device or self._made()
        mirror = _Mirror(device, memory)
        try:
            packed = [mirror.packed(argument) for argument in arguments]
            look = self.options.around
            with look(device, module, kernel) if look else nullcontext():
                report = device.launch(
                    module,
                    kernel,
                    shape.grid,
                    shape.block,
                    packed,
                    shape.shared_bytes,
                    shape.cluster,
                    shape.cooperative,
                )
            mirror.fetch()
        except (emulator.LaunchError, emulator.PtxError, emulator.TensorMapError, _UnknownMemoryError) as error:
            raise LaunchRefusedError(f"{line}: launch of {kernel} refused: {error}") from error
        finally:
            mirror.release()
        return report

    def _made(self) -> emulator.Device:
        o, modelled = self.options, self.options.timing is not None
        return emulator.Device(
            o.seed,
            o.schedule,
            o.profile,
            checks=not modelled or (o.whole and o.checks),
            threads=o.threads,
            timing=o.timing,
            sampled=modelled and not o.whole,
        )

    def _noted(
        self, kernel: str, line: str, grid: tuple[int, int, int], report: emulator.Report
    ) -> list[ScriptFinding]:
        self.launches.append(ScriptLaunch(kernel, line, grid, report))
        return list(self._new(kernel, line, report))

    def _new(self, kernel: str, line: str, report: emulator.Report) -> Iterator[ScriptFinding]:
        for finding in report.findings:
            key = (kernel, line, *finding.cause)
            if key not in self._known:
                self._known.add(key)
                self.findings.append(ScriptFinding(finding, kernel, line))
                yield self.findings[-1]


class _UnknownMemoryError(Exception):
    """An address that is in no tensor of the launch."""


class _Mirror:
    """The memory of one launch, on the machine: an allocation for each, so that none can be left unnoticed."""

    def __init__(self, device: emulator.Device, memory: Sequence[HostMemory]) -> None:
        self._device = device
        self._pairs: list[tuple[HostMemory, emulator.Buffer, NDArray[np.uint8]]] = []
        self._scratch: list[emulator.Buffer] = []
        for item in {item.address: item for item in memory if item.nbytes}.values():
            before = _bytes_at(item).copy()
            buffer = device.alloc(item.nbytes, item.name)
            device.write(buffer.address, before)
            self._pairs.append((item, buffer, before))

    def packed(self, argument: Argument) -> bytes | int | float:
        match argument:
            case PointerArgument():
                return struct.pack("<Q", self._address(argument.address))
            case TensorMapArgument():
                return emulator.encode_tiled(
                    dtype=argument.dtype,
                    address=self._address(argument.address),
                    global_dim=argument.global_dim,
                    global_strides=argument.global_strides,
                    box_dim=argument.box_dim,
                    swizzle=argument.swizzle,
                    oob_fill=argument.oob_fill,
                    l2_promotion="128B",
                )
            case Scratch():
                if not argument.nbytes:
                    return bytes(8)
                self._scratch.append(self._device.alloc(argument.nbytes, "scratch"))
                return struct.pack("<Q", self._scratch[-1].address)
            case _:
                return argument

    def fetch(self) -> None:
        """Copies back what the launch has changed, and nothing else: memory may be read-only."""
        for item, buffer, before in self._pairs:
            after = self._device.read(buffer.address, buffer.nbytes)
            if not np.array_equal(before, after):
                _bytes_at(item)[:] = after

    def release(self) -> None:
        for _, buffer, _ in self._pairs:
            self._device.free(buffer)
        for buffer in self._scratch:
            self._device.free(buffer)

    def _address(self, address: int) -> int:
        if not address:
            return 0
        for item, buffer, _ in self._pairs:
            if item.address <= address <= item.address + item.nbytes:
                return buffer.address + address - item.address
        raise _UnknownMemoryError(f"the address {address:#x} is in no tensor that the launch was given")


def _bytes_at(item: HostMemory) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * item.nbytes).from_address(item.address))


def calling_line() -> str:
    """The innermost line of the stack that is not of a compiler, a framework or Python itself."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_nobodys(frame.f_code.co_filename):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.f_lineno}"


def _is_nobodys(file: str) -> bool:
    library = file.startswith(_LIBRARY) and "site-packages" not in file
    return library or file.startswith(("<", *_packages()))


_LIBRARY: Final = sysconfig.get_path("stdlib")
_PACKAGES: list[str] = []


def _packages() -> tuple[str, ...]:
    if not _PACKAGES:
        for name in NOBODYS:
            spec = find_spec(name)
            _PACKAGES.extend(f"{place}/" for place in (spec.submodule_search_locations or [] if spec else []))
    return tuple(_PACKAGES)
