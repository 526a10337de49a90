"""The emulator as a device. The only file of the harness that imports `emulator`."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import emulator
from harness.worker.devices.base import DeviceError, Dim3, LaunchReport, TensorMapSpec
from harness.worker.protocol import FindingRecord


class EmulatorDevice:
    """One emulator.Device of its own memory, seed and schedule."""

    name = "emulator"
    artifact: Literal["ptx", "cubin"] = "ptx"

    def __init__(self, seed: int, schedule: str) -> None:
        self._device: Any = emulator.Device(seed=seed, schedule=schedule)

    def alloc(self, nbytes: int, name: str) -> int:
        return int(self._device.alloc(nbytes, name=name).address)

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self._device.write(address, np.ascontiguousarray(data))

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        data: NDArray[np.uint8] = self._device.read(address, nbytes)
        return data

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        try:
            return emulator.encode_tiled(
                **{field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
            )
        except emulator.TensorMapError as error:
            raise DeviceError(f"tensor map refused: {error}") from error

    def load(self, artifact: Path) -> Any:
        return _load(artifact)

    def launch(
        self, module: Any, entry: str, grid: Dim3, block: Dim3, shared_bytes: int, params: bytes
    ) -> LaunchReport:
        try:
            report = self._device.launch(
                module, entry, grid=grid, block=block, shared_bytes=shared_bytes, args=[params]
            )
        except (ValueError, emulator.PtxError) as error:
            raise DeviceError(f"launch of {entry} refused: {error}") from error
        return LaunchReport(tuple(_record(finding) for finding in report.findings), _plain(report.stats))

    def close(self) -> None:
        self._device = None


@functools.lru_cache(maxsize=8)
def _load(artifact: Path) -> Any:
    """Parses once a process: artefacts lie in a cache by content and never change."""
    try:
        return emulator.load_ptx(artifact)
    except emulator.PtxError as error:
        raise DeviceError(f"{artifact.name} refused: {error}") from error


def _record(finding: Any) -> FindingRecord:
    where = _plain(finding)
    return FindingRecord(where.pop("rule"), str(where.pop("severity")), where.pop("message"), where)  # type: ignore[arg-type]


def _plain(value: Any) -> dict[str, Any]:
    """The named parts of a report's dataclass, mapping or object that are not None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = dataclasses.asdict(value)
    else:
        parts = dict(value) if isinstance(value, dict) else dict(vars(value))
    return {name: part for name, part in parts.items() if part is not None}
