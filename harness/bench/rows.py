"""The shapes at which `fmha bench --peer` times ours and its peers, their inputs, and what is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch


@dataclass(frozen=True)
class Row:
    """A shape: `heads` query heads in all over `kv_heads`, which each have `heads` / `kv_heads`. Shared: V is K."""

    name: str
    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    t: int
    s_k: int
    causal: bool = False
    shared_kv: bool = False

    @property
    def bytes(self) -> int:
        return (2 if self.shared_kv else 4) * self.batch * self.kv_heads * self.s_k * self.head_dim

    @property
    def flop(self) -> float:
        return self.flop_of(self.head_dim)

    def flop_of(self, columns: int) -> float:
        """Where so many columns of Q and K are multiplied."""
        seen = self.s_k - (self.t - 1) / 2 if self.causal else self.s_k
        return 2.0 * self.batch * self.heads * self.t * seen * (columns + self.head_dim)


def _rows() -> list[Row]:
    decode = [
        ("decode", 16, 128, 1, 8192), ("long, h16", 1, 16, 1, 131072), ("long, h128", 1, 128, 1, 131072),
        ("T4", 4, 32, 4, 32768), ("many", 64, 64, 1, 4096), ("short", 1, 128, 1, 512),
        ("few", 1, 16, 1, 8192), ("odd", 24, 128, 1, 8192), ("T16", 2, 64, 16, 4096), ("b5", 5, 48, 3, 20000),
    ]  # fmt: skip
    prefill = [
        ("full", 4, 16, 4096, 4096, False), ("causal", 4, 16, 4096, 4096, True), ("causal", 1, 16, 16384, 16384, True),
        ("causal", 16, 16, 1024, 1024, True), ("causal", 16, 16, 512, 512, True), ("causal", 4, 16, 1024, 4096, True),
        ("causal", 1, 16, 2048, 2048, True), ("full", 16, 16, 1024, 1024, False), ("causal", 3, 12, 3000, 3000, True),
    ]  # fmt: skip
    latent = [(16, 128, 8192), (1, 128, 32768), (1, 128, 131072), (64, 128, 4096), (16, 16, 8192)]
    rows = [Row(name, d, b, h, 1, t, s) for name, b, h, t, s in decode for d in (64, 128, 256)]
    rows += [Row(name, d, b, h, h, t, s, causal) for name, b, h, t, s, causal in prefill for d in (64, 128, 256)]
    return rows + [Row("MLA decode", 512, b, h, 1, 1, s, shared_kv=True) for b, h, s in latent]


ROWS: Final = tuple(_rows())


@dataclass(frozen=True)
class Inputs:
    """q [batch, kv_heads, t, heads / kv_heads, head_dim]; k and v [batch, kv_heads, s_k, head_dim], or v is k."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def draw(row: Row, seed: int, device: str = "cuda") -> Inputs:
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=generator)

    keys = (row.batch, row.kv_heads, row.s_k, row.head_dim)
    group = row.heads // row.kv_heads
    q, k = normal(row.batch, row.kv_heads, row.t, group, row.head_dim), normal(*keys)
    return Inputs(q, k, k if row.shared_kv else normal(*keys))


def error_of(row: Row, x: Inputs, got: torch.Tensor) -> float:
    """Relative L2 error of the last K/V head of the last batch entry against float64; NaN anywhere is NaN."""
    if bool(got.isnan().any()):
        return float("nan")
    q, k, v = x.q[-1, -1].double(), x.k[-1, -1].double(), x.v[-1, -1].double()
    wanted = torch.empty_like(q)
    for begin in range(0, row.t, 2048):
        s = torch.einsum("tgd,sd->tgs", q[begin : begin + 2048], k) * row.head_dim**-0.5
        if row.causal:
            last = torch.arange(begin, begin + s.shape[0], device=q.device) + row.s_k - row.t
            s.masked_fill_(torch.arange(row.s_k, device=q.device)[None, None] > last[:, None, None], -torch.inf)
        wanted[begin : begin + 2048] = torch.softmax(s, -1) @ v
    return float((got[-1, -1].double() - wanted).norm() / wanted.norm())
