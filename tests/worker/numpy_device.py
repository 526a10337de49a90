"""A device that computes attention with NumPy from the C ABI alone: addresses, tensor maps and packed parameters."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import DeviceError, LaunchConfig, LaunchReport, TensorMapSpec
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays
from fmha.harness.judge.oracle.reference import denominator, reference
from fmha.harness.kernel_side.params import LAYOUT, MAPS, NORMALISE, OUTPUT_BF16, SHARED_KV, UNLIMITED
from fmha.harness.worker.launch.scatter import packed, unpacked

_ADDRESS = "<Q"  # what this device keeps in a tensor map


class NumpyDevice:
    """Memory is a dictionary of buffers; `launches` records what the launcher asked for.

    An entry whose name has `combine` in it merges the partial results that a launch with splits has left.
    """

    name = "numpy"
    artifact: Literal["ptx", "cubin"] = "ptx"
    multiprocessors = 4

    def __init__(self, seed: int = 0, schedule: str = "realistic") -> None:
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.maps: list[TensorMapSpec] = []
        self.launches: list[tuple[str, LaunchConfig]] = []
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
        return struct.pack(_ADDRESS, spec.address).ljust(128, b"\0")

    def load(self, artifact: Path) -> str:
        if not artifact.is_file():
            raise DeviceError(f"no such file: {artifact}")
        return artifact.name

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        self.launches.append((entry, config))
        fields = {name: struct.unpack_from(f"<{kind}", params, offset)[0] for name, offset, kind in LAYOUT}
        fields |= {name: struct.unpack_from(_ADDRESS, fields[name])[0] for name in MAPS}
        if "combine" in entry:
            self._combine(fields)
        else:
            self._attend(fields, merged=config.cluster[1] == fields["splits"])
        return LaunchReport(self.findings, {"launches": 1})

    def close(self) -> None:
        self.closed = True

    def _attend(self, fields: dict[str, Any], merged: bool) -> None:
        result = reference(self._inputs(fields))
        if merged:
            self._store(fields, result.o_unnormalised, result.row_max, result.row_sum)
            return
        # Everything in the first split; the others saw no key.
        for name, values, empty in (
            ("partial_o", result.o_unnormalised, 0.0),
            ("partial_max", result.row_max, -np.inf),
            ("partial_sum", result.row_sum, 0.0),
        ):
            parts = np.full((fields["splits"], values.size), empty, dtype=np.float32)
            parts[0] = _in_planes(values, fields["kv_heads"]).reshape(-1)
            self.upload(fields[name], parts)

    def _combine(self, fields: dict[str, Any]) -> None:
        rows = (fields["splits"], fields["batch"], fields["t"], fields["heads"])
        row_max, row_sum = (self._floats(fields[name]).reshape(rows) for name in ("partial_max", "partial_sum"))
        o = self._floats(fields["partial_o"]).reshape(*rows, fields["head_dim"])
        peak = row_max.max(axis=0)
        weights = np.exp(row_max - np.where(np.isneginf(peak), 0.0, peak))
        merged = (o * weights[..., np.newaxis]).sum(axis=0), peak, (row_sum * weights).sum(axis=0)
        self._store(fields, *(_of_entries(part, fields["kv_heads"]) for part in merged))

    def _store(
        self, fields: dict[str, Any], o: NDArray[np.float64], row_max: NDArray[np.float64], row_sum: NDArray[np.float64]
    ) -> None:
        if fields["flags"] & NORMALISE:
            o = o / denominator(row_max, row_sum, self._sink(fields))[..., np.newaxis]
        with np.errstate(divide="ignore"):
            lse = row_max + np.log(row_sum)
        if (lengths := self._lengths(fields, "cu_seqlens_q")) is not None:
            o, row_max, row_sum, lse = (packed(values, lengths)[0] for values in (o, row_max, row_sum, lse))
        self.upload(fields["o"], round_to_bf16(o) if fields["flags"] & OUTPUT_BF16 else o.astype(np.float32))
        for name, values in (("row_max", row_max), ("row_sum", row_sum), ("lse", lse)):
            if fields[name]:
                self.upload(fields[name], values.astype(np.float32))

    def _inputs(self, fields: dict[str, Any]) -> Inputs:
        batch, t, head_dim = (fields[name] for name in ("batch", "t", "head_dim"))
        kv_heads = fields["kv_heads"]
        batch, heads = batch // kv_heads, fields["heads"] * kv_heads
        shared = fields["flags"] & SHARED_KV
        sparse = (batch, fields["s_sparse"], head_dim)
        dense = (batch, fields["s_k"], *((kv_heads,) if kv_heads > 1 else ()), head_dim)
        bounds = (None if fields[name] == UNLIMITED else fields[name] for name in ("window_left", "window_right"))
        branch = None
        if fields["topk"]:
            branch = SparseArrays(
                self._bits(fields["sparse_k"], sparse),
                None if shared else self._bits(fields["sparse_v"], sparse),
                self._integers(fields["sparse_indices"], (batch, t, fields["topk"])),
                self._integers(fields["sparse_lens"], (batch, t)),
            )
        q_lens, k_lens = (self._lengths(fields, name) for name in ("cu_seqlens_q", "cu_seqlens_k"))
        rows = (batch, t) if q_lens is None else (1, int(q_lens.sum()))
        q = self._mapped(fields["q"], (0, 2, 1, 3, 4), (*rows, heads, head_dim))
        return Inputs(
            q if q_lens is None else unpacked(q[0], q_lens, t, 0),
            self._keys(fields, fields["k"], dense),
            None if shared else self._keys(fields, fields["v"], dense),
            fields["scale"],
            *bounds,
            self._integers(fields["kv_lens"], (batch,)) if k_lens is None else k_lens,
            self._integers(fields["query_offsets"], (batch,)),
            branch,
            self._sink(fields),
            q_lens,
        )

    def _lengths(self, fields: dict[str, Any], name: str) -> NDArray[np.int32] | None:
        """Rows of each batch entry of what is packed, by where each begins."""
        ends = self._integers(fields[name], (fields["batch"] // fields["kv_heads"] + 1,))
        return None if ends is None else np.diff(ends)

    def _keys(self, fields: dict[str, Any], address: int, dense: tuple[int, ...]) -> NDArray[np.uint16]:
        """K or V in order; zeros where there is none."""
        batch, s_k, *row = dense
        lengths = self._lengths(fields, "cu_seqlens_k")
        if fields["block_table"]:
            spec = next(spec for spec in self.maps if spec.address == address)
            table = self._integers(fields["block_table"], (batch, s_k // fields["page_size"]))
            pages = self._mapped(address, (0, 2, 1, 3), (spec.global_dim[-1], fields["page_size"], *row))
            there = (table >= 0) & (table < len(pages))
            found = pages[np.where(there, table, 0)]
            found[~there] = 0
            return found.reshape(dense)
        if lengths is None:
            return self._mapped(address, (0, 2, 1, 3), dense)
        found = np.zeros(dense, np.uint16)
        if address:
            spec = next(spec for spec in self.maps if spec.address == address)
            sizes, strides = spec.global_dim[::-1], (*spec.global_strides[::-1], 2)
            memory = self.memory[address].view(np.uint16)
            for entry, end, length in zip(found, np.cumsum(lengths), lengths, strict=True):
                if length:  # the last dimension steps by one key
                    begin = int(end - length) * strides[0] // 2
                    seen = np.lib.stride_tricks.as_strided(memory[begin:], (sizes[1], length, sizes[3]), strides[1:])
                    entry[:length] = seen.swapaxes(0, 1).reshape(length, *row)
        return found

    def _sink(self, fields: dict[str, Any]) -> NDArray[np.float32] | None:
        return self._floats(fields["sink"]).astype(np.float32) if fields["sink"] else None

    def _mapped(self, address: int, order: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.uint16]:
        """What the map of a tensor leads to; `order` is that of a map by K/V heads, outermost dimension first."""
        if 0 in shape:
            return np.zeros(shape, dtype=np.uint16)
        spec = next(spec for spec in self.maps if spec.address == address)
        sizes, strides = spec.global_dim[::-1], (*spec.global_strides[::-1], 2)
        seen = np.lib.stride_tricks.as_strided(self.memory[address].view(np.uint16), sizes, strides)
        return (seen.transpose(order) if len(sizes) == len(order) else seen).reshape(shape)

    def _bits(self, address: int, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        if 0 in shape:
            return np.zeros(shape, dtype=np.uint16)
        return self.memory[address].view(np.uint16).reshape(shape)

    def _integers(self, address: int, shape: tuple[int, ...]) -> Any:
        return self.memory[address].view(np.int32).reshape(shape) if address else None

    def _floats(self, address: int) -> NDArray[np.float64]:
        return self.memory[address].view(np.float32).astype(np.float64)


def _in_planes(values: NDArray[np.float64], kv_heads: int) -> NDArray[np.float64]:
    """[batch, t, heads, ...] as [batch * kv_heads, t, heads // kv_heads, ...], the order of partial results."""
    batch, t, heads, *rest = values.shape
    apart = values.reshape(batch, t, kv_heads, heads // kv_heads, *rest)
    return apart.swapaxes(1, 2).reshape(batch * kv_heads, t, heads // kv_heads, *rest)


def _of_entries(values: NDArray[np.float64], kv_heads: int) -> NDArray[np.float64]:
    """The other way round."""
    planes, t, group, *rest = values.shape
    apart = values.reshape(planes // kv_heads, kv_heads, t, group, *rest)
    return apart.swapaxes(1, 2).reshape(planes // kv_heads, t, kv_heads * group, *rest)
