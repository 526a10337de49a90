"""Runs a launch.yaml: buffers, tensor maps, parameters, the launch, outputs and comparisons."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import emulator
from harness.config.validation import validated
from harness.emulate import arrays
from harness.emulate.document import ArgumentSection, LaunchFile, TensorMapSection
from harness.errors import UserError

_FORMATS = {"u8": "<B", "u16": "<H", "u32": "<I", "s32": "<i", "u64": "<Q", "s64": "<q", "f32": "<f", "f64": "<d"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """An output against its expected values."""

    buffer: str
    elements: int
    wrong: int
    largest_difference: float


@dataclass(frozen=True, slots=True)
class Emulation:
    entry: str
    report: emulator.Report
    written: tuple[Path, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        return self.report.ok and all(c.wrong == 0 for c in self.comparisons)


def read_launch_file(path: Path) -> LaunchFile:
    """Raises UserError when it cannot be read, ConfigError (one line a problem) when it is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    return validated(LaunchFile, text, path.name)


def emulate(ptx: Path, launch: LaunchFile, folder: Path) -> Emulation:
    """Runs one launch. File names in it are relative to `folder`. Raises UserError for what cannot be launched."""
    try:
        module = emulator.load_ptx(ptx)
    except (OSError, UnicodeDecodeError, emulator.PtxError, emulator.FatbinError) as error:
        raise UserError(str(error), where=str(ptx)) from error
    entry = _entry(module, launch, ptx)
    session = _Session(launch, folder)
    try:
        report = session.device.launch(
            module,
            entry,
            _dim3(launch.grid),
            _dim3(launch.block),
            [session.argument(a) for a in launch.args],
            launch.shared_bytes,
            _dim3(launch.cluster),
        )
    except (emulator.LaunchError, emulator.PtxError) as error:
        raise UserError(str(error), where=f"{ptx}, entry {entry}") from error
    written, comparisons = session.outputs()
    return Emulation(entry, report, written, comparisons)


def _entry(module: emulator.Module, launch: LaunchFile, ptx: Path) -> str:
    if launch.entry is not None:
        return launch.entry
    if len(module.entries) != 1:
        raise UserError(
            f"has entries {', '.join(module.entries) or '(none)'}", where=str(ptx), next_step="name one as `entry`"
        )
    return next(iter(module.entries))


def _dim3(extents: list[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _waivers(launch: LaunchFile) -> list[emulator.Waiver]:
    try:
        return [emulator.Waiver(w.rule, w.reason, w.at) for w in launch.waivers]
    except (ValueError, re.error) as error:
        raise UserError(str(error), where="waivers") from error


class _Session:
    """A device with the launch file's buffers and tensor maps in place."""

    def __init__(self, launch: LaunchFile, folder: Path) -> None:
        self._launch = launch
        self._folder = folder
        self.device = emulator.Device(
            seed=launch.seed, schedule=launch.schedule, profile=launch.profile, waivers=_waivers(launch)
        )
        self._buffers: dict[str, emulator.Buffer] = {}
        for name, section in launch.buffers.items():
            size = int(np.prod(section.shape)) * arrays.storage(section.dtype).itemsize
            self._buffers[name] = self.device.alloc(size, name)
            data = arrays.initial(section, folder)
            if data is not None:
                self.device.write(self._buffers[name].address, data)
        self._maps = {name: self._tensor_map(name, section) for name, section in launch.tensor_maps.items()}

    def _tensor_map(self, name: str, section: TensorMapSection) -> bytes:
        arguments = section.model_dump(exclude={"buffer", "offset"})
        try:
            return emulator.encode_tiled(address=self._buffers[section.buffer].address + section.offset, **arguments)
        except emulator.TensorMapError as error:
            raise UserError(str(error), where=f"tensor map {name}") from error

    def argument(self, argument: ArgumentSection) -> bytes:
        """The parameter's bytes."""
        return self._packed(argument)[0]

    def _packed(self, argument: ArgumentSection) -> tuple[bytes, int]:
        """(bytes, alignment)"""
        if argument.buffer is not None:
            return struct.pack("<Q", self._buffers[argument.buffer].address + argument.offset), 8
        if argument.tensor_map is not None:
            return self._maps[argument.tensor_map], 64
        if argument.hex is not None:
            return bytes.fromhex(argument.hex), argument.align
        if argument.struct is not None:
            return self._struct(argument.struct, argument.align)
        kind = next(name for name in _FORMATS if getattr(argument, name) is not None)
        try:
            data = struct.pack(_FORMATS[kind], getattr(argument, kind))
        except struct.error as error:
            raise UserError(f"{getattr(argument, kind)} is no {kind}: {error}", where="args") from error
        return data, len(data)

    def _struct(self, members: list[ArgumentSection], alignment: int) -> tuple[bytes, int]:
        out = bytearray()
        for member in members:
            data, align = self._packed(member)
            out += bytes(-len(out) % align) + data
            alignment = max(alignment, align)
        return bytes(out + bytes(-len(out) % alignment)), alignment

    def outputs(self) -> tuple[tuple[Path, ...], tuple[Comparison, ...]]:
        """Writes the outputs that name a file, compares those that expect something."""
        written: list[Path] = []
        comparisons: list[Comparison] = []
        for name, output in self._launch.outputs.items():
            section, buffer = self._launch.buffers[name], self._buffers[name]
            raw = self.device.read(buffer.address, buffer.nbytes)
            got = raw.view(arrays.storage(section.dtype)).reshape(section.shape)
            if output.file is not None:
                path = self._folder / output.file
                np.save(path, got)
                written.append(path)
            if output.expect is not None:
                wanted = arrays.stored(
                    arrays.load(self._folder / output.expect), section.dtype, section.shape, output.expect
                )
                wrong, largest = arrays.worst(got, wanted, section.dtype, output.rtol, output.atol)
                comparisons.append(Comparison(name, got.size, wrong, largest))
        return tuple(written), tuple(comparisons)
