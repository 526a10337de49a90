"""What a user would pick instead, and the machine's ceilings: SDPA's backends, FlexAttention, a split-KV Triton kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]  # q, k, v: [batch, heads, rows, head_dim]
BACKENDS = {"flash_attention_2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def sdpa(name: str) -> Attention:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[name]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return call


def flex() -> Attention:
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Attention = torch.compile(flex_attention, dynamic=False)
    return compiled


@triton.jit
def _split_kernel(Q, K, V, PO, PM, PL, s_k, scale, SPLITS: tl.constexpr, H: tl.constexpr, D: tl.constexpr,
                  BH: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    split, batch, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows, cols, keys = tl.arange(0, BH), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(Q + (batch * H + group * BH + rows[:, None]).to(tl.int64) * D + cols[None, :])
    per = tl.cdiv(tl.cdiv(s_k, BN), SPLITS) * BN
    first = split * per
    m = tl.full([BH], float("-inf"), tl.float32)
    l = tl.zeros([BH], tl.float32)
    acc = tl.zeros([BH, D], tl.float32)
    for start in range(first, tl.minimum(first + per, s_k), BN):
        at = (batch * s_k + start + keys).to(tl.int64)
        k = tl.load(K + at[None, :] * D + cols[:, None])
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(m - new)
        l = l * shrink + tl.sum(p, 1)
        v = tl.load(V + at[:, None] * D + cols[None, :])
        acc = tl.dot(p.to(tl.bfloat16), v, acc * shrink[:, None])
        m = new
    row = ((split * tl.num_programs(1) + batch) * H + group * BH + rows).to(tl.int64)
    tl.store(PO + row[:, None] * D + cols[None, :], acc)
    tl.store(PM + row, m)
    tl.store(PL + row, l)


@triton.jit
def _combine_kernel(PO, PM, PL, O, ROWS, SPLITS: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    splits, cols = tl.arange(0, SPLITS), tl.arange(0, D)
    m = tl.load(PM + splits * ROWS + row)
    weight = tl.exp2(m - tl.max(m, 0))
    total = tl.sum(tl.load(PL + splits * ROWS + row) * weight, 0)
    parts = tl.load(PO + (splits[:, None] * ROWS + row).to(tl.int64) * D + cols[None, :])
    tl.store(O + row * D + cols, (tl.sum(parts * weight[:, None], 0) / total).to(tl.bfloat16))


def triton_split(splits: int, bh: int, bn: int, warps: int, stages: int) -> Attention:
    """Decode with the heads as rows, [batch, 1, heads, head_dim]; both kernels of it."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, _, h, d = q.shape
        rows = batch * h
        po = torch.empty(splits, rows, d, device="cuda")
        pm, pl = torch.empty(2, splits, rows, device="cuda").unbind()
        o = torch.empty_like(q)
        _split_kernel[(splits, batch, h // bh)](
            q, k, v, po, pm, pl, k.shape[2], d**-0.5, splits, h, d, bh, bn, num_warps=warps, num_stages=stages
        )
        _combine_kernel[(rows,)](po, pm, pl, o, rows, splits, d, num_warps=max(1, min(4, d // 128)))
        return o

    return call


def triton_choices(head_dim: int, batch: int, s_k: int) -> Iterator[tuple[str, Attention]]:
    """Every configuration that is tried; those that do not fit raise when they are called."""
    many = [8, 16] if batch > 1 else [4, 8, 16]
    if head_dim == 512:
        shapes = [(64, 32, 8, 2), (32, 64, 8, 2), (64, 64, 8, 1), (32, 32, 4, 2)]
        many = [4, 8] if batch > 1 else [8, 16]
    elif head_dim == 256:
        shapes = [(128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 3)]
    else:
        shapes = [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)]
    for splits, (bh, bn, warps, stages) in itertools.product(many, shapes):
        if splits * bn <= s_k:
            name = f"splits={splits} rows={bh} keys={bn} warps={warps} stages={stages}"
            yield name, triton_split(splits, bh, bn, warps, stages)


def copy_bandwidth() -> float:
    """TB/s of a 2 GiB device-to-device copy, bytes read plus bytes written."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    seconds = _best(lambda: target.copy_(source))
    return 2 * source.nbytes / seconds / 1e12


def matmul_rate() -> float:
    """TFLOP/s of an 8192 x 8192 x 8192 bf16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return float(2 * 8192**3 / _best(lambda: a @ b) / 1e12)


def _best(call: Callable[[], Any]) -> float:
    """Median seconds of ten calls."""
    call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(10)]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in events)[5] / 1e3
