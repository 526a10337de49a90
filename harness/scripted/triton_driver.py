"""A driver for Triton whose launches are the emulator's.

Triton compiles as for a GPU, to PTX, and its own launcher's part is done here: arguments are flattened as its signature
has them, descriptors become tensor maps.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from unittest import mock

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from fmha import emulator
from fmha.emulator.device import MAX_SHARED_BYTES
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.scripted.script_machine import (
    REGISTERS,
    Argument,
    GridShape,
    HostMemory,
    LaunchRefusedError,
    PointerArgument,
    Scratch,
    ScriptFinding,
    ScriptMachine,
    TensorMapArgument,
)
from fmha.harness.triton_ptx import ptx_for_cubin

MOST_REGISTERS: Final = 255  # of a thread
# `elem_type` of a descriptor's metadata: CUtensorMapDataType, but that f32_ftz, f64 and bf16 change places.
_TYPES: Final = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz",
    "16u4_align8b", "16u4_align16b", "16u6_align16b",
)  # fmt: skip
_SWIZZLES: Final = ("none", "32B", "64B", "128B")

# By their PTX, which Triton keeps as the handle: its kernels live until the process ends, the machine's must not.
_MODULES: dict[bytes, emulator.Module] = {}
atexit.register(_MODULES.clear)


@contextlib.contextmanager
def installed(machine: Callable[[], ScriptMachine], tell: Callable[[ScriptFinding], None]) -> Iterator[None]:
    """Triton's launches go to `machine()`; what they find is told at once."""
    from triton.runtime import driver  # the object that triton.runtime.driver is, not the module

    before = driver._active
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: setattr(driver, "_active", before))
        driver.set_active(_Driver(machine, tell))
        stack.enter_context(ptx_for_cubin())
        stack.enter_context(mock.patch.object(triton.testing, "do_bench", functools.partial(_untimed, machine)))
        yield


def _untimed(
    machine: Callable[[], ScriptMachine], fn: Callable[[], Any], *rest: Any, quantiles: Any = None, **options: Any
) -> Any:
    """In place of a benchmark: what it would time is compiled, and every time is the same."""
    here = machine()
    before, here.compiling = here.compiling, True
    try:
        fn()
    finally:
        here.compiling = before
    return 1.0 if quantiles is None else [1.0] * len(quantiles)


class _Driver(DriverBase):  # type: ignore[misc] # Triton is no package of mypy's here
    def __init__(self, machine: Callable[[], ScriptMachine], tell: Callable[[ScriptFinding], None]) -> None:
        self._machine = machine
        self.utils = _Utils(machine)
        self.launcher_cls = functools.partial(_Launcher, machine, tell)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._machine().number, 32)

    def get_current_device(self) -> int:
        """Not a GPU's: Triton keeps kernels by it."""
        return 1000 + self._machine().number

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return divmod(self._machine().number, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Callable[..., Any]:
        return functools.partial(_untimed, self._machine)

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(0)

    def clear_cache(self, cache: Any) -> None:
        """Nothing is timed."""

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


class _Utils:
    """What Triton asks of CUDA besides launching."""

    def __init__(self, machine: Callable[[], ScriptMachine]) -> None:
        self._machine = machine

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """(module, function, registers a thread, spills, most threads). The registers are the most there could be: no
        ptxas has said how many are used."""
        if kernel not in _MODULES:
            try:
                _MODULES[kernel] = emulator.load_ptx(kernel.decode())
            except emulator.PtxError as error:
                raise LaunchRefusedError(f"{name}: {error}") from error
        threads = _MODULES[kernel].entries[name].max_threads or 1024
        return kernel, (kernel, name), min(MOST_REGISTERS, REGISTERS // threads), 0, 1024

    def unload_module(self, module: Any) -> None:
        """It goes with the process."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": MAX_SHARED_BYTES,
            "max_num_regs": REGISTERS,
            "multiprocessor_count": self._machine().multiprocessors,
            "warpSize": 32,
            "sm_clock_rate": 1_965_000,
            "mem_clock_rate": 3_996_000,
            "mem_bus_width": 8192,
        }

    def set_printf_fifo_size(self, size: int) -> None:
        """printf is a warning of the machine's."""


class _Launcher:
    """One compiled kernel's launches. `src` and `metadata` are Triton's."""

    def __init__(
        self, machine: Callable[[], ScriptMachine], tell: Callable[[ScriptFinding], None], src: Any, metadata: Any
    ) -> None:
        self._machine = machine
        self._tell = tell
        names = src.fn.arg_names if hasattr(src, "fn") else list(src.signature)
        self._signature = list(zip(names, src.signature.values(), strict=True))
        self._metadata = metadata

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: Any, packed: Any, launch: Any, enter: Any, leave: Any,
        *args: Any,
    ) -> None:  # fmt: skip
        ptx, kernel = function
        module = _MODULES[ptx]
        meta = self._metadata
        flat = _Arguments(getattr(meta, "tensordesc_meta", None))
        for (name, kind), value in zip(self._signature, args, strict=True):
            flat.add(name, kind, value)
        ctas = getattr(meta, "num_ctas", 1)
        programs = math.prod((x, y, z)) * ctas
        sizes = (getattr(meta, "global_scratch_size", 0), getattr(meta, "profile_scratch_size", 0))
        missing = len(module.entries[kernel].params) - len(flat.arguments)
        arguments = [*flat.arguments, *(Scratch(nbytes * programs) for nbytes in sizes[:missing])]
        warps = getattr(meta, "total_num_warps", meta.num_warps)
        shape = GridShape(
            (x * ctas, y, z),  # Triton's grid counts programs: a cluster each
            (32 * warps, 1, 1),
            (ctas, 1, 1) if ctas > 1 else None,
            meta.shared,
            bool(getattr(meta, "launch_cooperative_grid", False)),
        )
        if enter is not None:
            enter(launch)
        for told in self._machine().launch(module, kernel, shape, arguments, flat.memory):
            self._tell(told)
        if leave is not None:
            leave(launch)


class _Arguments:
    """A launch's arguments as the kernel takes them, and the memory that they point to."""

    def __init__(self, descriptors: Sequence[Mapping[str, Any]] | None) -> None:
        self.arguments: list[Argument] = []
        self.memory: list[HostMemory] = []
        self._descriptors = iter(descriptors) if descriptors else None

    def add(self, name: str, kind: Any, value: Any) -> None:
        if kind == "constexpr":
            return
        if isinstance(kind, tuple):
            for index, (inner, part) in enumerate(zip(kind, value, strict=True)):
                self.add(f"{name}[{index}]", inner, part)
        elif kind.startswith("tensordesc"):
            self._descriptor(name, value)
        elif kind.startswith("*") or kind == "nvTmaDesc":
            self.arguments.append(self._pointer(name, value))
        else:
            self.arguments.append(_scalar(kind, value))

    def _pointer(self, name: str, value: Any) -> PointerArgument:
        if not hasattr(value, "data_ptr"):
            return PointerArgument(int(value or 0))
        if hasattr(value, "untyped_storage"):
            storage = value.untyped_storage()
            self.memory.append(HostMemory(name, storage.data_ptr(), storage.nbytes(), storage))
        elif hasattr(value, "base"):  # a tensor that Triton reads as another type
            return self._pointer(name, value.base)
        return PointerArgument(int(value.data_ptr()))

    def _descriptor(self, name: str, value: Any) -> None:
        """A tensor map and its sizes and strides; where the compiler made no map, what it loads and stores by."""
        shape, strides = [int(n) for n in value.shape], [int(n) for n in value.strides]
        base = self._pointer(name, value.base)
        sizes: list[Argument] = [*(struct.pack("<i", n) for n in shape), *(struct.pack("<q", n) for n in strides)]
        if self._descriptors is None:
            wide = [struct.pack("<q", n) for n in (*shape, *strides)]
            flags = [bytes([value.padding == "nan"]), bytes([bool(getattr(value, "round_f32_to_tf32", False))])]
            self.arguments += [base, *wide, *flags, *sizes]
            return
        meta = next(self._descriptors)
        if meta.get("is_im2col"):
            raise LaunchRefusedError(f"{name}: descriptors for im2col are not made here")
        dtype = "tf32" if getattr(value, "round_f32_to_tf32", False) else _TYPES[meta["elem_type"]]
        if meta.get("fp4_padded"):
            shape[-1] *= 2
        width = meta["elem_size"]
        tensor_map = TensorMapArgument(
            base.address,
            dtype,
            shape[::-1],
            [stride * width for stride in strides[-2::-1]],
            list(meta["block_size"])[::-1],
            _SWIZZLES[meta["swizzle"]],
            "nan" if value.padding == "nan" else "none",
        )
        self.arguments += [tensor_map, *sizes]


def _scalar(kind: str, value: Any) -> Argument:
    match kind:
        case "fp16":
            return np.float16(value).tobytes()
        case "bf16":
            return bytes(round_to_bf16(np.array([value], np.float64)).tobytes())
        case "fp32" | "f32" | "fp64":
            return float(value)
        case _:
            return int(value)
