"""Attention in float64: the definition that every kernel is held to, and docs/understand/semantics.md in code.

One row, that is one query `i` of batch entry `b` under one head `h`, sees dense keys in a range and sparse rows in a
list, under one softmax. Of several K/V heads it sees the one that `h` attends, so that each is a problem of its own:

    s = scale * q.k          row_max = max s                     row_sum = sum exp(s - row_max)
    lse = row_max + ln row_sum                                   o_unnormalised = sum exp(s - row_max) v
    o = o_unnormalised / (row_sum + exp(sink[h] - row_max))

Everything is in natural-log units. A row that sees no key has row_max = lse = -inf and all else 0, whatever the sink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.oracle.bf16 import from_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays

Array = NDArray[np.float64]

MMA_K = 16  # elements of head_dim that one instruction adds, before it truncates


@dataclass(frozen=True, slots=True)
class Reference:
    """o and o_unnormalised [batch, t, heads, head_dim]; all else [batch, t, heads].

    `slope_variance` is that of a row's slope, o.ref / ref.ref, where every p has an error of its own of variance 1.
    `lse_resolution` is how far the truncation of sums of head_dim products in float32 may move LSE.
    """

    o: Array
    o_unnormalised: Array
    row_max: Array
    row_sum: Array
    lse: Array
    slope_variance: Array
    lse_resolution: Array


def reference(inputs: Inputs) -> Reference:
    """Attention over `inputs`, computed from the very bf16 values that a kernel is given."""
    if inputs.k.ndim == 4:
        return _of_all_heads([reference(of_kv_head(inputs, head)) for head in range(inputs.k.shape[2])])
    batch, t, heads, head_dim = inputs.q.shape
    q, scale = from_bf16(inputs.q), inputs.scale
    o = np.zeros((batch, t, heads, head_dim))
    row_max = np.full((batch, t, heads), -np.inf)
    row_sum = np.zeros((batch, t, heads))
    slope_variance = np.zeros((batch, t, heads))
    logits = np.zeros((batch, t, heads))
    products = np.zeros((batch, t, heads))
    for b in range(batch):
        values = _values(inputs, b)
        q_lengths, k_lengths = np.linalg.norm(q[b], axis=2), np.linalg.norm(values[0], axis=1)
        for i in range(t if inputs.q_lens is None else inputs.q_lens[b]):
            seen = _seen(inputs, b, i)
            k, v = _taken(values, seen)
            if len(k):
                scores = scale * (q[b, i] @ k.T)
                row_max[b, i] = scores.max(axis=1)
                weights = np.exp(scores - row_max[b, i, :, np.newaxis])
                row_sum[b, i] = weights.sum(axis=1)
                o[b, i] = weights @ v
                slope_variance[b, i] = _slope_variance(weights, o[b, i], v, repeats(inputs, b, i, len(k)))
                logits[b, i] = (weights * np.abs(scores)).sum(axis=1) / row_sum[b, i]
                products[b, i] = scale * q_lengths[i] * k_lengths[seen].max()
    with np.errstate(divide="ignore"):
        lse = row_max + np.log(row_sum)
    normalised = o / denominator(row_max, row_sum, inputs.sink)[..., np.newaxis]
    resolution = _lse_resolution(head_dim, lse, logits, products)
    return Reference(normalised, o, row_max, row_sum, lse, np.nan_to_num(slope_variance), resolution)


def of_kv_head(inputs: Inputs, head: int) -> Inputs:
    """The problem of one of several K/V heads, with the query heads that attend it."""
    heads, kv_heads = inputs.q.shape[2], inputs.k.shape[2]
    attends = [h for h in range(heads) if h // (heads // kv_heads) == head]
    return replace(
        inputs,
        q=inputs.q[:, :, attends],
        k=inputs.k[:, :, head],
        v=None if inputs.v is None else inputs.v[:, :, head],
        sink=None if inputs.sink is None else inputs.sink[attends],
    )


def _of_all_heads(parts: list[Reference]) -> Reference:
    """Of the problems of all K/V heads, in order: query heads follow one another as they do in Q."""
    names = [field.name for field in fields(Reference)]
    return Reference(**{name: np.concatenate([getattr(part, name) for part in parts], axis=2) for name in names})


def _slope_variance(weights: Array, o: Array, v: Array, counts: Array) -> Array:
    """[heads], NaN for a row of zeros; keys that are listed more than once have one p and one error, `counts` times."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = weights * (o @ v.T) / np.einsum("hd,hd->h", o, o)[:, np.newaxis]
    variance: Array = (np.square(shares) * counts).sum(axis=1)
    return variance


def _lse_resolution(head_dim: int, lse: Array, logits: Array, products: Array) -> Array:
    """Each of the instructions that add up a logit truncates what it has so far: of `logits`, their mean magnitude as
    softmax weighs them, where the sum grows evenly, and of `products`, the length of q times that of the longest key,
    where it wanders and comes to little. The rest is LSE's own rounding and that of exp and ln."""
    steps = head_dim / MMA_K
    size = np.where(np.isfinite(lse), np.abs(lse), 0.0)
    resolution: Array = 2.0**-24 * (2.0 + size + steps * logits + math.sqrt(steps / head_dim) * products)
    return resolution


def repeats(inputs: Inputs, b: int, i: int, keys: int) -> Array:
    """How often each of the keys that a query sees is among them, in the order of `keys_seen`."""
    counts = np.ones(keys)
    if inputs.sparse is not None:
        rows = sparse_rows(inputs.sparse, b, i)
        counts[keys - len(rows) :] = np.bincount(rows)[rows] if len(rows) else 1.0
    return counts


def _values(inputs: Inputs, b: int) -> tuple[Array, Array]:
    """K and V of batch entry `b`, dense ones and then sparse, [s_k + s_sparse, head_dim] each; NaN where nothing may
    look."""
    sources: list[Inputs | SparseArrays] = [inputs] if inputs.sparse is None else [inputs, inputs.sparse]
    k = from_bf16(np.concatenate([source.k[b] for source in sources]))
    if all(source.v is None for source in sources):
        return k, k
    return k, from_bf16(np.concatenate([(source.k if source.v is None else source.v)[b] for source in sources]))


def _seen(inputs: Inputs, b: int, i: int) -> slice | NDArray[np.intp]:
    """Of `_values`, the rows that query `i` sees."""
    dense = dense_range(inputs, b, i)
    if inputs.sparse is None:
        return dense
    rows = sparse_rows(inputs.sparse, b, i)
    return np.concatenate([np.arange(dense.start, dense.stop), rows.astype(np.intp) + inputs.k.shape[1]])


def _taken(values: tuple[Array, Array], seen: slice | NDArray[np.intp]) -> tuple[Array, Array]:
    k, v = values
    keys = k[seen]
    return keys, keys if v is k else v[seen]


def keys_seen(inputs: Inputs, b: int, i: int) -> tuple[Array, Array]:
    """K and V of the keys that query `i` of batch entry `b` sees, [keys, head_dim] each: dense ones, then sparse."""
    return _taken(_values(inputs, b), _seen(inputs, b, i))


def dense_range(inputs: Inputs, b: int, i: int) -> slice:
    """The dense keys that a query sees, always a range: 0 <= j < kv_len, within the window around its position."""
    t, s_k = inputs.q.shape[1] if inputs.q_lens is None else int(inputs.q_lens[b]), inputs.k.shape[1]
    kv_len = s_k if inputs.kv_lens is None else int(inputs.kv_lens[b])
    position = i + (kv_len - t if inputs.query_offsets is None else int(inputs.query_offsets[b]))
    first, end = 0, kv_len
    if inputs.window_left is not None:
        first = max(first, position - inputs.window_left)
    if inputs.window_right is not None:
        end = min(end, position + inputs.window_right + 1)
    return slice(first, max(first, end))


def sparse_rows(sparse: SparseArrays, b: int, i: int) -> NDArray[np.int32]:
    """The sparse rows that a query sees, in its list's order, a repeated one as often as it is listed."""
    listed = sparse.indices[b, i]
    if sparse.lens is not None:
        listed = listed[: sparse.lens[b, i]]
    rows: NDArray[np.int32] = listed[(listed >= 0) & (listed < sparse.k.shape[1])]
    return rows


def denominator(row_max: Array, row_sum: Array, sink: NDArray[np.float32] | None) -> Array:
    """row_sum + exp(sink - row_max), [batch, t, heads]; 1 for a row that sees no key, whose numerator is 0."""
    empty = row_sum == 0
    if sink is None:
        return np.where(empty, 1.0, row_sum)
    with np.errstate(over="ignore"):
        term = np.exp(sink.astype(np.float64) - np.where(empty, 0.0, row_max))
    return np.where(empty, 1.0, row_sum + term)
