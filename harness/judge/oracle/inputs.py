"""Seeded inputs of a configuration. docs/understand/semantics.md says what each is and what may hold anything."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import MIXED_SINK_HEADS, Configuration, Indices, Lengths, Offsets, Scale
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.kinds import SINK_SPREADS, DrawnTensors, reshape

# NaN, +inf, -inf, both largest finite values and a NaN that signals: what must never reach an output.
POISON_BITS: Final = np.array([0x7FC0, 0x7F80, 0xFF80, 0x7F7F, 0xFF7F, 0x7F81], dtype=np.uint16)


def poison(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """POISON_BITS over and over. np.resize does the same by way of a list of that many arrays."""
    count = math.prod(shape)
    turns = np.tile(POISON_BITS, -(-count // len(POISON_BITS)))
    return turns[:count].reshape(shape)


@dataclass(frozen=True, slots=True)
class SparseArrays:
    """The sparse branch: k and v [batch, s_sparse, head_dim] bf16 bits, v None when V is K; indices [batch, t, topk]
    and lens [batch, t] int32, lens None for topk."""

    k: NDArray[np.uint16]
    v: NDArray[np.uint16] | None
    indices: NDArray[np.int32]
    lens: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one call attends over; bf16 tensors as bit patterns.

    q [batch, t, heads, head_dim]; k and v [batch, s_k, head_dim], or of several K/V heads [batch, s_k, kv_heads,
    head_dim], v None when V is K; kv_lens, query_offsets and q_lens [batch] int32, of which the last says how many of
    the t queries an entry has; sink [heads] float32. `scale` multiplies q.k; window bounds are None where there is no
    limit.
    """

    q: NDArray[np.uint16]
    k: NDArray[np.uint16]
    v: NDArray[np.uint16] | None
    scale: float
    window_left: int | None = None
    window_right: int | None = None
    kv_lens: NDArray[np.int32] | None = None
    query_offsets: NDArray[np.int32] | None = None
    sparse: SparseArrays | None = None
    sink: NDArray[np.float32] | None = None
    q_lens: NDArray[np.int32] | None = None


def make_inputs(seed: int, configuration: Configuration) -> Inputs:
    """Standard normal tensors rounded to bf16, patterns as the configuration says, poison wherever nothing may look.

    They depend on the seed and on the name of the configuration's problem alone: not on which others run, nor in what
    order, nor on how the problem is run.
    """
    item = configuration
    digest = hashlib.sha256(f"{seed}/{item.problem.id}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    keys = (item.batch, item.s_k, *((item.kv_heads,) if item.kv_heads > 1 else ()), item.head_dim)
    q = generator.standard_normal((item.batch, item.t, item.heads, item.head_dim))
    k, v = _key_values(generator, keys, item)
    lists = _lists(generator, item) if item.topk else None
    kv_lens = _lengths(generator, item.kv_lens, (item.batch,), item.s_k)
    offsets = _offsets(generator, item.query_offsets, item)
    sink = _sink(generator, item)
    q_lens = _lengths(generator, item.q_lens, (item.batch,), item.t)
    if q_lens is not None and not q_lens.any():
        q_lens[-1] = 1  # a call without a query is none
    scale = softmax_scale(item.head_dim, item.scale)
    if item.data != "normal":
        listed = (lists.k, lists.v, lists.indices, lists.lens) if lists else (None,) * 4
        reshape(generator, item, scale, DrawnTensors(q, k, v, kv_lens, offsets, *listed))
    k_bits, v_bits = round_to_bf16(k), None if v is None else round_to_bf16(v)
    if kv_lens is not None:
        padding = np.arange(item.s_k) >= kv_lens[:, np.newaxis]
        for bits in (k_bits, v_bits):
            _poison(bits, padding)
    if q_lens is not None:  # nobody looks at the keys of an entry without a query
        for bits in (k_bits, v_bits):
            _poison(bits, np.broadcast_to(q_lens[:, np.newaxis] == 0, (item.batch, item.s_k)))
    sparse = _rounded(lists, item.s_sparse) if lists else None
    return Inputs(round_to_bf16(q), k_bits, v_bits, scale, *item.bounds, kv_lens, offsets, sparse, sink, q_lens)


def softmax_scale(head_dim: int, asked: Scale = "root") -> float:
    """What multiplies q.k, as the float32 that the kernel is given, so that the reference uses the same number."""
    return float(np.float32(1.0 / math.sqrt(head_dim) if asked == "root" else asked))


def _key_values(
    generator: np.random.Generator, shape: tuple[int, ...], item: Configuration
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """K and, unless it is K, V."""
    return generator.standard_normal(shape), None if item.kv == "shared" else generator.standard_normal(shape)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The sparse branch before its rows are rounded to bf16."""

    k: NDArray[np.float64]
    v: NDArray[np.float64] | None
    indices: NDArray[np.int32]
    lens: NDArray[np.int32] | None


def _lists(generator: np.random.Generator, item: Configuration) -> _Lists:
    k, v = _key_values(generator, (item.batch, item.s_sparse, item.head_dim), item)
    indices = _indices(generator, item.sparse_indices, (item.batch, item.t, item.topk), item.s_sparse)
    return _Lists(k, v, indices, _lengths(generator, item.sparse_lens, (item.batch, item.t), item.topk))


def _rounded(lists: _Lists, rows: int) -> SparseArrays:
    k_bits, v_bits = round_to_bf16(lists.k), None if lists.v is None else round_to_bf16(lists.v)
    unnamed = ~_named_rows(lists.indices, lists.lens, rows)
    for bits in (k_bits, v_bits):
        _poison(bits, unnamed)
    return SparseArrays(k_bits, v_bits, lists.indices, lists.lens)


def _indices(generator: np.random.Generator, pattern: Indices, shape: tuple[int, ...], rows: int) -> NDArray[np.int32]:
    """Indices into `rows` rows, repeated ones only where there are fewer rows than entries. Holes, where there are any,
    are a third: -1 and others out of range on both sides."""
    outside = np.array([-1, rows, rows + 1, 2**31 - 1, -(2**31)])
    invalid = generator.choice(outside, shape)
    if pattern == "invalid" or rows == 0:
        return invalid.astype(np.int32)
    valid = np.empty(shape, dtype=np.int64)
    for place in np.ndindex(shape[:-1]):
        valid[place] = generator.choice(rows, shape[-1], replace=rows < shape[-1])
    if pattern == "holes":
        valid = np.where(generator.random(shape) < 1 / 3, invalid, valid)
    return valid.astype(np.int32)


def _named_rows(indices: NDArray[np.int32], lens: NDArray[np.int32] | None, rows: int) -> NDArray[np.bool_]:
    """[batch, rows]: whether any query of the batch entry sees the row."""
    seen = (indices >= 0) & (indices < rows)
    if lens is not None:
        seen &= np.arange(indices.shape[-1]) < lens[..., np.newaxis]
    named = np.zeros((len(indices), rows), dtype=np.bool_)
    for entry, chosen in enumerate(seen):
        named[entry, indices[entry][chosen]] = True
    return named


def _lengths(
    generator: np.random.Generator, pattern: Lengths, shape: tuple[int, ...], longest: int
) -> NDArray[np.int32] | None:
    """Ragged lengths are uniform over 0..longest, and every fourth is 0 or the longest in turn."""
    if pattern == "full":
        return None
    if pattern == "empty":
        return np.zeros(shape, dtype=np.int32)
    lengths = generator.integers(0, longest, shape, endpoint=True).astype(np.int32)
    flat = lengths.reshape(-1)
    flat[1::8], flat[5::8] = 0, longest
    return lengths


def _offsets(generator: np.random.Generator, pattern: Offsets, item: Configuration) -> NDArray[np.int32] | None:
    """Mixed offsets reach from all queries before the first key to all of them after the last one. Far ones are where
    positions leave 32 bits, if not at the first query, then at the middle one: at both ends of them in turn."""
    if pattern == "aligned":
        return None
    if pattern == "zero":
        return np.zeros(item.batch, dtype=np.int32)
    if pattern == "far":
        inwards = generator.integers(0, item.t // 2, item.batch, endpoint=True)
        low = (np.arange(item.batch) + generator.integers(0, 2)) % 2 == 0
        return np.where(low, -(2**31) + inwards, 2**31 - 1 - inwards).astype(np.int32)
    return generator.integers(-item.t - 2, item.s_k + 2, item.batch, endpoint=True).astype(np.int32)


def _sink(generator: np.random.Generator, item: Configuration) -> NDArray[np.float32] | None:
    if item.sink == "none":
        return None
    sink = (SINK_SPREADS.get(item.data, 2.0) * generator.standard_normal(item.heads)).astype(np.float32)
    if item.sink == "mixed":
        sink[1::MIXED_SINK_HEADS], sink[3::MIXED_SINK_HEADS] = np.inf, -np.inf
    return sink


def _poison(bits: NDArray[Any] | None, rows: NDArray[np.bool_]) -> None:
    """Overwrites rows of [batch, rows, head_dim] or [batch, rows, kv_heads, head_dim] in place."""
    if bits is not None:
        each = bits.shape[2:]
        bits[rows] = poison((int(rows.sum()), *each))
