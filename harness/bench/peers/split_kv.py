"""The peer that a user would write: decode in Triton, heads as rows, keys split, a second kernel that combines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _split_kernel(
    q_at, k_at, v_at, o_at, max_at, sum_at, s_k, scale,
    splits: tl.constexpr, heads: tl.constexpr, dim: tl.constexpr, block: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    split, batch, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows, columns, offsets = tl.arange(0, block), tl.arange(0, dim), tl.arange(0, keys)
    first_row = batch * heads + group * block
    q = tl.load(q_at + (first_row + rows[:, None]).to(tl.int64) * dim + columns[None, :])
    share = tl.cdiv(tl.cdiv(s_k, keys), splits) * keys
    maximum = tl.full([block], float("-inf"), tl.float32)
    total = tl.zeros([block], tl.float32)
    o = tl.zeros([block, dim], tl.float32)
    for start in range(split * share, tl.minimum(split * share + share, s_k), keys):
        at = (batch * s_k + start + offsets).to(tl.int64)
        k = tl.load(k_at + at[None, :] * dim + columns[:, None])
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        new = tl.maximum(maximum, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(maximum - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_at + at[:, None] * dim + columns[None, :])
        o = tl.dot(p.to(tl.bfloat16), v, o * shrink[:, None])
        maximum = new
    row = (split * tl.num_programs(1) * heads + first_row + rows).to(tl.int64)
    tl.store(o_at + row[:, None] * dim + columns[None, :], o)
    tl.store(max_at + row, maximum)
    tl.store(sum_at + row, total)


@triton.jit
def _combine_kernel(part_at, max_at, sum_at, o_at, rows, splits: tl.constexpr, dim: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    split, columns = tl.arange(0, splits), tl.arange(0, dim)
    maximum = tl.load(max_at + split * rows + row)
    weight = tl.exp2(maximum - tl.max(maximum, 0))
    total = tl.sum(tl.load(sum_at + split * rows + row) * weight, 0)
    parts = tl.load(part_at + (split[:, None] * rows + row).to(tl.int64) * dim + columns[None, :])
    tl.store(o_at + row * dim + columns, (tl.sum(parts * weight[:, None], 0) / total).to(tl.bfloat16))


def split_kv(splits: int, block: int, keys: int, warps: int, stages: int) -> Callable[..., Any]:
    """A call over q [batch, 1, heads, head_dim], k and v [batch, 1, s_k, head_dim], all bf16; o as q."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, _, heads, dim = q.shape
        rows = batch * heads
        parts = torch.empty(splits, rows, dim, device="cuda")
        maxima, sums = torch.empty(2, splits, rows, device="cuda").unbind()
        o = torch.empty_like(q)
        _split_kernel[(splits, batch, heads // block)](
            q, k, v, parts, maxima, sums, k.shape[2], dim**-0.5, splits, heads, dim, block, keys,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        _combine_kernel[(rows,)](parts, maxima, sums, o, rows, splits, dim, num_warps=max(1, min(4, dim // 128)))
        return o

    return call
