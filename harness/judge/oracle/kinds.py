"""Kinds of data that move what standard normal tensors never move. Each works on what was drawn, in place: all that
`Data` names have a row in `_KINDS` but *normal*.

N(0, 1) has logits of a few units either way: the running maximum has its final value, or nearly, after one tile, no key
matters much, and values cancel. A kernel may then lose its rescale, a key at the edge of a mask or a thousandth of O,
and stay within what rounding costs.

- *extreme*: queries times a power of two, keys that grow along the sequence in even batch entries and shrink in odd
  ones: logits from 1e-6 to 1e3, and a running maximum that moves at every tile and at none.
- *steps*: logits that jump at two places of the sequence, by nothing in one row, by less than a kernel's rescale
  threshold in the next, by more, or by nearly all that float32 holds; from 0, from far below or from above it.
- *carried*: each row has one key that outweighs all others together. It stands at an edge of what the row sees, on
  either side of it, or anywhere.
- *onesign*: queries, keys and values of one sign, so that nothing cancels; queries of odd batch entries of the other.
- *faint*: values a power of two below what they were, so far that a kernel's thresholds lie above them.
- *loud*: values of one sign, so large that the sum of all is just below what float32 holds; keys weigh alike.

The others look like attention in a model. What N(0, 1) spreads evenly over the keys lies on few of them there, and what
is left is many parts that are small one by one.

- *sinkkey*: an early key, whose value is small, has a logit far above those of all others, which are near 0.
- *recency*: logits fall off with the distance from the last key, at a pace of the row's.
- *twins*: blocks of keys that are nearly the same.
- *channels*: a few channels of the keys are large, with one sign over the whole sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import Configuration

Array = NDArray[np.float64]

# Powers of two that the rows of extreme queries are multiplied by, and how far its keys grow.
EXTREME_EXPONENTS: Final = (-20, -4, 0, 4, 8)
EXTREME_RAMP: Final = (0.25, 2.0)
SINK_SPREADS: Final[Mapping[str, float]] = {"extreme": 100.0}  # deviation of a finite sink, where it is not 2
# Natural-log units by which a row's logits grow at each of two steps. A rescale is due past ln 2^8 = 5.5; 2 x 43 is
# 2^124, which float32 holds for one key and not for a tile of them.
GROWTH: Final = (0.0, 4.5, 6.5, 12.0, 43.0, -12.0)
STEPS: Final = 2
# What all logits of a row have in addition: exp(-120) is 0 in float32.
BASE: Final = (0.0, 0.0, -120.0, 40.0)
EDGE: Final = 64  # steps stand at multiples of this half the time: where tiles may begin
FAINT: Final = 2.0**-40  # of values: over 2^-14, all that f16 holds of them is 0
LOUD: Final = 1.8 * 2.0**127  # the sum of all values: that of a part with most of the keys is 2^127 and more
SPREAD: Final = 2.0**-7  # of such values, beside 1
CARRIED: Final = 16.0  # the logit of the key that carries a row; exp(16) outweighs thousands of others

# Logits of the key that is a sink. exp(-8.6) and exp(-11.4) are the middle of an octave: the P of all other keys, which
# are near one another, would else lie where bf16 is coarsest together. What a split without the sink counts for is then
# 5e-4 or 3e-5 at most, and a thousand such keys together have a fifth of the row or a hundredth.
SINK_LOGITS: Final = (8.6, 11.4)
SINK_PLACES: Final = 4  # it is one of so many first keys
SINK_VALUE: Final = 2.0**-6  # what its value and its key are of others': else its value were most of O
SINK_MARK: Final = 2.0**-3  # the element by which its key is known: where V is K, an element of its value
NOISE: Final = 0.3  # deviation of the other logits, natural-log units
FALLS: Final = (2.0, 8.0, 24.0)  # natural-log units from the last key to the first
TWINS: Final = 16  # keys of a block
APART: Final = 2.0**-5  # how far they lie apart, beside 1: P of one block is several neighbours among bf16
CHANNELS: Final = 32  # elements of head_dim for each channel that is large
LARGE: Final = 12.0  # mean of such a channel
WIDE: Final = 4.0  # its deviation


@dataclass(frozen=True, slots=True)
class DrawnTensors:
    """q [batch, t, heads, head_dim]; k and v [batch, s_k, head_dim], or of several K/V heads [batch, s_k, kv_heads,
    head_dim] for kinds that OF_ONE_HEAD does not name, v None when V is K; kv_lens and query_offsets [batch] or None;
    of the sparse branch, None without one, k and v [batch, s_sparse, head_dim], indices [batch, t, topk] and lens
    [batch, t] or None for topk."""

    q: Array
    k: Array
    v: Array | None
    kv_lens: NDArray[np.int32] | None
    query_offsets: NDArray[np.int32] | None
    sparse_k: Array | None
    sparse_v: Array | None
    indices: NDArray[np.int32] | None
    lens: NDArray[np.int32] | None


def reshape(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """Makes standard normal tensors into data of the configuration's kind, which is one of this module's."""
    _KINDS[item.data](generator, item, scale, drawn)


def _extreme(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """A power of two a row of q; of keys a ramp along the sequence, up and down in turn over the batch entries."""
    drawn.q[...] *= np.exp2(generator.choice(EXTREME_EXPONENTS, (*drawn.q.shape[:-1], 1)))
    for keys in _keys_of(drawn):
        ramp = np.linspace(*EXTREME_RAMP, keys.shape[1]).reshape(-1, *(1 for _ in keys.shape[2:]))
        keys[0::2] *= ramp
        keys[1::2] *= ramp[::-1]


def _steps(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
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


def _carried(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """A query is the key that carries it, as long as the logit asks for, and a little of what it was."""
    strength = CARRIED / (scale * item.head_dim)
    for b, i, h in np.ndindex(drawn.q.shape[:-1]):
        key = _key(generator, item, drawn, b, i)
        if key is not None:
            drawn.q[b, i, h] = strength * key + 0.25 * drawn.q[b, i, h]


def _key(generator: np.random.Generator, item: Configuration, drawn: DrawnTensors, b: int, i: int) -> Array | None:
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


def _one_sign(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    for array in (drawn.q, drawn.k, drawn.v, drawn.sparse_k, drawn.sparse_v):
        if array is not None:
            np.abs(array, out=array)
    drawn.q[1::2] *= -1.0


def _faint(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """Where V is K, the keys as well: each row then weighs all of them alike."""
    for keys, values in ((drawn.k, drawn.v), (drawn.sparse_k, drawn.sparse_v)):
        array = keys if values is None else values
        if array is not None:
            array *= FAINT


def _loud(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """Each logit is 0: P is exact, where many that are nearly alike would be rounded to one side together. So would the
    sums of a part, which may be of 11 bits: columns have levels of their own, of which the first is the highest."""
    drawn.q[...] = 0.0
    for values in (drawn.v, drawn.sparse_v):
        if values is not None:
            level = np.append(1.0, generator.uniform(0.5, 1.0, values.shape[-1] - 1))
            values[...] = LOUD / (item.s_k + item.topk) * level * (1.0 - SPREAD * np.abs(values))


def _sink_key(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """The last element of a key says whether it is a sink, that of a query how much of one. Without dense keys it is
    the first row that lists may name."""
    _calm(item, scale, drawn.q, NOISE)
    drawn.q[..., -1] = generator.choice(SINK_LOGITS, drawn.q.shape[:-1]) / (scale * SINK_MARK)
    for keys in _keys_of(drawn):
        keys[..., -1] = 0.0
    first, first_values = (drawn.k, drawn.v) if item.s_k else (drawn.sparse_k, drawn.sparse_v)
    if first is None or not first.shape[1]:
        return
    for entry in range(item.batch):
        place = int(generator.integers(min(SINK_PLACES, first.shape[1]))) if item.s_k else 0
        first[entry, place] *= SINK_VALUE
        first[entry, place, ..., -1] = SINK_MARK
        if first_values is not None:
            first_values[entry, place] *= SINK_VALUE


def _recency(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """The last element of a key is its distance from the last key; a row of lists has one of its own."""
    _calm(item, scale, drawn.q, 1.0)
    drawn.q[..., -1] = generator.choice(FALLS, drawn.q.shape[:-1]) / scale
    distances = np.arange(item.s_k)[::-1] / max(1, item.s_k)
    drawn.k[..., -1] = -distances.reshape(-1, *(1 for _ in drawn.k.shape[2:-1]))
    if drawn.sparse_k is not None:
        drawn.sparse_k[..., -1] = -generator.random(drawn.sparse_k.shape[:-1])


def _twins(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """Every key of a block is the block's first one and a little of what it was."""
    for keys in _keys_of(drawn):
        keys[...] = keys[:, np.arange(keys.shape[1]) // TWINS * TWINS] + APART * keys


def _channels(generator: np.random.Generator, item: Configuration, scale: float, drawn: DrawnTensors) -> None:
    """Which channels are large, and their signs, are of the whole problem, as they are of a layer."""
    count = max(1, item.head_dim // CHANNELS)
    large = generator.choice(item.head_dim, count, replace=False)
    means = LARGE * generator.choice((-1.0, 1.0), count)
    for keys in _keys_of(drawn):
        keys[..., large] = means + WIDE * keys[..., large]


def _calm(item: Configuration, scale: float, q: Array, deviation: float) -> None:
    """Makes `deviation` that of the logits with standard normal keys, whatever the scale."""
    q *= deviation / (scale * math.sqrt(item.head_dim))


def _keys_of(drawn: DrawnTensors) -> Iterator[Array]:
    yield drawn.k
    if drawn.sparse_k is not None:
        yield drawn.sparse_k


_KINDS: Final[Mapping[str, Callable[[np.random.Generator, Configuration, float, DrawnTensors], None]]] = {
    "extreme": _extreme,
    "steps": _steps,
    "carried": _carried,
    "onesign": _one_sign,
    "faint": _faint,
    "loud": _loud,
    "sinkkey": _sink_key,
    "recency": _recency,
    "twins": _twins,
    "channels": _channels,
}
