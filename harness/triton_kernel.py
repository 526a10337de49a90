"""A kernel of Triton's as a kernel of one's own: compiled by Triton itself, to the PTX that emulator and GPU run."""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fmha.harness.contract.device import Dim3
from fmha.harness.judge.case import Case
from fmha.harness.triton_ptx import ptx_for_cubin
from fmha.harness.worker.subjects.kernel import Argument, Build, Kernel, Launch, module_at

# The newest that the ptxas of nvcc 12.9 reads, which is the oldest nvcc that fmha takes.
PTX_VERSION = 88


class TritonKernel(Kernel):
    """`source` is the file of the function `name`, `sources` others that it calls functions of.

    Triton's own types tell how arguments are passed: `*bf16`, `*fp32`, `i32`, `fp32`. Pointers are to whole buffers, so
    they are taken to be divisible by 16; nothing is taken of numbers.
    """

    name: ClassVar[str]
    signature: ClassVar[Mapping[str, str]]  # the function's arguments that are no constants, and their types

    @functools.cache  # noqa: B019 - a kernel lives as long as its process
    def function(self) -> Any:
        """What `@triton.jit` made of the function."""
        return getattr(module_at(self.root / self.source), self.name)

    @abstractmethod
    def constants(self, case: Case) -> Mapping[str, Any]:
        """The arguments that are compiled in, and Triton's options: num_warps, num_stages."""

    @abstractmethod
    def arguments(self, case: Case) -> Mapping[str, Argument]:
        """The others, as a launch takes them."""

    @abstractmethod
    def grid(self, case: Case) -> Dim3: ...

    def build(self, case: Case, arch: str) -> Build:
        defines = {name: str(value) for name, value in self.constants(case).items()}
        try:
            metadata = self._compiled(case, arch).metadata
        except Exception:  # a kernel that does not compile: the build, which compiles it again, says why
            return Build(self.name, defines)
        return Build(metadata.name, defines, metadata.shared)

    def compile(self, case: Case, arch: str) -> str:
        """The PTX. ValueError for what fmha cannot launch."""
        made = self._compiled(case, arch)
        if getattr(made.metadata, "global_scratch_size", 0) or getattr(made.metadata, "profile_scratch_size", 0):
            raise ValueError("the kernel asks for scratch memory, as for descriptors of its own: it gets none here")
        return str(made.asm["ptx"])

    def launches(self, case: Case) -> Sequence[Launch]:
        arch = "sm_90a"  # block and arguments are the same for every architecture
        made = self._compiled(case, arch)
        meta, given = made.metadata, self.arguments(case)
        arguments = [given[name] for name in self.function().arg_names if name in self.signature]
        entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", made.asm["ptx"], re.DOTALL)
        taken = entry[1].count(".param") if entry else 0
        arguments += [np.uint64(0)] * (taken - len(arguments))  # pointers to scratch memory
        block = 32 * getattr(meta, "total_num_warps", meta.num_warps)
        return [Launch(self.grid(case), (block, 1, 1), arguments, meta.shared)]

    def _compiled(self, case: Case, arch: str) -> Any:
        """Triton keeps what it has compiled, by its own key."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        function, constants = self.function(), dict(self.constants(case))
        options = {name: constants.pop(name) for name in list(constants) if name not in function.arg_names}
        kinds = {name: self.signature.get(name, "constexpr") for name in function.arg_names}
        if unknown := [name for name in constants if kinds[name] != "constexpr"]:
            raise ValueError(f"{unknown[0]} is a constant, and signature has it")
        aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(kinds.values()) if kind.startswith("*")}
        target = GPUTarget("cuda", int(re.sub(r"\D", "", arch)), 32)
        source = ASTSource(function, kinds, constants, aligned)
        with ptx_for_cubin():
            return triton.compile(source, target=target, options={"ptx_version": PTX_VERSION, **options})
