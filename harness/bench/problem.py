"""One attention problem of docs/semantics.md in plain numpy: its inputs, its float64 answer, its kernel parameters.

Imports nothing but numpy, so that it also runs on a machine that has only a GPU and torch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORMALISE, OUTPUT_BF16, SHARED_KV = 1, 2, 4  # FmhaParams::flags
PARAMS_BYTES = 832
MAPS = ("q", "k", "v", "sparse_k", "sparse_v")
POINTERS = (
    *("o", "row_max", "row_sum", "lse", "partial_o", "partial_max", "partial_sum"),
    *("kv_lens", "query_offsets", "sparse_indices", "sparse_lens", "sink"),
)


@dataclass(frozen=True)
class Problem:
    """Shapes, masks and outputs. `kv_lens` and its like ask for drawn ones; `poison`: NaN where anything may stand."""

    head_dim: int
    heads: int = 1
    t: int = 1
    s_k: int = 128
    batch: int = 1
    window_left: int = -1
    window_right: int = -1
    topk: int = 0
    s_sparse: int = 0
    shared_kv: bool = False
    kv_lens: bool = False
    offsets: bool = False
    sparse_lens: bool = False
    sink: bool = False
    normalise: bool = True
    bf16: bool = False
    splits: int = 1
    cluster: tuple[int, int] = (1, 1)  # row tiles, splits
    spread: float = 1.0  # of the logits
    poison: bool = True
    seed: int = 0

    @property
    def partials(self) -> int:
        """Partial results that the combine kernel merges; 1: the forward kernel writes the result."""
        return self.splits // self.cluster[1]

    @property
    def flags(self) -> int:
        return NORMALISE * self.normalise | OUTPUT_BF16 * self.bf16 | SHARED_KV * self.shared_kv

    @property
    def scale(self) -> float:
        return float(np.float32(self.head_dim**-0.5))


@dataclass
class Inputs:
    """bf16 tensors as uint16, the rest as docs/semantics.md has them."""

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)


def round_bf16(x: NDArray[Any]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def draw(p: Problem) -> dict[str, NDArray[Any]]:
    """The inputs of `p`, by its seed."""
    rng = np.random.default_rng(p.seed)
    tensors: dict[str, NDArray[Any]] = {}

    def normal(*shape: int) -> NDArray[np.uint16]:
        return round_bf16(rng.standard_normal(shape, np.float32))

    tensors["q"] = round_bf16(rng.standard_normal((p.batch, p.t, p.heads, p.head_dim), np.float32) * p.spread)
    for name, rows in (("k", p.s_k), ("sparse_k", p.s_sparse)):
        if rows:
            tensors[name] = normal(p.batch, rows, p.head_dim)
            if not p.shared_kv:
                tensors[name.replace("k", "v") if name == "k" else "sparse_v"] = normal(p.batch, rows, p.head_dim)
    if p.kv_lens:
        tensors["kv_lens"] = rng.integers(0, p.s_k + 1, p.batch).astype(np.int32)
    if p.offsets:
        tensors["query_offsets"] = rng.integers(-p.t, p.s_k + p.t, p.batch).astype(np.int32)
    if p.topk:
        tensors["sparse_indices"] = rng.integers(-1, p.s_sparse + 1, (p.batch, p.t, p.topk)).astype(np.int32)
    if p.sparse_lens:
        tensors["sparse_lens"] = rng.integers(0, p.topk + 1, (p.batch, p.t)).astype(np.int32)
    if p.sink:
        tensors["sink"] = (rng.standard_normal(p.heads) * 3).astype(np.float32)
    if p.poison:
        _poison(p, tensors)
    return tensors


def _poison(p: Problem, tensors: dict[str, NDArray[Any]]) -> None:
    nan = 0x7FC0
    for b in range(p.batch):
        if "kv_lens" in tensors:
            for name in {"k", "v"} & tensors.keys():
                tensors[name][b, tensors["kv_lens"][b] :] = nan
        if p.topk:
            lens = tensors["sparse_lens"][b] if p.sparse_lens else np.full(p.t, p.topk)
            named: set[int] = set()
            for i in range(p.t):
                named |= set(tensors["sparse_indices"][b, i, : lens[i]].tolist())
            unnamed = [r for r in range(p.s_sparse) if r not in named]
            for name in {"sparse_k", "sparse_v"} & tensors.keys():
                tensors[name][b, unnamed] = nan


def seen_keys(p: Problem, x: Mapping[str, NDArray[Any]], b: int, i: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Dense keys and sparse rows that query `i` of batch entry `b` sees."""
    length = int(x["kv_lens"][b]) if "kv_lens" in x else p.s_k
    position = i + (int(x["query_offsets"][b]) if "query_offsets" in x else length - p.t)
    keys = np.arange(length)
    if p.window_right >= 0:
        keys = keys[keys <= position + p.window_right]
    if p.window_left >= 0:
        keys = keys[keys >= position - p.window_left]
    rows = np.zeros(0, np.int64)
    if p.topk:
        count = int(x["sparse_lens"][b, i]) if "sparse_lens" in x else p.topk
        rows = x["sparse_indices"][b, i, :count].astype(np.int64)
        rows = rows[(rows >= 0) & (rows < p.s_sparse)]
    return keys, rows


def reference(p: Problem, x: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """o, row_max, row_sum, lse in float64."""
    q = widen(x["q"])
    shape = (p.batch, p.t, p.heads)
    out = {name: np.full(shape, -np.inf) for name in ("row_max", "lse")} | {"row_sum": np.zeros(shape)}
    out["o"] = np.zeros((*shape, p.head_dim))
    for b in range(p.batch):
        for i in range(p.t):
            keys, rows = seen_keys(p, x, b, i)
            if not len(keys) + len(rows):
                continue
            k = np.concatenate([widen(x[n][b][r]) for n, r in (("k", keys), ("sparse_k", rows)) if len(r)])
            v = k
            if not p.shared_kv:
                v = np.concatenate([widen(x[n][b][r]) for n, r in (("v", keys), ("sparse_v", rows)) if len(r)])
            s = q[b, i] @ k.T * p.scale
            m = s.max(-1)
            e = np.exp(s - m[:, None])
            total = e.sum(-1)
            denominator = np.ones_like(total)
            if p.normalise:
                denominator = total + (np.exp(x["sink"].astype(np.float64) - m) if p.sink else 0.0)
            out["row_max"][b, i], out["row_sum"][b, i], out["lse"][b, i] = m, total, m + np.log(total)
            out["o"][b, i] = e @ v / denominator[:, None]
    return out


def map_shapes(p: Problem, rows: int, keys: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dimensions and box of each tensor map, innermost first, as kernel/include/fmha_params.h has them."""
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "q": ((p.head_dim, p.t * p.heads, p.batch), (64, rows, 1))
    }
    if p.s_k:
        shapes |= dict.fromkeys("kv", ((p.head_dim, p.s_k, p.batch), (64, keys, 1)))
    if p.s_sparse:
        shapes |= {f"sparse_{name}": ((p.head_dim, p.batch * p.s_sparse), (64, 1)) for name in "kv"}
    return shapes


def pack(p: Problem, splits: int, maps: Mapping[str, bytes], pointers: Mapping[str, int]) -> bytes:
    """FmhaParams; `splits` is p.splits for the forward kernel, p.partials for the combine kernel."""
    packed = b"".join(maps.get(name, bytes(128)) for name in MAPS)
    packed += struct.pack("<12Q", *(pointers.get(name, 0) for name in POINTERS))
    sizes = (p.batch, p.t, p.heads, p.s_k, p.s_sparse, p.topk, splits, p.window_left, p.window_right)
    packed += struct.pack("<9ifIi", *sizes, p.scale, p.flags, p.head_dim)
    return packed.ljust(PARAMS_BYTES, b"\0")
