"""Kinds of data that move what standard normal tensors never move. Each works on what was drawn, in place.

N(0, 1) has logits of a few units either way: the running maximum has its final value, or nearly, after one tile, no key
matters much, and values cancel. A kernel may then lose its rescale, a key at the edge of a mask or a thousandth of O,
and stay within what rounding costs.

- *steps*: logits that jump at two places of the sequence, by nothing in one row, by less than a kernel's rescale
  threshold in the next, by more, or by nearly all that float32 holds; from 0, from far below or from above it.
- *carried*: each row has one key that outweighs all others together. It stands at an edge of what the row sees, on
  either side of it, or anywhere.
- *onesign*: queries, keys and values of one sign, so that nothing cancels; queries of odd batch entries of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import Configuration

Array = NDArray[np.float64]

# Natural-log units by which a row's logits grow at each of two steps. A rescale is due past ln 2^8 = 5.5; 2 x 43 is
# 2^124, which float32 holds for one key and not for a tile of them.
GROWTH: Final = (0.0, 4.5, 6.5, 12.0, 43.0, -12.0)
STEPS: Final = 2
# What all logits of a row have in addition: exp(-120) is 0 in float32.
BASE: Final = (0.0, 0.0, -120.0, 40.0)
EDGE: Final = 64  # steps stand at multiples of this half the time: where tiles may begin
CARRIED: Final = 16.0  # the logit of the key that carries a row; exp(16) outweighs thousands of others


@dataclass(frozen=True, slots=True)
class Drawn:
    """q [batch, t, heads, head_dim]; k and v [batch, s_k, head_dim], v None when V is K; kv_lens and query_offsets
    [batch] or None; of the sparse branch, None without one, k and v [batch, s_sparse, head_dim], indices
    [batch, t, topk] and lens [batch, t] or None for topk."""

    q: Array
    k: Array
    v: Array | None
    kv_lens: NDArray[np.int32] | None
    query_offsets: NDArray[np.int32] | None
    sparse_k: Array | None
    sparse_v: Array | None
    indices: NDArray[np.int32] | None
    lens: NDArray[np.int32] | None


def reshape(generator: np.random.Generator, item: Configuration, scale: float, drawn: Drawn) -> None:
    """Makes standard normal tensors into data of the configuration's kind, which is one of this module's."""
    {"steps": _steps, "carried": _carried, "onesign": _one_sign}[item.data](generator, item, scale, drawn)


def _steps(generator: np.random.Generator, item: Configuration, scale: float, drawn: Drawn) -> None:
    """Element 0 of a key says how many steps were before it, element 1 is 1; those of a query, by how much it minds."""
    q, rows = drawn.q, drawn.q.shape[:-1]
    q[..., 0] = generator.choice(GROWTH, rows) / scale
    q[..., 1] = generator.choice(BASE, rows) / scale
    drawn.k[..., 0] = _levels(generator, item)
    drawn.k[..., 1] = 1.0
    if drawn.sparse_k is not None:
        drawn.sparse_k[..., 0] = generator.integers(0, STEPS, drawn.sparse_k.shape[:-1], endpoint=True)
        drawn.sparse_k[..., 1] = 1.0


def _levels(generator: np.random.Generator, item: Configuration) -> Array:
    """[batch, s_k]: the number of steps at or before each key."""
    levels = np.zeros((item.batch, item.s_k))
    for entry in levels:
        for place in generator.integers(1, max(2, item.s_k), STEPS):
            if generator.random() < 0.5:
                place = max(EDGE, place // EDGE * EDGE)
            entry[place:] += 1
    return levels


def _carried(generator: np.random.Generator, item: Configuration, scale: float, drawn: Drawn) -> None:
    """A query is the key that carries it, as long as the logit asks for, and a little of what it was."""
    strength = CARRIED / (scale * item.head_dim)
    for b, i, h in np.ndindex(drawn.q.shape[:-1]):
        key = _key(generator, item, drawn, b, i)
        if key is not None:
            drawn.q[b, i, h] = strength * key + 0.25 * drawn.q[b, i, h]


def _key(generator: np.random.Generator, item: Configuration, drawn: Drawn, b: int, i: int) -> Array | None:
    """The key of a row; None where there is no key at all."""
    if drawn.indices is not None and drawn.sparse_k is not None and (item.s_k == 0 or generator.random() < 0.5):
        length = item.topk if drawn.lens is None else int(drawn.lens[b, i])
        entries = (0, max(0, length - 1), min(length, item.topk - 1), int(generator.integers(item.topk)))
        row = int(drawn.indices[b, i, int(generator.choice(entries))])
        if 0 <= row < item.s_sparse:
            named: Array = drawn.sparse_k[b, row]
            return named
    if item.s_k == 0:
        return None
    length = item.s_k if drawn.kv_lens is None else int(drawn.kv_lens[b])
    position = i + (length - item.t if drawn.query_offsets is None else int(drawn.query_offsets[b]))
    left, right = item.bounds
    first = 0 if left is None else position - left
    last = length - 1 if right is None else min(length - 1, position + right)
    places = (first - 1, first, last, last + 1, int(generator.integers(item.s_k)))
    within = [place for place in places if 0 <= place < item.s_k]
    key: Array = drawn.k[b, int(generator.choice(within))]
    return key


def _one_sign(generator: np.random.Generator, item: Configuration, scale: float, drawn: Drawn) -> None:
    for array in (drawn.q, drawn.k, drawn.v, drawn.sparse_k, drawn.sparse_v):
        if array is not None:
            np.abs(array, out=array)
    drawn.q[1::2] *= -1.0
