"""Seeded inputs of a configuration."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.worker.bf16 import round_to_bf16
from harness.worker.protocol import Configuration


@dataclass(frozen=True, slots=True)
class Inputs:
    """Q [batch, t, head_dim], K and V [batch, s_k, head_dim] as bf16 bit patterns; scale multiplies q.k."""

    q: NDArray[np.uint16]
    k: NDArray[np.uint16]
    v: NDArray[np.uint16]
    scale: float


def make_inputs(seed: int, configuration: Configuration) -> Inputs:
    """Standard normal Q, K and V rounded to bf16.

    They depend on the seed and on the configuration's own name alone: not on which others run, nor in what order.
    """
    digest = hashlib.sha256(f"{seed}/{configuration.id}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    queries = (configuration.batch, configuration.t, configuration.head_dim)
    keys = (configuration.batch, configuration.s_k, configuration.head_dim)
    q, k, v = (round_to_bf16(generator.standard_normal(shape)) for shape in (queries, keys, keys))
    return Inputs(q, k, v, softmax_scale(configuration.head_dim))


def softmax_scale(head_dim: int) -> float:
    """1 / sqrt(head_dim) as the float32 that the kernel is given, so that the reference uses the same number."""
    return float(np.float32(1.0 / math.sqrt(head_dim)))
