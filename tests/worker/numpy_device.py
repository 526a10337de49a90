"""A device that computes attention with NumPy from the C ABI alone: addresses, tensor maps and packed parameters."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.worker.bf16 import from_bf16
from harness.worker.devices.base import DeviceError, Dim3, LaunchReport, TensorMapSpec
from harness.worker.params import LAYOUT
from harness.worker.protocol import FindingRecord

_MAP = "<Q3Q"


class NumpyDevice:
    """Memory is a dictionary of buffers; `launches` records what the launcher asked for."""

    name = "numpy"
    artifact: Literal["ptx", "cubin"] = "ptx"

    def __init__(self, seed: int = 0, schedule: str = "realistic") -> None:
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.maps: list[TensorMapSpec] = []
        self.launches: list[tuple[str, Dim3, Dim3, int]] = []
        self.findings: tuple[FindingRecord, ...] = ()
        self.closed = False

    def alloc(self, nbytes: int, name: str) -> int:
        address = 0x1000000 * (len(self.memory) + 1)
        self.memory[address] = np.zeros(nbytes, dtype=np.uint8)
        return address

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self.memory[address][:] = np.ascontiguousarray(data).view(np.uint8).reshape(-1)

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        return self.memory[address][:nbytes].copy()

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        self.maps.append(spec)
        return struct.pack(_MAP, spec.address, *spec.global_dim).ljust(128, b"\0")

    def load(self, artifact: Path) -> str:
        if not artifact.is_file():
            raise DeviceError(f"no such file: {artifact}")
        return artifact.name

    def launch(
        self, module: object, entry: str, grid: Dim3, block: Dim3, shared_bytes: int, params: bytes
    ) -> LaunchReport:
        self.launches.append((entry, grid, block, shared_bytes))
        fields = {name: struct.unpack_from(f"<{kind}", params, offset)[0] for name, offset, kind in LAYOUT}
        q, k, v = (self._tensor(fields[name]) for name in ("q", "k", "v"))
        scores = fields["scale"] * (q @ k.swapaxes(1, 2))
        row_max = scores.max(axis=2)
        weights = np.exp(scores - row_max[..., np.newaxis])
        row_sum = weights.sum(axis=2)
        self._store(fields["o"], weights @ v)
        self._store(fields["row_max"], row_max)
        self._store(fields["row_sum"], row_sum)
        self._store(fields["lse"], row_max + np.log(row_sum))
        return LaunchReport(self.findings, {"launches": len(self.launches)})

    def close(self) -> None:
        self.closed = True

    def _tensor(self, tensor_map: bytes) -> NDArray[np.float64]:
        address, head_dim, rows, batch = struct.unpack_from(_MAP, tensor_map)
        bits = self.memory[address].view(np.uint16).reshape(batch, rows, head_dim)
        return from_bf16(bits)

    def _store(self, address: int, values: NDArray[np.float64]) -> None:
        self.upload(address, values.astype(np.float32))
