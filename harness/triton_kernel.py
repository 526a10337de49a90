"""A kernel of Triton's as a kernel of one's own: compiled by Triton's JIT, to the PTX that emulator and GPU run."""

from __future__ import annotations

import functools
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from fmha.harness.contract.device import SINGLE, Dim3
from fmha.harness.judge.case import Case
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.worker.subjects.kernel import Argument, Build, Kernel, Launch
from fmha.harness.worker.subjects.repository_modules import module_of

MOST_SHARED: Final = 227 * 1024  # bytes that a CTA may have on an sm_90 or sm_100; what needs more does not fit
# Triton's names of types: torch's names for them, and how a number of the type is passed.
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "i1": ("bool", "u1"), "u1": ("bool", "u1"),
    **{f"i{bits}": (f"int{bits}", f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (f"uint{bits}", f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "fp16": ("float16", "f2"), "bf16": ("bfloat16", ""), "fp32": ("float32", "f4"), "fp64": ("float64", "f8"),
    "fp8e4nv": ("float8_e4m3fn", ""), "fp8e5": ("float8_e5m2", ""),
}  # fmt: skip


class TritonKernel(Kernel):
    """`source` is the file of the function `name`, `sources` others that it calls functions of. In a package it is
    imported as a module of it, with the repository's root on the path; of the packages `bare` the `__init__.py` is not
    run.

    `signature` has Triton's types of the pointers: `*bf16`, `*fp32`. What numbers are passed as, and which are compiled
    in (1) or known to be divisible by 16, is the JIT's to say, as at a launch. Buffers begin at multiples of 16.

    Where there is an autotuner, a field `choice` of the case is the number of its configuration; without that field it
    is the first that can be launched.
    """

    name: ClassVar[str]
    signature: ClassVar[Mapping[str, str]]
    bare: ClassVar[tuple[str, ...]] = ()
    profile: ClassVar[str] = "lenient"  # Triton's compiler relies on more than the ISA promises
    arch: str = "sm_90a"  # where nobody has asked for a build yet

    @functools.cache  # noqa: B019 - a kernel lives as long as its process
    def function(self) -> Any:
        """The function as the module has it, decorators and all."""
        module = module_of(self.root, self.source, self.bare)
        if not hasattr(module, self.name):
            raise ValueError(f"{self.source} has no {self.name}")
        return getattr(module, self.name)

    @abstractmethod
    def constants(self, case: Case) -> Mapping[str, Any]:
        """The arguments that are compiled in, and Triton's options, num_warps and num_stages; those apart that
        decorators choose."""

    @abstractmethod
    def arguments(self, case: Case) -> Mapping[str, Argument | None]:
        """The others, as a launch takes them: buffers by their names, numbers, and None."""

    @abstractmethod
    def grid(self, case: Case) -> Dim3:
        """What depends on a decorator's choice is in `meta`."""

    def meta(self, case: Case) -> Mapping[str, Any]:
        """`constants` and what autotune and heuristics have chosen beside them, options included."""
        made = self._made(case, self.arch)
        runtime = self.arguments(case).keys()
        return {name: value for name, value in made.given.items() if name not in runtime}

    def build(self, case: Case, arch: str) -> Build:
        """Compiles for a case, with the specialisation that Triton would choose for its arguments."""
        self.arch = arch
        try:
            made = self._made(case, arch)
        except Exception:  # a kernel that does not compile: the build, which compiles it again, says why
            return Build(self.name, {name: _plain(value) for name, value in self.constants(case).items()})
        defines = {name: _plain(value) for name, value in self.meta(case).items()} | dict(made.specialised)
        if made.number is not None:
            defines["autotune"] = f"{made.number}_of_{made.of}"
            self._say(made.number, made.of, " ".join(f"{name}={value}" for name, value in made.chosen.items()))
        metadata = made.compiled.metadata
        return Build(metadata.name, defines, metadata.shared)

    def compile(self, case: Case, arch: str) -> str:
        """The PTX. ValueError for what fmha cannot launch."""
        made = self._made(case, arch).compiled
        if getattr(made.metadata, "global_scratch_size", 0) or getattr(made.metadata, "profile_scratch_size", 0):
            raise ValueError("the kernel asks for scratch memory, as for descriptors of its own: it gets none here")
        return str(made.asm["ptx"])

    def at_hand(self, case: Case, arch: str) -> str | None:
        """As `build` has left it."""
        return self.compile(case, arch) if (case, arch) in self._there else None

    def launches(self, case: Case) -> Sequence[Launch]:
        made = self._made(case, self.arch).compiled
        meta, given = made.metadata, self.arguments(case)
        kinds = made.src.signature
        arguments = [_passed(name, kind, given[name]) for name, kind in kinds.items() if kind != "constexpr"]
        entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", made.asm["ptx"], re.DOTALL)
        taken = entry[1].count(".param") if entry else 0
        arguments += [np.uint64(0)] * (taken - len(arguments))  # pointers to scratch memory
        block = 32 * getattr(meta, "total_num_warps", meta.num_warps)
        x, y, z = self.grid(case)
        ctas = getattr(meta, "num_ctas", 1)
        cluster = (ctas, 1, 1) if ctas > 1 else SINGLE  # Triton's grid counts programs: a cluster each
        return [Launch((x * ctas, y, z), (block, 1, 1), arguments, meta.shared, cluster)]

    @functools.cached_property
    def _there(self) -> set[tuple[Case, str]]:
        """What `_made` has made."""
        return set()

    @property
    def _chosen(self) -> bool:
        return any(field.name == "choice" for field in self.fields)

    @functools.cache  # noqa: B019 - a kernel lives as long as its process
    def _say(self, number: int, of: int, values: str) -> None:
        """Which configuration is judged, what it chooses, and of how many: once for each."""
        which = "is judged" if self._chosen else "is the first that fits"
        print(f"{self.name}: autotune has {of} configurations; number {number} {which}: {values}")

    @functools.cache  # noqa: B019 - a kernel lives as long as its process
    def _made(self, case: Case, arch: str) -> _Made:
        """The first of the candidates that fits. The first one's error, where none does."""
        from triton.compiler.errors import CompileTimeAssertionFailure

        from fmha.harness.triton_choice import candidates
        from fmha.harness.triton_target import compiled, target

        choice = case.choice if self._chosen else None
        constants = dict(self.constants(case))
        failed: Exception | None = None
        function = self.function()  # imported as where there is no GPU: what asks for one decides for itself
        with target(arch):
            given = {name: self._mock(case, name, value) for name, value in self.arguments(case).items()}
            if both := sorted(given.keys() & constants.keys()):
                raise ValueError(f"{both[0]} is a constant, and arguments has it")
            for candidate in candidates(function, {**constants, **given}, constants, choice):
                try:
                    found = compiled(candidate.function, candidate.given)
                except CompileTimeAssertionFailure as error:  # an autotuner passes over it as well
                    failed = failed or error
                    continue
                if found.metadata.shared > MOST_SHARED:
                    failed = failed or ValueError(f"it needs {found.metadata.shared} bytes of shared memory")
                    continue
                specialised = _specialised(found.src, given)
                chosen = {name: _plain(value) for name, value in candidate.chosen.items()}
                self._there.add((case, arch))
                return _Made(found, dict(candidate.given), specialised, candidate.number, candidate.of, chosen)
        raise failed or ValueError(f"{self.name} has no configuration that can be launched")

    def _mock(self, case: Case, name: str, value: Any) -> Any:
        """What stands for an argument while decorators and the JIT look at it."""
        if not isinstance(value, str):
            return value.item() if isinstance(value, np.generic) else value
        kind = self.signature.get(name, "")
        if not kind.startswith("*") or kind[1:] not in _TYPES:
            known = ", ".join(f"*{item}" for item in _TYPES)
            raise ValueError(f"{name} is the buffer {value!r}, and signature gives it {kind or 'no type'}: {known}")
        return Pointer(kind[1:], lambda: self._shape(case, value), lambda: self._zeroed(case, value))

    def _shape(self, case: Case, buffer: str) -> tuple[int, ...]:
        written = {**self.outputs(case), **self.scratch(case)}
        if buffer in written:
            return written[buffer].shape
        return tuple(np.shape(self.inputs(case, np.random.default_rng(0))[buffer]))

    def _zeroed(self, case: Case, buffer: str) -> None:
        """A configuration's pre_hook fills the buffer with zeros before a launch."""
        written = {**self.outputs(case), **self.scratch(case)}
        if buffer not in written or written[buffer].first != "zeros":
            raise ValueError(f"autotune's pre_hook zeroes {buffer}: declare it as Output(..., first='zeros')")


@dataclass(frozen=True, slots=True)
class _Made:
    compiled: Any  # Triton's CompiledKernel
    given: Mapping[str, Any]
    specialised: Mapping[str, str]
    number: int | None  # of the autotuner's configuration, how many it has, and what this one chooses
    of: int
    chosen: Mapping[str, str]


class Pointer:
    """A tensor as decorators and the JIT see it: of a type and a shape, at an address that is divisible by 16."""

    def __init__(self, kind: str, shape: Callable[[], tuple[int, ...]], zeroed: Callable[[], None]) -> None:
        label = _TYPES[kind][0]
        torch = sys.modules.get("torch")
        self.dtype = getattr(torch, label) if torch is not None else _Type(label)
        self._shape = shape
        self.zero_ = zeroed

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor that it points to."""
        return self._shape()

    def stride(self, dim: int | None = None) -> Any:
        """In elements, contiguous; of one dimension or of all."""
        sizes = self.shape
        strides = [int(np.prod(sizes[at + 1 :])) for at in range(len(sizes))]
        return tuple(strides) if dim is None else strides[dim]

    def numel(self) -> int:
        """Elements."""
        return int(np.prod(self.shape))

    def data_ptr(self) -> int:
        """0: nothing is allocated, and Triton takes it for aligned."""
        return 0

    def ptr_range(self) -> int:
        """0: nothing is allocated."""
        return 0


@dataclass(frozen=True, slots=True)
class _Type:
    label: str

    def __str__(self) -> str:
        return f"torch.{self.label}"


def _specialised(source: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """What the JIT has taken of numbers, by which one compilation differs from another."""
    known = {path[0]: dict(found) for path, found in source.attrs.items()}

    def said() -> Iterator[tuple[str, str]]:
        for at, (name, kind) in enumerate(source.signature.items()):
            if name not in given or isinstance(given[name], Pointer):
                continue
            if kind == "constexpr":
                yield name, _plain(given[name])
            elif "tt.divisibility" in known.get(at, {}):
                yield name, f"div{known[at]['tt.divisibility']}" + ("" if kind == "i32" else f"_{kind}")
            elif kind not in ("i32", "fp32"):
                yield name, kind

    return dict(said())


def _plain(value: Any) -> str:
    """A constant in words that are the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))[:200]


def _passed(name: str, kind: Any, value: Any) -> Argument:
    """An argument of a launch as the type that the JIT gives it."""
    if isinstance(value, str):
        return value
    if not isinstance(kind, str) or kind.startswith(("*", "tensordesc")):
        raise ValueError(f"{name} is passed as {kind}: buffers, numbers and None are what fmha passes")
    form = _TYPES[kind][1] if kind in _TYPES else ""
    if kind == "bf16":
        return bytes(round_to_bf16(np.array([value], np.float64)).tobytes())
    if not form:
        raise ValueError(f"{name} is passed as {kind}, and no number of that type can be")
    return np.array(value).astype(bool if kind in ("i1", "u1") else form).tobytes()
