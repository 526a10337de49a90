"""The small device interface that the launcher is written over: the emulator, and a GPU under the CUDA driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from fmha.harness.contract.protocol import Ceilings as Ceilings
from fmha.harness.contract.protocol import FindingRecord

if TYPE_CHECKING:  # numpy takes a tenth of a second, and clients of hosts elsewhere need none
    import numpy as np
    from numpy.typing import NDArray

Dim3 = tuple[int, int, int]
TensorMapType = Literal["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16"]
SINGLE: Final[Dim3] = (1, 1, 1)


class DeviceError(Exception):
    """The device refused a request; the message says which and why."""


class IllegalError(DeviceError):
    """What was asked for is no launch or tensor map that such a device makes: whoever launches it is at fault."""


class DeviceLostError(Exception):
    """A kernel took the device down with it: this process cannot use it any more. The message says how."""


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """The arguments of cuTensorMapEncodeTiled, innermost dimension first; strides in bytes, without the innermost."""

    dtype: TensorMapType
    address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: Literal["none", "32B", "64B", "128B"]


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """CTAs of a grid, threads of a CTA, CTAs of a cluster, and a CTA's bytes of dynamic shared memory. One that
    `overlaps` may start while the kernel before it in the stream runs, and waits for it itself. Of a call in several
    streams each launch names its own, and `beside` has those before it that may run beside it, counted back from it.
    The emulator holds one that is `lenient` to the lenient profile in place of its own."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    cluster: Dim3 = SINGLE  # of one CTA: none
    overlaps: bool = False
    beside: tuple[int, ...] = ()
    stream: str = ""
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launch left behind: hazards (none on a device that cannot see them) and counters."""

    findings: tuple[FindingRecord, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)


Params = bytes | tuple[bytes, ...]  # the only parameter, or one after the other


class LoadedModule(Protocol):
    """An artefact the device has accepted."""


class Device(Protocol):
    """What launches are written against: a GPU, or the emulator."""

    name: str
    artifact: Literal["ptx", "cubin"]
    multiprocessors: int

    def alloc(self, nbytes: int, name: str) -> int:
        """The address of so many bytes."""

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copies an array to the device, as its bytes lie."""

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Copies bytes from the device."""

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """The 128 bytes of a tensor map. IllegalError where the driver refuses it."""

    def load(self, artifact: Path) -> LoadedModule:
        """Loads a compiled kernel, `ptx` or `cubin` as `artifact` says."""

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        """Launches a kernel. IllegalError where the driver refuses it."""

    def close(self) -> None: ...


@runtime_checkable
class Roomy(Device, Protocol):
    """What a device is as well when it runs the end of a grid over tensors of which the end alone is looked at."""

    first_plane: int  # of the launches to come: CTAs of a lower z may be left out

    def reserve(self, nbytes: int, name: str) -> int:
        """Addresses for a tensor, 256-byte aligned; there need be no memory but where `back` puts some."""

    def back(self, address: int, nbytes: int, name: str) -> None:
        """Memory at addresses that are reserved, from a multiple of 256 on."""


@runtime_checkable
class Stopwatch(Protocol):
    """What a device is as well when its times mean something."""

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        """Keeps the launches that `work` makes. What is returned makes them again, waits, and says how many seconds of
        the device's own clock they took."""

    def clock(self) -> float | None:
        """The clock that kernels run at now, in MHz; None when it cannot be read."""


@runtime_checkable
class Rated(Protocol):
    """What a device is as well when it can say what it does at most."""

    def ceilings(self) -> Ceilings:
        """Measured the first time."""
