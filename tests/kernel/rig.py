"""Runs any forward variant, and the combine kernel behind it, on a device; docs/semantics.md in float64 beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.worker.bf16 import from_bf16, round_to_bf16
from harness.worker.devices.base import Device, TensorMapSpec
from harness.worker.params import (
    COMBINE_ROWS,
    COMBINE_THREADS,
    NORMALISE,
    OUTPUT_BF16,
    SHARED_KV,
    UNLIMITED,
    FmhaParams,
    query_blocks,
)
from harness.worker.protocol import FindingRecord, Variant

POISON = 0x7FEDBEEF  # a NaN that no arithmetic makes
OUTPUTS = ("o", "row_max", "row_sum", "lse")

Bits = NDArray[np.uint16]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Tensors as docs/semantics.md names and shapes them, bf16 as bit patterns."""

    q: Bits
    k: Bits
    v: Bits | None = None
    sparse_k: Bits | None = None
    sparse_v: Bits | None = None
    kv_lens: NDArray[np.int32] | None = None
    query_offsets: NDArray[np.int32] | None = None
    sparse_indices: NDArray[np.int32] | None = None
    sparse_lens: NDArray[np.int32] | None = None
    sink: NDArray[np.float32] | None = None
    scale: float
    window_left: int = UNLIMITED
    window_right: int = UNLIMITED
    normalise: bool = False
    bf16: bool = False
    splits: int = 1

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, t, heads, head_dim"""
        batch, t, heads, head_dim = self.q.shape
        return batch, t, heads, head_dim

    @property
    def topk(self) -> int:
        return 0 if self.sparse_indices is None else self.sparse_indices.shape[2]


def make_problem(
    head_dim: int,
    t: int,
    s_k: int,
    *,
    heads: int = 1,
    batch: int = 1,
    shared_kv: bool = False,
    s_sparse: int = 0,
    topk: int = 0,
    amplitude: float = 1.0,
    seed: int = 0,
    **fields: object,
) -> Problem:
    """Standard normal tensors (Q times `amplitude`); a tenth of the index list is -1 or out of range."""
    rng = np.random.default_rng([seed, head_dim, t, s_k, heads, batch])

    def normal(*shape: int) -> Bits:
        return round_to_bf16(rng.standard_normal(shape))

    problem = Problem(
        q=round_to_bf16(amplitude * rng.standard_normal((batch, t, heads, head_dim))),
        k=normal(batch, s_k, head_dim),
        v=None if shared_kv else normal(batch, s_k, head_dim),
        scale=float(np.float32(head_dim**-0.5)),
    )
    if topk:
        indices = rng.integers(0, max(s_sparse, 1), (batch, t, topk))
        outside = rng.choice([-1, s_sparse, 2**31 - 1, -(2**31)], indices.shape)
        indices = np.where(rng.random(indices.shape) < 0.1, outside, indices).astype(np.int32)
        problem = dataclasses.replace(
            problem,
            sparse_k=normal(batch, s_sparse, head_dim),
            sparse_v=None if shared_kv else normal(batch, s_sparse, head_dim),
            sparse_indices=indices,
        )
    return dataclasses.replace(problem, **fields)


@dataclass(frozen=True)
class Outputs:
    """o [batch, t, heads, head_dim], the others [batch, t, heads]; `unwritten` elements still hold the poison."""

    o: Floats
    row_max: Floats
    row_sum: Floats
    lse: Floats
    unwritten: int = 0
    findings: tuple[FindingRecord, ...] = ()


def run(device: Device, artifacts: Mapping[str, Path], variant: Variant, problem: Problem) -> Outputs:
    """Launches `variant`, and the combine kernel when the problem has splits; `artifacts` by variant name."""
    batch, t, heads, head_dim = problem.sizes
    rows = batch * t * heads
    params = _params(device, variant, problem)
    grid = (query_blocks(variant.shape, t, heads, problem.topk), problem.splits, batch)
    module = device.load(artifacts[variant.name])
    block, shared_bytes = (variant.shape.threads, 1, 1), variant.shape.shared_bytes
    findings = list(device.launch(module, variant.entry, grid, block, shared_bytes, params.pack()).findings)
    if problem.splits > 1:
        grid, block = (-(-t * heads // COMBINE_ROWS), 1, batch), (COMBINE_THREADS, 1, 1)
        findings += device.launch(module, variant.combine, grid, block, 0, params.pack()).findings
    words = {name: device.download(getattr(params, name), rows * 4).view(np.uint32) for name in OUTPUTS[1:]}
    o = device.download(params.o, rows * head_dim * (2 if problem.bf16 else 4))
    unwritten = sum(int(np.count_nonzero(word == POISON)) for word in words.values())
    unwritten += int(np.count_nonzero(o.view(np.uint32) == POISON))
    values = from_bf16(o.view(np.uint16)) if problem.bf16 else o.view(np.float32).astype(np.float64)
    statistics = {
        name: word.view(np.float32).astype(np.float64).reshape(batch, t, heads) for name, word in words.items()
    }
    return Outputs(o=values.reshape(problem.q.shape), unwritten=unwritten, findings=tuple(findings), **statistics)


def _params(device: Device, variant: Variant, problem: Problem) -> FmhaParams:
    batch, t, heads, head_dim = problem.sizes
    rows = batch * t * heads
    s_sparse = 0 if problem.sparse_k is None else problem.sparse_k.shape[1]

    def upload(name: str, data: NDArray[np.generic] | None) -> int:
        if data is None:
            return 0
        address = device.alloc(max(data.nbytes, 4), name)
        if data.nbytes:
            device.upload(address, data)
        return address

    def poisoned(name: str, nbytes: int) -> int:
        return upload(name, np.full(-(-nbytes // 4), POISON, dtype=np.uint32))

    def dense(name: str, data: Bits | None, box_rows: int) -> bytes:
        """A tensor [batch, rows, head_dim]; a map has no empty dimension, so one of no rows names a row never read."""
        if data is None:
            return bytes(128)
        count = max(data.shape[1], 1)
        strides = (head_dim * 2, count * head_dim * 2)
        return _map(device, upload(name, data), (head_dim, count, batch), strides, (64, box_rows, 1))

    def sparse(name: str, data: Bits | None) -> bytes:
        if data is None:
            return bytes(128)
        count = max(batch * s_sparse, 1)
        return _map(device, upload(name, data), (head_dim, count), (head_dim * 2,), (64, 1))

    splits = problem.splits if problem.splits > 1 else 0
    flags = NORMALISE * problem.normalise | OUTPUT_BF16 * problem.bf16 | SHARED_KV * (problem.v is None)
    return FmhaParams(
        q=dense("q", problem.q.reshape(batch, t * heads, head_dim), variant.shape.rows),
        k=dense("k", problem.k, variant.shape.keys),
        v=dense("v", problem.v, variant.shape.keys),
        sparse_k=sparse("sparse_k", problem.sparse_k),
        sparse_v=sparse("sparse_v", problem.sparse_v),
        o=poisoned("o", rows * head_dim * (2 if problem.bf16 else 4)),
        row_max=poisoned("row_max", rows * 4),
        row_sum=poisoned("row_sum", rows * 4),
        lse=poisoned("lse", rows * 4),
        partial_o=poisoned("partial_o", splits * rows * head_dim * 4) if splits else 0,
        partial_max=poisoned("partial_max", splits * rows * 4) if splits else 0,
        partial_sum=poisoned("partial_sum", splits * rows * 4) if splits else 0,
        kv_lens=upload("kv_lens", problem.kv_lens),
        query_offsets=upload("query_offsets", problem.query_offsets),
        sparse_indices=upload("sparse_indices", problem.sparse_indices),
        sparse_lens=upload("sparse_lens", problem.sparse_lens),
        sink=upload("sink", problem.sink),
        batch=batch,
        t=t,
        heads=heads,
        s_k=problem.k.shape[1],
        s_sparse=s_sparse,
        topk=problem.topk,
        splits=problem.splits,
        window_left=problem.window_left,
        window_right=problem.window_right,
        scale=problem.scale,
        flags=flags,
        head_dim=head_dim,
    )


def _map(device: Device, address: int, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    ones = (1,) * len(dims)
    return device.encode_tensor_map(TensorMapSpec("bf16", address, dims, strides, box, ones, "128B"))


def reference(problem: Problem) -> Outputs:
    """docs/semantics.md, row by row."""
    batch, t, heads, head_dim = problem.sizes
    o = np.zeros((batch, t, heads, head_dim))
    row_max, row_sum, lse = (np.zeros((batch, t, heads)) for _ in range(3))
    q = from_bf16(problem.q)
    for b in range(batch):
        for i in range(t):
            k, v = _seen(problem, b, i)
            scores = problem.scale * (q[b, i] @ k.T)
            if not len(k):
                row_max[b, i] = lse[b, i] = -np.inf
                continue
            row_max[b, i] = scores.max(axis=1)
            weights = np.exp(scores - row_max[b, i][:, np.newaxis])
            row_sum[b, i] = weights.sum(axis=1)
            lse[b, i] = row_max[b, i] + np.log(row_sum[b, i])
            o[b, i] = weights @ v
            if problem.normalise:
                with np.errstate(over="ignore"):
                    sink = 0.0 if problem.sink is None else np.exp(problem.sink.astype(np.float64) - row_max[b, i])
                o[b, i] /= (row_sum[b, i] + sink)[:, np.newaxis]
    return Outputs(o, row_max, row_sum, lse)


def _seen(problem: Problem, b: int, i: int) -> tuple[Floats, Floats]:
    """K and V of the keys that query i sees, [n, head_dim] each."""
    values = problem.k if problem.v is None else problem.v
    kv_len = problem.k.shape[1] if problem.kv_lens is None else int(problem.kv_lens[b])
    offset = kv_len - problem.q.shape[1] if problem.query_offsets is None else int(problem.query_offsets[b])
    key = np.arange(kv_len)
    seen = np.ones(kv_len, dtype=np.bool_)
    if problem.window_right != UNLIMITED:
        seen &= key <= i + offset + problem.window_right
    if problem.window_left != UNLIMITED:
        seen &= key >= i + offset - problem.window_left
    k, v = problem.k[b, :kv_len][seen], values[b, :kv_len][seen]
    if problem.sparse_k is not None and problem.sparse_indices is not None:
        sparse_v = problem.sparse_k if problem.sparse_v is None else problem.sparse_v
        count = problem.topk if problem.sparse_lens is None else int(problem.sparse_lens[b, i])
        index = problem.sparse_indices[b, i, :count]
        index = index[(index >= 0) & (index < problem.sparse_k.shape[1])]
        k, v = np.concatenate([k, problem.sparse_k[b, index]]), np.concatenate([v, sparse_v[b, index]])
    return from_bf16(k), from_bf16(v)


@dataclass(frozen=True)
class Errors:
    """Of one run: cosine and relative L2 of O over rows that see a key; LSE and row_max absolute, row_sum relative."""

    cosine: float
    relative_l2: float
    lse: float
    row_max: float
    row_sum: float
    nonfinite: int  # elements whose class (finite, infinity, NaN) is not the reference's


def errors(got: Outputs, expected: Outputs) -> Errors:
    seen = expected.row_sum > 0
    a, b = got.o[seen].ravel(), expected.o[seen].ravel()
    norm = float(np.linalg.norm(b))
    nonfinite = 0
    for name in OUTPUTS:
        left, right = getattr(got, name), getattr(expected, name)
        same = np.where(np.isfinite(right), np.isfinite(left), left == right)
        nonfinite += int(np.count_nonzero(~same))
    nonfinite += int(np.count_nonzero(got.o[~seen])) + int(np.count_nonzero(got.row_sum[~seen]))
    if not seen.any():
        return Errors(1.0, 0.0, 0.0, 0.0, 0.0, nonfinite)
    with np.errstate(all="ignore"):
        return Errors(
            cosine=float(a @ b / (np.linalg.norm(a) * norm)) if norm else 1.0,
            relative_l2=float(np.linalg.norm(a - b)) / norm if norm else float(np.linalg.norm(a)),
            lse=float(np.abs(got.lse - expected.lse)[seen].max()),
            row_max=float(np.abs(got.row_max - expected.row_max)[seen].max()),
            row_sum=float(np.abs(got.row_sum / expected.row_sum - 1)[seen].max()),
            nonfinite=nonfinite,
        )
