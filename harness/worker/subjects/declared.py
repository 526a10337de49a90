"""Kernels of one's own through the worker: found by the name that matrix.yaml has, built, launched and measured.

What fmha.harness.worker.subjects.kernel declares is carried out here, in the same steps as for the attention kernels.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import Device, LaunchConfig, LaunchReport, LoadedModule, TensorMapSpec
from fmha.harness.contract.protocol import Beside, BuildResult, LaunchShape, Measurement, Timed, Variant
from fmha.harness.errors import UserError
from fmha.harness.judge.case import Case
from fmha.harness.judge.oracle.measure import general
from fmha.harness.kernel_side.launch import sum_of
from fmha.harness.worker.subjects.callable_kernel import CallableKernel
from fmha.harness.worker.subjects.kernel import (
    DTYPES,
    Argument,
    Build,
    Kernel,
    Launch,
    Output,
    Struct,
    TensorMap,
    from_bf16,
    module_at,
)
from fmha.harness.worker.timing import time_both, time_build

# By size: a quiet NaN with a payload that no arithmetic makes, or an integer that nothing computes.
POISON: Final = {2: 0x7FED, 4: 0x7FEDBEEF, 8: 0x7FFDBEEFDEADBEEF}
MOST_TOLD: Final = 48  # characters
Arrays = Mapping[str, NDArray[Any]]


def load_kernel(root: Path, where: str) -> Kernel:
    """The kernel `FILE.py:NAME` below `root`. UserError, with the line where there is one, when there is none."""
    file, colon, name = where.rpartition(":")
    path = root / file
    if not colon or not path.is_file():
        raise UserError(f"{where}: no such file", where=str(root), next_step="name it FILE.py:CLASS")
    try:
        made = getattr(module_at(path), name)()
    except Exception as error:
        raise UserError(f"{name} cannot be made: {told(error, path)}", where=file) from error
    if not isinstance(made, Kernel) or not all(hasattr(made, needed) for needed in ("source", "fields")):
        raise UserError(f"{name} is no fmha.Kernel with a source and fields", where=file)
    if not isinstance(made, CallableKernel) and not (root / made.source).is_file():
        raise UserError(f"{name}.source: there is no {made.source}", where=file)
    made.root = root
    return made


def _told_apart(built: Build) -> str:
    """What a build's name says of it: its macros where they are short, else a digest."""
    parts = [built.entry, *(f"{name}{value}" for name, value in built.defines.items())]
    parts += [f"shared{built.shared_bytes}"] if built.shared_bytes else []
    parts += built.others
    text = "".join(f"_{part}" for part in parts[1:]).lower()
    if len(text) <= MOST_TOLD and all(part.replace("_", "").isalnum() for part in parts):
        return text
    return f"_{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def told(error: BaseException, path: Path) -> str:
    """What went wrong in the user's file, and in which line of it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else line
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}" + (f" ({path.name}:{line})" if line else "")


@dataclass(frozen=True, slots=True)
class Ran:
    """What the device left, by the outputs' names."""

    arrays: Arrays
    report: LaunchReport


class Declared:
    """One kernel of one's own."""

    def __init__(self, name: str, kernel: Kernel, where: str) -> None:
        """`where` is FILE.py:CLASS, as matrix.yaml has it."""
        self._where = where
        self._name = name
        self._kernel = kernel

    def built_in(self, tree: Path) -> None:
        self._kernel.root = tree

    def variant_for(self, case: Case, arch: str) -> Variant | str:
        kernel = self._kernel
        if refused := self._refusal(arch):
            return refused
        file = self._where.rpartition(":")[0]
        try:
            built = kernel.build(case, arch)
        except Exception as error:
            raise UserError(f"build of {case.id}: {told(error, kernel.root / file)}", where=file) from error
        own = type(kernel).compile is not Kernel.compile
        defines = tuple((name, str(value)) for name, value in built.defines.items())
        return Variant(
            name=f"{self._name}_{arch.replace('_', '')}{_told_apart(built)}",
            arch=arch,
            source=kernel.source,
            entry=built.entry,
            head_dim=None,
            p_path=None,
            shape=LaunchShape(0, 0, 0, 0, built.shared_bytes),
            defines=defines,
            flags=kernel.flags,
            sources=tuple(dict.fromkeys((kernel.source, *kernel.sources, *([file] if own else [])))),
            compiler=f"{self._where} {self._name}" if own else "",
            example=case.id if own else "",
            others=built.others,
        )

    def _refusal(self, arch: str) -> str | None:
        archs = self._kernel.archs
        return f"{self._name} is for {', '.join(archs)}, not for {arch}" if archs and arch not in archs else None

    def inputs(self, seed: int, case: Case) -> Arrays:
        """They depend on the seed and the case's name alone."""
        digest = hashlib.sha256(f"{seed}/{case.id}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        return self._kernel.inputs(case, generator)

    def reference(self, case: Case, inputs: Arrays) -> Arrays:
        wanted = self._kernel.reference(case, inputs)
        return {name: np.asarray(array, dtype=np.float64) for name, array in wanted.items()}

    def run(self, device: Device, module: LoadedModule, variant: Variant, case: Case, inputs: Arrays) -> Ran:
        """Every element of every output holds poison before the first launch."""
        outputs = self._kernel.outputs(case)
        addresses = self._placed(device, case, inputs)
        reports = [self._launch(device, module, variant, item, addresses) for item in self._kernel.launches(case)]
        arrays = {}
        for name, output in outputs.items():
            kind = DTYPES[output.dtype]
            nbytes = int(np.prod(output.shape)) * kind.itemsize
            arrays[name] = device.download(addresses[name], nbytes).view(kind).reshape(output.shape)
        return Ran(arrays, sum_of(reports))

    def measure(self, case: Case, ran: Ran, expected: Arrays) -> Measurement:
        """The worst of all outputs, each compared by itself."""
        outputs = self._kernel.outputs(case)
        if expected.keys() != outputs.keys():
            raise ValueError(f"reference gives {', '.join(expected)}; the outputs are {', '.join(outputs)}")
        digest = hashlib.sha256()
        found = []
        for name, output in outputs.items():
            bits, wanted = ran.arrays[name], expected[name]
            if wanted.shape != output.shape:
                raise ValueError(f"reference gives {name} as {wanted.shape}; the output is {output.shape}")
            digest.update(np.ascontiguousarray(bits).tobytes())
            values = from_bf16(bits) if output.dtype == "bf16" else bits.astype(np.float64)
            unwritten = int(np.count_nonzero(bits.view(f"u{bits.itemsize}") == POISON[bits.itemsize]))
            found.append((values, wanted, unwritten))
        return general(found, digest.hexdigest())

    def timed(
        self, device: Device, build: BuildResult, beside: Beside, case: Case, inputs: Arrays, expected: Arrays
    ) -> Timed:
        def proved(module: LoadedModule, other: BuildResult) -> Measurement:
            return self.measure(case, self.run(device, module, other.variant, case, inputs), expected)

        places: list[dict[str, int]] = []

        def work(module: LoadedModule, built: BuildResult) -> Callable[[], object]:
            places.extend([] if places else [self._placed(device, case, inputs)])  # both over the same memory
            return self._work(device, module, built.variant, case, places[0])

        return time_both(device, build, beside, proved, work)

    def timed_alone(self, device: Device, build: BuildResult, case: Case, inputs: Arrays) -> Timed:
        def work(module: LoadedModule) -> Callable[[], object]:
            return self._work(device, module, build.variant, case, self._placed(device, case, inputs))

        return time_build(device, build, work)

    def _work(
        self, device: Device, module: LoadedModule, variant: Variant, case: Case, addresses: Mapping[str, int]
    ) -> Callable[[], object]:
        launches = self._kernel.launches(case)
        return lambda: [self._launch(device, module, variant, item, addresses) for item in launches]

    def _placed(self, device: Device, case: Case, inputs: Arrays) -> dict[str, int]:
        """Addresses of the inputs, and of outputs and scratch that are full of poison."""
        written: dict[str, Output] = {}
        for what, buffers in (("an output", self._kernel.outputs(case)), ("scratch", self._kernel.scratch(case))):
            if both := buffers.keys() & (inputs.keys() | written.keys()):
                raise ValueError(f"{min(both)} is {what}, and something else: give what is both two names, and copy")
            written |= buffers
        addresses = {name: _upload(device, name, np.ascontiguousarray(array)) for name, array in inputs.items()}
        for name, output in written.items():
            kind = DTYPES[output.dtype]
            words = np.full(output.shape, POISON[kind.itemsize], np.dtype(f"u{kind.itemsize}"))
            addresses[name] = _upload(device, name, words)
        return addresses

    def _launch(
        self, device: Device, module: LoadedModule, variant: Variant, launch: Launch, addresses: Mapping[str, int]
    ) -> LaunchReport:
        most = variant.shape.shared_bytes
        if launch.shared_bytes > most:
            raise ValueError(f"a launch asks for {launch.shared_bytes} bytes of shared memory, build for {most}")
        if launch.entry not in ("", variant.entry, *variant.others):
            raise ValueError(f"a launch is of {launch.entry}, which the build does not have: name it in its `others`")
        config = LaunchConfig(launch.grid, launch.block, launch.shared_bytes, launch.cluster, launch.overlaps)
        packed = tuple(_packed(device, argument, addresses) for argument in launch.args)
        return device.launch(module, launch.entry or variant.entry, config, packed)


def _upload(device: Device, name: str, data: NDArray[Any]) -> int:
    address = device.alloc(max(1, data.nbytes), name)
    device.upload(address, data)
    return address


def _packed(device: Device, argument: Argument, addresses: Mapping[str, int]) -> bytes:
    if isinstance(argument, np.generic):
        return argument.tobytes()
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, Struct):
        return _struct(device, argument, addresses)
    if isinstance(argument, TensorMap):
        item = argument
        ones = (1,) * len(item.global_dim)
        address = _address(item.buffer, addresses)
        return device.encode_tensor_map(
            TensorMapSpec(item.dtype, address, item.global_dim, item.global_strides, item.box_dim, ones, item.swizzle)
        )
    if isinstance(argument, str):
        return struct.pack("<Q", _address(argument, addresses))
    return struct.pack("<f", argument) if isinstance(argument, float) else struct.pack("<i", argument)


def _struct(device: Device, argument: Struct, addresses: Mapping[str, int]) -> bytes:
    made, end = bytearray(argument.size), 0
    for offset, item in sorted(argument.at.items()):
        data = _packed(device, item, addresses)
        if not end <= offset <= argument.size - len(data):
            raise ValueError(f"a struct of {argument.size} bytes has no {len(data)} bytes left at offset {offset}")
        end = offset + len(data)
        made[offset:end] = data
    return bytes(made)


def _address(name: str, addresses: Mapping[str, int]) -> int:
    if name not in addresses:
        raise ValueError(f"an argument names {name!r}; the buffers are {', '.join(addresses)}")
    return addresses[name]
