"""Attention in float64: what every kernel is measured against.

    s = scale * q.k + mask      row_max = max s      row_sum = sum exp(s - row_max)
    o_unnormalised = sum exp(s - row_max) v          o = o_unnormalised / row_sum       lse = row_max + ln(row_sum)

A row with no key to look at has row_max = lse = -inf, row_sum = 0 and o = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.worker.bf16 import from_bf16
from harness.worker.inputs import Inputs
from harness.worker.protocol import Configuration, Mask

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reference:
    """o and o_unnormalised [batch, t, head_dim]; row_max, row_sum and lse [batch, t], natural-log units."""

    o: Array
    o_unnormalised: Array
    row_max: Array
    row_sum: Array
    lse: Array


def reference_for(configuration: Configuration, inputs: Inputs) -> Reference:
    """The reference of `configuration` from the very bf16 inputs that the kernel is given."""
    visible = visible_keys(configuration.t, configuration.s_k, configuration.mask, configuration.window)
    return attention(from_bf16(inputs.q), from_bf16(inputs.k), from_bf16(inputs.v), inputs.scale, visible)


def attention(q: Array, k: Array, v: Array, scale: float, visible: NDArray[np.bool_]) -> Reference:
    """q [batch, t, d], k and v [batch, s_k, d]; visible [t, s_k] says which keys a query sees."""
    scores = np.where(visible, scale * (q @ k.swapaxes(1, 2)), -np.inf)
    row_max = scores.max(axis=2)
    shift = np.where(np.isneginf(row_max), 0.0, row_max)  # -inf - -inf is NaN; a row without keys has weights of zero
    weights = np.exp(scores - shift[..., np.newaxis])
    row_sum = weights.sum(axis=2)
    unnormalised = weights @ v
    normalised = unnormalised / np.where(row_sum == 0, 1.0, row_sum)[..., np.newaxis]
    with np.errstate(divide="ignore"):
        lse = row_max + np.log(row_sum)
    return Reference(normalised, unnormalised, row_max, row_sum, lse)


def visible_keys(t: int, s_k: int, mask: Mask, window: int = 0) -> NDArray[np.bool_]:
    """[t, s_k]: whether query i sees key j. The last query is aligned with the last key.

    none: every key. causal: the keys up to the query's own, j <= i + s_k - t. window: the last `window` of those,
    its own included.
    """
    distance = np.arange(t)[:, np.newaxis] + (s_k - t) - np.arange(s_k)[np.newaxis, :]
    if mask == "none":
        return np.ones((t, s_k), dtype=np.bool_)
    if mask == "causal":
        return distance >= 0
    return (distance >= 0) & (distance < window)
