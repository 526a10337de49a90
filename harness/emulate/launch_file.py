"""Runs a launch.yaml: buffers, tensor maps, parameters, the launch, outputs and comparisons."""

from __future__ import annotations

import errno
import os
import re
import struct
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.debug.hang import HangWatch, explained
from fmha.emulator.device import MMA_SUMS, Around, Schedule
from fmha.emulator.search import SearchTrial, search
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.config.validation import validated
from fmha.harness.cpp_names import UnknownNameError, readable, symbol_of
from fmha.harness.emulate import arrays
from fmha.harness.emulate.launch_document import ArgumentSection, BufferSection, LaunchFile, TensorMapSection
from fmha.harness.errors import UserError

Entry = emulator.Entry
_FORMATS = {"u8": "<B", "u16": "<H", "u32": "<I", "s32": "<i", "u64": "<Q", "s64": "<q", "f32": "<f", "f64": "<d"}


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """An output of the run under this schedule and seed against its expected values."""

    buffer: str
    elements: int
    wrong: int
    largest_difference: float
    schedule: str
    seed: int
    worst: arrays.Mismatch | None  # the first of those that differ most; None when all are equal


@dataclass(frozen=True, slots=True)
class Emulation:
    """What came of a launch file."""

    entry: str
    mma_sums: str
    exploration: emulator.Exploration  # of one schedule, or of several; of a search, the first and those that fail
    written: tuple[Path, ...]  # by the first run
    comparisons: tuple[OutputComparison, ...]
    searched: str = ""  # what a search has tried

    @property
    def passed(self) -> bool:
        """Neither an error finding nor a difference from what was wanted."""
        return self.exploration.ok and all(c.wrong == 0 for c in self.comparisons)


def read_launch_file(path: Path) -> LaunchFile:
    """Raises UserError when it cannot be read, ConfigError (one line a problem) when it is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {_reason(error)}", where=str(path)) from error
    return validated(LaunchFile, text, path.name)


def emulate(
    ptx: Path,
    launch: LaunchFile,
    folder: Path,
    schedules: int | None = None,
    mma_sums: str | None = None,
    seconds: float | None = None,
) -> Emulation:
    """Runs one launch, under its own schedule, under `schedules` of them, or under those that a search of so many
    `seconds` chooses until one fails. File names in it are relative to `folder`.

    `mma_sums` replaces the launch's own. Raises UserError for what cannot be launched.
    """
    if mma_sums is not None:
        if mma_sums not in MMA_SUMS:
            raise UserError(f"--mma-sums: {mma_sums!r} is not one of {', '.join(MMA_SUMS)}")
        launch = launch.model_copy(update={"mma_sums": mma_sums})
    _check_memory(launch)
    module = load(ptx)
    entry = _entry(module, launch, ptx)
    written: list[Path] = []
    comparisons: list[OutputComparison] = []

    def run(schedule: Schedule, seed: int, file: LaunchFile = launch) -> emulator.Report:
        session = _Session(file, folder, schedule, seed)
        try:
            report = session.launch(module, entry)
        except (emulator.LaunchError, emulator.PtxError) as error:
            raise UserError(str(error), where=f"{ptx}, entry {entry}") from error
        if not written:
            written.extend(session.write())
        comparisons.extend(session.compare())
        return report

    if seconds is not None:
        runs: list[tuple[Schedule, int, emulator.Report]] = []

        def attempt(trial: SearchTrial) -> emulator.Report:
            kept = len(comparisons)
            report = run("pct", trial.seed, launch.model_copy(update={"depth": trial.depth, "steps": trial.steps}))
            if not runs or not report.ok:
                runs.append(("pct", trial.seed, report))
            else:
                comparisons[kept:] = [c for c in comparisons[kept:] if c.wrong]
            return report

        done = search(attempt, seconds)
        found = tuple(emulator.Explored(f, "pct", t.seed, t.depth, t.steps) for f, t in done.found)
        exploration = emulator.Exploration(found, tuple(runs))
        return Emulation(entry, launch.mma_sums, exploration, tuple(written), tuple(comparisons), done.told)

    exploration = emulator.explore(run, schedules or [(launch.schedule, launch.seed)])
    return Emulation(entry, launch.mma_sums, exploration, tuple(written), tuple(comparisons))


def look_at(
    ptx: Path, launch: LaunchFile, folder: Path, around: Around, schedule: Schedule | None = None, seed: int = 0
) -> emulator.Report:
    """Runs one launch under its own schedule, or `schedule` and `seed`, within what `around` makes for it.

    Raises UserError for what cannot be launched.
    """
    _check_memory(launch)
    module = load(ptx)
    entry = _entry(module, launch, ptx)
    chosen: tuple[Schedule, int] = (schedule, seed) if schedule else (launch.schedule, launch.seed)
    try:
        return _Session(launch, folder, *chosen, around).launch(module, entry)
    except (emulator.LaunchError, emulator.PtxError) as error:
        raise UserError(str(error), where=f"{ptx}, entry {entry}") from error


def timed(ptx: Path, launch: LaunchFile, folder: Path, gpu: str, reordered: bool = False) -> LaunchTiming:
    """The launch under its own schedule on a device that keeps `gpu`'s time, without looking for hazards. Raises
    UserError for what cannot be launched, or does not end."""
    module = load(ptx)
    entry = _entry(module, launch, ptx)
    try:
        report = _Session(launch, folder, launch.schedule, launch.seed, timing=gpu, reordered=reordered).launch(
            module, entry
        )
    except (emulator.LaunchError, emulator.PtxError) as error:
        raise UserError(str(error), where=f"{ptx}, entry {entry}") from error
    if not report.ok:
        raise UserError(f"it does not end, so it has no time: {report.findings[0].rule}", where=f"{ptx}, entry {entry}")
    assert report.timing is not None
    return report.timing


def why_it_hangs(ptx: Path, launch: LaunchFile, folder: Path, hung: emulator.Explored) -> list[str]:
    """The circle of waits of a launch that hangs under the schedule of this finding, and the likely cause. Runs it
    again."""
    watch = HangWatch()
    if hung.schedule == "pct":
        launch = launch.model_copy(update={"depth": hung.depth, "steps": hung.steps})
    look_at(ptx, launch, folder, watch, hung.schedule, hung.seed)
    return [line for hang in watch.hangs for line in explained(hang)]


def _check_memory(launch: LaunchFile) -> None:
    """Refuses what would make the machine swap or be killed half-way: Linux promises more memory than there is."""
    needed = sum(map(arrays.nbytes, launch.buffers.values()))
    if needed > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        largest = max(launch.buffers, key=lambda name: arrays.nbytes(launch.buffers[name]))
        raise _too_large(needed, f"buffers, {largest} the largest")


def _too_large(nbytes: int, where: str) -> UserError:
    words = f"{nbytes:,} bytes are more than this machine has memory for"
    return UserError(words, where=where, next_step="correct shape, or run a smaller case")


def entries(ptx: Path) -> tuple[Entry, ...]:
    """The kernels of a module."""
    return tuple(load(ptx).entries.values())


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else f"no UTF-8 text: {error}"


def load(ptx: Path) -> emulator.Module:
    """The module of a file. UserError where it cannot be read."""
    try:
        return emulator.load_ptx(ptx)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {_reason(error)}", where=str(ptx)) from error
    except (emulator.PtxError, emulator.FatbinError) as error:
        raise UserError(str(error), where=str(ptx)) from error


def _entry(module: emulator.Module, launch: LaunchFile, ptx: Path) -> str:
    """The kernel of this name, as C++ has it or as its symbol; or the one whose symbol it is a part of."""
    wanted = launch.entry or ""
    with suppress(UnknownNameError):
        if wanted:
            return symbol_of(wanted, module.entries)
    found = [name for name in module.entries if wanted in name]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"has entries {', '.join(map(readable, found))}", where=str(ptx), next_step="name one as `entry`"
        )
    there = ", ".join(map(readable, module.entries)) or "none"
    raise UserError(f"has no entry {wanted!r}", where=str(ptx), next_step=f"there are {there}")


def _dim3(extents: list[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _waivers(launch: LaunchFile) -> list[emulator.Waiver]:
    try:
        return [emulator.Waiver(w.rule, w.reason, w.at) for w in launch.waivers]
    except (ValueError, OverflowError, re.error) as error:
        raise UserError(str(error), where="waivers") from error


class _Session:
    """A device with the launch file's buffers and tensor maps in place."""

    def __init__(
        self,
        launch: LaunchFile,
        folder: Path,
        schedule: Schedule,
        seed: int,
        around: Around | None = None,
        timing: str | None = None,
        reordered: bool = False,
    ) -> None:
        self._around = around
        self._launch = launch
        self._folder = folder
        self._schedule, self._seed = schedule, seed
        self.device = emulator.Device(
            seed=seed,
            schedule=schedule,
            profile=launch.profile,
            mma_sums=launch.mma_sums,
            waivers=_waivers(launch),
            max_instructions=launch.max_instructions,
            threads=launch.threads,
            depth=launch.depth,
            steps=launch.steps,
            checks=timing is None,
            timing=timing,
            reordered=reordered,
        )
        self._reserve_addresses()
        self._buffers = {name: self._buffer(name, section) for name, section in launch.buffers.items()}
        self._maps = {name: self._tensor_map(name, section) for name, section in launch.tensor_maps.items()}

    def _reserve_addresses(self) -> None:
        """Those of buffers that say where they lie, so that no other gets them."""
        ends = [
            section.address + arrays.nbytes(section) for section in self._launch.buffers.values() if section.address
        ]
        if ends:
            first = self.device.reserve(1)
            self.device.reserve(max(1, max(ends) - first))

    def _buffer(self, name: str, section: BufferSection) -> emulator.Buffer:
        nbytes = arrays.nbytes(section)
        try:
            buffer = (
                self.device.alloc(nbytes, name)
                if section.address is None
                else self.device.back(section.address, nbytes, name)
            )
            data = arrays.initial(section, self._folder)
            if data is not None:
                self.device.write(buffer.address, data)
        except (MemoryError, TypeError) as error:  # TypeError: of more than 64 bits
            raise _too_large(nbytes, f"buffer {name}") from error
        except ValueError as error:
            raise UserError(str(error), where=f"buffer {name}", next_step="give it another address") from error
        return buffer

    def _tensor_map(self, name: str, section: TensorMapSection) -> bytes:
        arguments = section.model_dump(exclude={"buffer", "offset"}, exclude_none=True)
        encode = emulator.encode_tiled if section.box_dim else emulator.encode_im2col
        try:
            return encode(address=self._buffers[section.buffer].address + section.offset, **arguments)
        except emulator.TensorMapError as error:
            raise UserError(str(error), where=f"tensor map {name}") from error

    def launch(self, module: emulator.Module, entry: str) -> emulator.Report:
        launch = self._launch
        arguments = [self._packed(a)[0] for a in launch.args]
        cluster = _dim3(launch.cluster) if launch.cluster else None
        grid, block = _dim3(launch.grid), _dim3(launch.block)
        with self._around(self.device, module, entry) if self._around else nullcontext():
            return self.device.launch(
                module, entry, grid, block, arguments, launch.shared_bytes, cluster, launch.cooperative
            )

    def _packed(self, argument: ArgumentSection) -> tuple[bytes, int]:
        """(bytes, alignment)"""
        if argument.buffer is not None:
            buffer = self._buffers[argument.buffer]
            address = buffer.multimem_address if argument.multimem else buffer.address
            return struct.pack("<Q", address + argument.offset), 8
        if argument.tensor_map is not None:
            return self._maps[argument.tensor_map], 64
        if argument.hex is not None:
            return bytes.fromhex(argument.hex), argument.align
        if argument.struct is not None:
            return self._struct(argument.struct, argument.align)
        kind = next(name for name in _FORMATS if getattr(argument, name) is not None)
        try:
            data = struct.pack(_FORMATS[kind], getattr(argument, kind))
        except (struct.error, OverflowError) as error:
            raise UserError(f"{getattr(argument, kind)} is no {kind}: {error}", where="args") from error
        return data, len(data)

    def _struct(self, members: list[ArgumentSection], alignment: int) -> tuple[bytes, int]:
        out = bytearray()
        for member in members:
            data, align = self._packed(member)
            out += bytes(-len(out) % align) + data
            alignment = max(alignment, align)
        return bytes(out + bytes(-len(out) % alignment)), alignment

    def _output(self, name: str) -> NDArray[Any]:
        section, buffer = self._launch.buffers[name], self._buffers[name]
        raw = self.device.read(buffer.address, buffer.nbytes)
        return raw.view(arrays.storage(section.dtype)).reshape(section.shape)

    def write(self) -> list[Path]:
        """Writes the outputs that name a file."""
        files = [(name, self._folder / output.file) for name, output in self._launch.outputs.items() if output.file]
        for name, path in files:
            try:
                np.save(path, self._output(name))
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
                    raise  # the disk's fault
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                raise UserError(f"cannot be written: {reason}", where=str(path)) from error
        return [path for _, path in files]

    def compare(self) -> list[OutputComparison]:
        """Compares the outputs that expect something."""
        comparisons: list[OutputComparison] = []
        for name, output in self._launch.outputs.items():
            if output.expect is None:
                continue
            section, got = self._launch.buffers[name], self._output(name)
            wanted = arrays.load(self._folder / output.expect)
            wanted = arrays.stored(wanted, section.dtype, section.shape, output.expect)
            wrong, largest, where = arrays.worst(got, wanted, section.dtype, output.rtol, output.atol)
            comparisons.append(OutputComparison(name, got.size, wrong, largest, self._schedule, self._seed, where))
        return comparisons
