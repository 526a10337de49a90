"""Device memory: buffers, what is copied to and from them, textures over them, a module's variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.decode import MULTIMEM
from fmha.emulator.device.module import Module
from fmha.emulator.device.variables import place_variables
from fmha.emulator.texture_objects import Image, Sampler, packed

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Buffer:
    """An allocation: where it begins in the device's address space, and its bytes."""

    address: int
    nbytes: int
    name: str

    @property
    def multimem_address(self) -> int:
        """Where `multimem` instructions reach it: the address of a multicast object whose team is this device."""
        return self.address + MULTIMEM


class Memory:
    """What lies in a machine's memory, as long as the object lives."""

    def __init__(self, machine: _core.Machine) -> None:
        self._machine = machine
        self._symbols: dict[Module, dict[str, int]] = {}
        self._sizes: dict[int, int] = {}  # of allocations, by their addresses
        self._buffers: dict[int, Buffer] = {}  # by address

    def alloc(self, nbytes: int, name: str = "buffer", zeroed: bool = False) -> Buffer:
        """Device memory, 256-byte aligned, with a guard gap behind it; `name` appears in reports.

        It is full of NaN, and a kernel that reads what neither `write` nor a launch has written is reported. `zeroed`
        makes it zero, as cudaMemset does, and counts as written.
        """
        if nbytes <= 0:
            raise ValueError(f"allocation of {nbytes} bytes")
        buffer = Buffer(self._machine.allocate(nbytes, name), nbytes, name)
        self._buffers[buffer.address] = buffer
        self._sizes[buffer.address] = nbytes
        if zeroed:
            self._machine.zero(buffer.address, nbytes)
        return buffer

    def reserve(self, nbytes: int) -> int:
        """Addresses that no other buffer gets, 256-byte aligned. There is memory where `back` puts some: a tensor may
        be larger than this computer's memory, and only what a kernel touches of it be there."""
        if nbytes <= 0:
            raise ValueError(f"reservation of {nbytes} bytes")
        return self._machine.reserve(nbytes)

    def back(self, address: int, nbytes: int, name: str = "buffer") -> Buffer:
        """Memory at addresses that are reserved, as `alloc` makes it. ValueError where some of them are not free."""
        if nbytes <= 0 or address % 256:
            raise ValueError(f"{nbytes} bytes at {address:#x}: memory begins at a multiple of 256")
        self._machine.back(address, nbytes, name)
        buffer = Buffer(address, nbytes, name)
        self._buffers[address] = buffer
        self._sizes[address] = nbytes
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Gives the memory back; an access to it is a hazard from then on."""
        self._machine.release(buffer.address)
        del self._buffers[buffer.address]

    def buffer_at(self, address: int) -> Buffer | None:
        """The buffer that holds an address."""
        held = (b for b in self._buffers.values() if b.address <= address < b.address + b.nbytes)
        return next(held, None)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The memory that is there, by its addresses."""
        return tuple(self._buffers[address] for address in sorted(self._buffers))

    def write(self, address: int, data: NDArray[Any] | Tensor | bytes) -> None:
        """Copies the bytes of an array or a torch tensor. IndexError when they do not fit one allocation."""
        self._machine.write(address, data if isinstance(data, bytes) else _bytes_of(data))

    def read(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Copies bytes from the device. IndexError when they are not in one allocation."""
        return np.frombuffer(self._machine.read(address, nbytes), dtype=np.uint8).copy()

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copies bytes on the device; those that nobody has written stay so. IndexError when they do not fit."""
        self._machine.copy(to, source, nbytes)

    def texture(self, image: Image, sampler: Sampler | None = None) -> int:
        """A texture object: its handle, which is a kernel's argument of 64 bits. ImageError for what CUDA refuses."""
        return self._machine.add_image(packed(image, sampler or Sampler()))

    def surface(self, image: Image) -> int:
        """The same for a surface object."""
        return self._machine.add_image(packed(image, None))

    def destroy(self, handle: int) -> None:
        """Of a texture or surface object. ValueError where it is none."""
        if not self._machine.drop_image(handle):
            raise ValueError(f"0x{handle:x} is no texture or surface object")

    def variables(self, module: Module) -> dict[str, Buffer]:
        """Where the .global and .const variables of a module lie. LaunchError where there is no room."""
        places, sizes = self._placed(module), module.parsed.variables
        return {name: Buffer(address, max(sizes[name].nbytes, 1), name) for name, address in places.items()}

    def _placed(self, module: Module) -> dict[str, int]:
        if module not in self._symbols:
            self._symbols[module] = place_variables(self._machine, module)
        return self._symbols[module]


def _bytes_of(data: NDArray[Any] | Tensor) -> bytes:
    if isinstance(data, np.ndarray) or not hasattr(data, "untyped_storage"):
        return np.ascontiguousarray(data).tobytes()
    import torch  # here: whoever has a tensor has it

    # As bytes: NumPy has not all of torch's types.
    raw: bytes = data.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return raw
