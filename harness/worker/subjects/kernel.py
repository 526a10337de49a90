"""A kernel of one's own, as matrix.yaml names it. docs/use/kernels.md is the guide, `fmha init` writes one."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import SINGLE, Dim3, TensorMapType
from fmha.harness.judge.case import Case, Field
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.worker.subjects.dtypes import dtype_of, from_dtype, to_dtype

__all__ = [
    "At",
    "Build",
    "Case",
    "Field",
    "Kernel",
    "Launch",
    "Output",
    "Struct",
    "TensorMap",
    "from_bf16",
    "from_dtype",
    "to_bf16",
    "to_dtype",
]

Array = NDArray[Any]
to_bf16 = round_to_bf16
PROFILES: Final = ("strict", "lenient")  # of docs/understand/order.md
FIRST: Final = ("poison", "zeros", "input")  # what an output may hold before the first launch


@dataclass(frozen=True, slots=True)
class Build:
    """One compilation: the entry that is launched, and the macros that `-D` defines. An entry that is not `extern "C"`
    is named as in C++, with template arguments where it has some: `add<float, 4>`, `ns::add`.

    Two cases with equal builds share one. `shared_bytes` is the most dynamic shared memory that a launch asks for.
    `others` are further entries of the same module that launches name, as one that adds up what splits have left.
    """

    entry: str
    defines: Mapping[str, str | int] = field(default_factory=dict)
    shared_bytes: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What a kernel writes: a buffer of this shape, whose `dtype` is one of fmha.harness.worker.subjects.dtypes.

    `first` says what it holds before the first launch: `poison`, so that an element that nobody writes fails; `zeros`,
    for atomics and sums; or `input`, the input of the same name, which the kernel changes in place and the reference
    gets as it was. Of e2m1x2, two elements to a byte, the shape is of elements.
    """

    shape: tuple[int, ...]
    dtype: str = "f32"
    first: Literal["poison", "zeros", "input"] = "poison"

    def __post_init__(self) -> None:
        dtype_of(self.dtype).shape(tuple(self.shape))
        if self.first not in FIRST:
            raise ValueError(f"first {self.first!r:.40} is not one of {', '.join(FIRST)}")


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The arguments of cuTensorMapEncodeTiled over the buffer of that name, innermost dimension first; strides in
    bytes, without the innermost. As an argument of a launch it is the 128 bytes of a `const __grid_constant__`."""

    buffer: str
    dtype: TensorMapType
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    swizzle: Literal["none", "32B", "64B", "128B"] = "none"


@dataclass(frozen=True, slots=True)
class At:
    """As an argument the address so many bytes into a buffer."""

    buffer: str
    offset: int = 0


Plain = str | int | float | bytes | np.generic | TensorMap | At


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct by value, of `size` bytes: what lies at which offset in bytes. The rest, padding too, is zero."""

    size: int
    at: Mapping[int, Plain]


Argument = Plain | Struct


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. An argument is a buffer's address by its name, a NumPy scalar as it is, a struct or its bytes, a
    tensor map; a Python int is 32 bits wide and a Python float is a `float`.

    `entry` is one of the build's `others`; empty for its own. One that `overlaps` is launched with programmatic stream
    serialization: it may start while the launch before it runs, and waits for it itself (griddepcontrol.wait).

    Launches of several streams each name theirs, as reports are to call it. `beside` then has those before this one
    that nothing orders before it, counted back from it: 1 is the launch before. The emulator runs them one after the
    other and reports what they may do to each other; a GPU is given them in order.

    `where` is the file and line that made it, which a launch that no GPU takes is refused with; found where not given.
    """

    grid: Dim3
    block: Dim3
    args: Sequence[Argument]
    shared_bytes: int = 0
    cluster: Dim3 = SINGLE
    entry: str = ""
    overlaps: bool = False
    beside: tuple[int, ...] = ()
    stream: str = ""
    where: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.where:
            frame = sys._getframe(2)  # behind __init__
            object.__setattr__(self, "where", f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")


class Kernel(ABC):
    """What the loop has to know of a kernel: fields, build, inputs, launches, outputs and the right answer.

    The rest is shared: the emulator and its hazards, poison, the numbers' gates, guard, archive, regress and reports.
    Every method is a function of its arguments alone: it is called in several processes, and more than once.
    """

    root: Path = Path()  # of the repository; whoever loads the adapter sets it
    home: Path = Path()  # where the adapter lies: another commit's, where a kernel is judged by that one's
    arch: str = ""  # of the build that `launches` are of; whoever asks for them sets it
    source: ClassVar[str]  # the .cu, or the .ptx of another compiler, from the root of the repository
    sources: ClassVar[tuple[str, ...]] = ()  # files and folders that it includes: a change to them builds anew
    flags: ClassVar[tuple[str, ...]] = ("-std=c++17", "-O3", "-lineinfo")  # nvcc's, beside -arch and -D
    overwrites: ClassVar[tuple[str, ...]] = ()  # inputs that it may change; a change to another one is a failure
    archs: ClassVar[tuple[str, ...]] = ()  # as nvcc names them, e.g. sm_90a; empty: any
    profile: ClassVar[str] = "strict"  # or "lenient": what released compilers and kernels rely on is no hazard
    fields: ClassVar[tuple[Field, ...]]  # of a configuration, in the order in which its name has them

    def fault(self, case: Case) -> str | None:
        """Why no such case can be run, beyond what `fields` say; None for a legal one."""
        return None

    @abstractmethod
    def build(self, case: Case, arch: str) -> Build:
        """What is compiled for a case: an entry, macros, compiler's flags."""

    def compile(self, case: Case, arch: str) -> str | None:
        """The PTX of another compiler, the same for all cases of equal builds; None where nvcc compiles `source`."""
        return None

    def at_hand(self, case: Case, arch: str) -> str | None:
        """What `compile` would give, if this process has compiled it by now; None where it has not."""
        return None

    @abstractmethod
    def inputs(self, case: Case, random: np.random.Generator) -> Mapping[str, Array]:
        """Buffers that the kernel reads, by name: drawn from `random` alone. Arrays of NumPy's, of ml_dtypes' types, or
        bit patterns that `to_dtype` makes."""

    @abstractmethod
    def outputs(self, case: Case) -> Mapping[str, Output]:
        """Buffers that the kernel writes, by name."""

    def scratch(self, case: Case) -> Mapping[str, Output]:
        """Buffers that one launch leaves to the next, by name: full of poison before the first, or of zeros, and not
        compared."""
        return {}

    @abstractmethod
    def launches(self, case: Case) -> Sequence[Launch]:
        """The launches in order, each of an entry of `build`."""

    @abstractmethod
    def reference(self, case: Case, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """What every output should be, in float64, from the inputs as the kernel got them."""
