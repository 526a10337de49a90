"""Kernels of one's own through the worker: built, launched and measured, in the same steps as the attention kernels.

What fmha.harness.worker.subjects.kernel declares is asked of the adapter's processes (adapter.py) and carried out here.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import Device, IllegalError, LaunchConfig, LaunchReport, LoadedModule, TensorMapSpec
from fmha.harness.contract.protocol import Beside, BuildResult, LaunchShape, Measurement, Timed, Variant
from fmha.harness.errors import ChoiceError, UserError
from fmha.harness.judge.case import Case
from fmha.harness.judge.oracle.magnitude_levels import ordinary_of
from fmha.harness.judge.oracle.measure import WrittenOutput, general
from fmha.harness.kernel_side.launch import sum_of
from fmha.harness.worker.launch.time_builds import Work, time_both, time_build
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.adapter_answers import AnsweredLaunch, Packed, Plain, within
from fmha.harness.worker.subjects.adapter_frames import Arrays
from fmha.harness.worker.subjects.adapter_process import AdapterError, KernelsError
from fmha.harness.worker.subjects.dtypes import dtype_of
from fmha.harness.worker.subjects.kernel import At, Build, Output, TensorMap

MOST_TOLD: Final = 48  # characters


def _told_apart(built: Build) -> str:
    """What a build's name says of it: its macros where they are short, else a digest."""
    parts = [built.entry, *(f"{name}{value}" for name, value in built.defines.items())]
    parts += [f"shared{built.shared_bytes}"] if built.shared_bytes else []
    parts += built.others
    text = "".join(f"_{part}" for part in parts[1:]).lower()
    if len(text) <= MOST_TOLD and all(part.replace("_", "").isalnum() for part in parts):
        return text
    return f"_{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class DeclaredRun:
    """What the device left, by the outputs' names."""

    arrays: Arrays
    report: LaunchReport


@dataclass(frozen=True, slots=True)
class Expected:
    """What the outputs should be, and the largest number that the kernel was given beside sentinels."""

    arrays: Arrays
    ordinary: float = 1.0


class Declared:
    """One kernel of one's own."""

    def __init__(self, adapter: Adapter, tolerances: Mapping[str, float] = MappingProxyType({})) -> None:
        """`tolerances` are the gates of `max_error`, by a case's id: what is within them of a sentinel is hidden by
        it."""
        self._adapter = adapter
        self._tolerances = tolerances
        self._name = adapter.name

    def built_in(self, tree: Path) -> None:
        self._adapter.built_in(tree)

    def variant_for(self, case: Case, arch: str) -> Variant | str:
        """The adapter's kernel as a variant, or in words why it does not run there."""
        adapter, said = self._adapter, self._adapter.description
        if refused := self._refusal(arch):
            return refused
        for source in (said.source, *said.sources):
            try:
                within(adapter.tree, source)
            except ValueError as error:
                raise UserError(str(error), where=str(adapter.tree)) from error
        try:
            built = adapter.build(case, arch)
        except AdapterError as error:
            raise ChoiceError(f"build of {case.id}: {error.what}", where=adapter.file) from error
        defines = tuple((name, str(value)) for name, value in built.defines.items())
        return Variant(
            name=f"{self._name}_{arch.replace('_', '')}{_told_apart(built)}",
            arch=arch,
            source=said.source,
            entry=built.entry,
            head_dim=None,
            p_path=None,
            shape=LaunchShape(0, 0, 0, 0, built.shared_bytes),
            defines=defines,
            flags=said.flags,
            sources=adapter.sources,
            compiler=f"{adapter.where} {self._name}" if said.compiles else "",
            example=case.id if said.compiles else "",
            others=built.others,
        )

    @property
    def adapter(self) -> Adapter:
        return self._adapter

    @property
    def lenient(self) -> bool:
        """As the adapter's description says, which the record repeats."""
        return self._adapter.description.profile == "lenient"

    def _refusal(self, arch: str) -> str | None:
        archs = self._adapter.description.archs
        return f"{self._name} is for {', '.join(archs)}, not for {arch}" if archs and arch not in archs else None

    def inputs(self, seed: int, case: Case) -> Arrays:
        """They depend on the seed and the case's name alone."""
        return self._adapter.inputs(seed, case)

    def reference(self, case: Case, inputs: Arrays) -> Expected:
        """What the outputs should be, as the adapter's judging process says."""
        ordinary = ordinary_of(self._adapter.numbers(inputs), self._tolerances.get(case.id, 0.0))
        return Expected(self._adapter.reference(case, inputs), ordinary)

    def run(self, device: Device, module: LoadedModule, variant: Variant, case: Case, inputs: Arrays) -> DeclaredRun:
        """Every element of every output holds poison before the first launch."""
        addresses = self._placed(device, case, inputs)
        launches = self._adapter.launches(case, variant.arch)
        try:
            reports = [self._launch(device, module, variant, item, addresses) for item in launches]
        except AdapterError as error:  # a launch that contradicts itself is whose launch it is
            raise (KernelsError(error.what) if self._adapter.parted else error) from error
        arrays = self._read(device, case, addresses)
        report = sum_of(reports)
        if self.lenient and device.name == "emulator":
            report = replace(report, stats={**report.stats, "profile": "lenient"})
        return DeclaredRun(arrays, report)

    def _read(self, device: Device, case: Case, addresses: Mapping[str, int]) -> Arrays:
        """What the outputs hold."""
        arrays = {}
        for name, output in self._adapter.outputs(case).items():
            kind = dtype_of(output.dtype)
            shape = kind.shape(output.shape)
            nbytes = math.prod(shape) * kind.storage.itemsize
            arrays[name] = device.download(addresses[name], nbytes).view(kind.storage).reshape(shape)
        return arrays

    def writes(self, case: Case) -> Container[str]:
        written = {*self._adapter.outputs(case), *self._adapter.scratch(case)}
        return written | set(self._adapter.description.overwrites)

    def measure(self, case: Case, ran: DeclaredRun, expected: Expected) -> Measurement:
        """The worst of all outputs, each compared by itself."""
        outputs, should = self._adapter.outputs(case), expected.arrays
        if should.keys() != outputs.keys():
            raise AdapterError(f"reference gives {', '.join(should)}; the outputs are {', '.join(outputs)}")
        digest = hashlib.sha256()
        found = []
        for name, output in outputs.items():
            bits, wanted, kind = ran.arrays[name], should[name], dtype_of(output.dtype)
            if wanted.shape != output.shape:
                raise AdapterError(f"reference gives {name} as {wanted.shape}; the output is {output.shape}")
            digest.update(np.ascontiguousarray(bits).tobytes())
            found.append(WrittenOutput(name, kind.read(bits), wanted, _unwritten(output, bits, wanted)))
        return general(found, digest.hexdigest(), self._tolerances.get(case.id, 0.0), expected.ordinary)

    def timed(
        self,
        device: Device,
        build: BuildResult,
        beside: Beside,
        case: Case,
        inputs: Arrays,
        expected: Expected,
        judged: Measurement,
    ) -> Timed:
        def proved(module: LoadedModule, other: BuildResult) -> Measurement:
            return self.measure(case, self.run(device, module, other.variant, case, inputs), expected)

        places: list[dict[str, int]] = []

        def work(module: LoadedModule, built: BuildResult) -> Work:
            places.extend([] if places else [self._placed(device, case, inputs)])  # both over the same memory
            return self._work(device, module, built.variant, case, inputs, expected, places[0])

        return time_both(device, build, beside, proved, work, judged)

    def timed_alone(
        self, device: Device, build: BuildResult, case: Case, inputs: Arrays, expected: Expected, judged: Measurement
    ) -> Timed:
        def work(module: LoadedModule) -> Work:
            addresses = self._placed(device, case, inputs)
            return self._work(device, module, build.variant, case, inputs, expected, addresses)

        return time_build(device, build, work, judged)

    def _work(
        self,
        device: Device,
        module: LoadedModule,
        variant: Variant,
        case: Case,
        inputs: Arrays,
        expected: Expected,
        addresses: Mapping[str, int],
    ) -> Work:
        launches = self._adapter.launches(case, variant.arch)
        first = self._first(case, inputs)
        in_place = any(output.first != "poison" for output in self._adapter.outputs(case).values())

        def poison() -> None:
            for name, array in first.items():
                device.upload(addresses[name], np.ascontiguousarray(array))

        def measured() -> Measurement:
            return self.measure(case, DeclaredRun(self._read(device, case, addresses), LaunchReport()), expected)

        return Work(
            lambda: [self._launch(device, module, variant, item, addresses) for item in launches],
            poison,
            measured,
            repeats=not in_place and not self._adapter.description.overwrites,
        )

    def _placed(self, device: Device, case: Case, inputs: Arrays) -> dict[str, int]:
        """Addresses of the inputs, and of outputs and scratch, which hold what they hold first."""
        written: set[str] = set()
        for what, buffers in (("an output", self._adapter.outputs(case)), ("scratch", self._adapter.scratch(case))):
            kept = {name: output for name, output in buffers.items() if output.first == "input"}
            if both := (buffers.keys() - kept.keys()) & (inputs.keys() | written):
                step = "what is changed in place is an Output with first='input'; else copy, under two names"
                raise AdapterError(f"{min(both)} is {what}, and something else: {step}")
            for name, output in kept.items():
                _check_first(name, output, inputs)
            written |= buffers.keys() - kept.keys()
        arrays = {**inputs, **self._first(case, inputs)}
        return {name: _upload(device, name, np.ascontiguousarray(array)) for name, array in arrays.items()}

    def _first(self, case: Case, inputs: Arrays) -> Arrays:
        """What the buffers that launches may write hold before the first one."""
        found = {name: inputs[name] for name in self._adapter.description.overwrites if name in inputs}
        for buffers in (self._adapter.outputs(case), self._adapter.scratch(case)):
            for name, output in buffers.items():
                kind = dtype_of(output.dtype)
                first = kind.poison if output.first == "poison" else 0
                kept = inputs[name] if output.first == "input" else None
                found[name] = np.full(kind.shape(output.shape), first, kind.storage) if kept is None else kept
        return found

    def _launch(
        self,
        device: Device,
        module: LoadedModule,
        variant: Variant,
        launch: AnsweredLaunch,
        addresses: Mapping[str, int],
    ) -> LaunchReport:
        most = variant.shape.shared_bytes
        if launch.shared_bytes > most:
            raise AdapterError(f"a launch asks for {launch.shared_bytes} bytes of shared memory, build for {most}")
        if launch.entry not in ("", variant.entry, *variant.others):
            raise AdapterError(f"a launch is of {launch.entry}, which the build does not have: name it in its `others`")
        config = LaunchConfig(
            launch.grid,
            launch.block,
            launch.shared_bytes,
            launch.cluster,
            launch.overlaps,
            launch.beside,
            launch.stream,
            lenient=self.lenient,
        )
        try:
            packed = tuple(_packed(device, argument, addresses) for argument in launch.args)
            return device.launch(module, variant.symbol(launch.entry or variant.entry), config, packed)
        except IllegalError as error:
            raise IllegalError(f"{error} ({launch.where})") from error


def _check_first(name: str, output: Output, inputs: Arrays) -> None:
    """AdapterError for an output that begins as an input which is not there, or of another size."""
    kind = dtype_of(output.dtype)
    if name not in inputs:
        raise AdapterError(f"{name} is an output with first='input', and inputs has no {name}")
    given, wanted = inputs[name], kind.shape(output.shape)
    if given.shape != wanted or given.dtype.itemsize != kind.storage.itemsize:
        has = f"{given.shape} of {given.dtype}"
        raise AdapterError(f"{name} is an output of {wanted} items of {output.dtype}, and its input has {has}")


def _unwritten(output: Output, bits: NDArray[Any], wanted: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Elements that hold the poison still. Of a type that has no pattern to spare, those which should hold another."""
    kind = dtype_of(output.dtype)
    if output.first != "poison":
        return np.zeros(wanted.shape, np.bool_)
    here: NDArray[np.bool_] = bits == kind.poison
    if not kind.sure and here.any():
        with np.errstate(all="ignore"):
            here &= kind.store(np.nan_to_num(wanted, nan=np.nan)) != kind.poison
    return np.repeat(here, kind.per_item, axis=-1) if kind.per_item > 1 else here


def _upload(device: Device, name: str, data: NDArray[Any]) -> int:
    address = device.alloc(max(1, data.nbytes), name)
    device.upload(address, data)
    return address


def _packed(device: Device, argument: Plain | Packed, addresses: Mapping[str, int]) -> bytes:
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, Packed):
        return _struct(device, argument, addresses)
    if isinstance(argument, TensorMap):
        item = argument
        ones = (1,) * len(item.global_dim)
        address = _address(item.buffer, addresses)
        return device.encode_tensor_map(
            TensorMapSpec(item.dtype, address, item.global_dim, item.global_strides, item.box_dim, ones, item.swizzle)
        )
    place = argument if isinstance(argument, At) else At(argument)
    return struct.pack("<Q", _address(place.buffer, addresses) + place.offset)


def _struct(device: Device, argument: Packed, addresses: Mapping[str, int]) -> bytes:
    made, end = bytearray(argument.size), 0
    for offset, item in sorted(argument.at.items()):
        data = _packed(device, item, addresses)
        if not end <= offset <= argument.size - len(data):
            raise AdapterError(f"a struct of {argument.size} bytes has no {len(data)} bytes left at offset {offset}")
        end = offset + len(data)
        made[offset:end] = data
    return bytes(made)


def _address(name: str, addresses: Mapping[str, int]) -> int:
    if name not in addresses:
        raise AdapterError(f"an argument names {name!r}; the buffers are {', '.join(addresses)}")
    return addresses[name]
