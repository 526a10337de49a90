"""Triton's JIT for an architecture that is not here: it specialises and compiles as it does before a launch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from fmha.harness.triton_ptx import ptx_for_cubin

# The newest that the ptxas of nvcc 12.9 reads, which is the oldest nvcc that fmha takes.
PTX_VERSION = 88


class _Target(DriverBase):  # type: ignore[misc] # Triton is no package of mypy's here
    """A driver that names what is compiled for, and has nothing to launch on."""

    def __init__(self, number: int) -> None:
        self._number = number

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._number, 32)

    def get_current_device(self) -> int:
        """Triton keeps kernels by it."""
        return self._number

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Any:
        raise RuntimeError("nothing is timed where a kernel is compiled")


@contextlib.contextmanager
def target(arch: str) -> Iterator[None]:
    """Triton's target is `arch`, as nvcc names it."""
    from triton.runtime import driver  # the object that triton.runtime.driver is, not the module

    before = driver._active
    driver.set_active(_Target(int(re.sub(r"\D", "", arch))))
    try:
        with ptx_for_cubin():
            yield
    finally:
        driver._active = before


def compiled(function: Any, given: Mapping[str, Any]) -> Any:
    """What the JIT compiles when `function` is launched with these arguments and options, within `target`."""
    return function.warmup(grid=(1,), **{"ptx_version": PTX_VERSION, **given})
