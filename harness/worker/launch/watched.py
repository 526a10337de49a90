"""A device whose launches are not believed to have left alone what they were given to read."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import Device, LaunchConfig, LaunchReport, LoadedModule, Params, Roomy, TensorMapSpec
from fmha.harness.judge.findings import FindingRecord

ZONE: Final = 256  # bytes before and behind a buffer: addresses keep their alignment
ZONE_BYTE: Final = 0xA7


class ChangedError(Exception):
    """A launch changed what it was to read, or what is no buffer; the message names the place. `findings` are those of
    its report."""

    def __init__(self, message: str, findings: tuple[FindingRecord, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class Watched:
    """`device`, which remembers what was uploaded, and has zones around its buffers where the device reports no access
    outside of them by itself: a GPU's, which takes a cubin. It says by which profile a launch is judged, whatever the
    launch says: it may be the judged commit's."""

    def __init__(self, device: Device, lenient: bool) -> None:
        self.name = device.name
        self.artifact: Literal["ptx", "cubin"] = device.artifact
        self.multiprocessors = device.multiprocessors
        self._device = device
        self._lenient = lenient
        self._zoned = device.artifact == "cubin"
        self._buffers: list[tuple[int, int, str]] = []
        self._uploaded: dict[int, NDArray[Any]] = {}

    def alloc(self, nbytes: int, name: str) -> int:
        return self._between_zones(self._device.alloc, nbytes, name)

    def _between_zones(self, take: Callable[[int, str], int], nbytes: int, name: str) -> int:
        if not self._zoned:
            address = take(nbytes, name)
        else:
            address = take(nbytes + 2 * ZONE, name) + ZONE
            for start in (address - ZONE, address + nbytes):
                self._device.upload(start, np.full(ZONE, ZONE_BYTE, np.uint8))
        self._buffers.append((address, nbytes, name))
        return address

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self._uploaded[address] = data
        self._device.upload(address, data)

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        return self._device.download(address, nbytes)

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        return self._device.encode_tensor_map(spec)

    def load(self, artifact: Path) -> LoadedModule:
        return self._device.load(artifact)

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        return self._device.launch(module, entry, replace(config, lenient=self._lenient), params)

    def close(self) -> None:
        self._device.close()

    def check(self, written: Container[str], findings: tuple[FindingRecord, ...]) -> None:
        """Raises ChangedError for a buffer that is not what was uploaded and not among the `written`, and for a zone
        that is not as it was."""
        for address, data in self._uploaded.items():
            name = next(name for start, size, name in self._buffers if start <= address < start + max(1, size))
            if name not in written and data.nbytes:
                left = self._device.download(address, data.nbytes)
                if said := _difference(name, np.ascontiguousarray(data), left):
                    raise ChangedError(said, findings)
        for address, size, name in self._buffers if self._zoned else ():
            for where, start in (("before", address - ZONE), ("behind", address + size)):
                changed = np.flatnonzero(self._device.download(start, ZONE) != ZONE_BYTE)
                if changed.size:
                    place = ZONE - int(changed[-1]) if where == "before" else int(changed[0]) + 1
                    raise ChangedError(f"a launch wrote outside of its buffers: byte {place} {where} {name}", findings)


class RoomyWatched(Watched):
    """The same of a device that has the end of a tensor alone."""

    def __init__(self, device: Roomy, lenient: bool) -> None:
        super().__init__(device, lenient)
        self._roomy = device

    @property
    def first_plane(self) -> int:
        """From which plane on arrays may be placed."""
        return self._roomy.first_plane

    @first_plane.setter
    def first_plane(self, plane: int) -> None:
        self._roomy.first_plane = plane

    def reserve(self, nbytes: int, name: str) -> int:
        return self._between_zones(self._roomy.reserve, nbytes, name)

    def back(self, address: int, nbytes: int, name: str) -> None:
        self._roomy.back(address, nbytes, name)


def watched(device: Device, lenient: bool = False) -> Watched:
    """`device` for one run of one configuration, whose launches are held to the lenient profile or not."""
    return RoomyWatched(device, lenient) if isinstance(device, Roomy) else Watched(device, lenient)


def _difference(name: str, given: NDArray[Any], left: NDArray[np.uint8]) -> str:
    """What a reader has to know of the first element that differs; empty where none does."""
    if np.array_equal(given.reshape(-1).view(np.uint8), left):
        return ""
    found = left.view(given.dtype).reshape(given.shape)
    # By their bits: a NaN is not equal to itself.
    bits = [array.view(f"u{array.itemsize}") for array in (given, found)]
    places = np.argwhere(bits[0] != bits[1])
    first = tuple(int(index) for index in places[0])
    at = ", ".join(map(str, first))
    return (
        f"a launch changed its input {name}: element [{at}] was {given[first]} and is {found[first]}; "
        f"{len(places)} of {given.size} differ"
    )
