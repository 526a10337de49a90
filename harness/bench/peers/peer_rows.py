"""The shapes at which `fmha bench --peer` times ours and its peers, their inputs, and what is right."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

import torch


@dataclass(frozen=True)
class PeerRow:
    """A shape: `heads` query heads in all over `kv_heads`, which each have `heads` / `kv_heads`. Shared: V is K.

    By token: ours takes Q, K and V as a model's projections leave them, token after token; else head after head. With
    `lengths`, which are by token as well, `batch` sequences of so many queries and keys are packed, and t and s_k are
    the longest's. With `kv_lengths`, by token too, entries have so many keys of a cache with room for s_k.
    """

    name: str
    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    t: int
    s_k: int
    causal: bool = False
    shared_kv: bool = False
    by_token: bool = False
    lengths: tuple[int, ...] = ()
    kv_lengths: tuple[int, ...] = ()

    @property
    def decodes(self) -> bool:
        """Whether its queries are the last of a cache of keys."""
        return self.kv_heads == 1 or (self.by_token and not self.lengths and self.t != self.s_k)

    @property
    def serves(self) -> bool:
        """Whether it decodes as models that are served do: several K/V heads, by token."""
        return self.decodes and self.by_token

    @property
    def queries(self) -> tuple[int, int]:
        """Of a tensor: its batch entries, and queries of one."""
        return (1, sum(self.lengths)) if self.lengths else (self.batch, self.t)

    @property
    def keys(self) -> tuple[int, int]:
        """Batch entries and rows of K and V, of one entry where they are packed."""
        return (1, sum(self.lengths)) if self.lengths else (self.batch, self.s_k)

    @property
    def bytes(self) -> int:
        """Of K and V."""
        entries, keys = self.keys
        if self.kv_lengths:
            entries, keys = 1, sum(self.kv_lengths)
        return (2 if self.shared_kv else 4) * entries * self.kv_heads * keys * self.head_dim

    @property
    def least_bytes(self) -> int:
        """What every kernel has to read and write: Q, K, V and O once each."""
        return self.bytes + 4 * math.prod(self.queries) * self.heads * self.head_dim

    @property
    def flop(self) -> float:
        """Floating-point operations of both products."""
        return self.flop_of(self.head_dim)

    def flop_of(self, columns: int) -> float:
        """Where so many columns of Q and K are multiplied."""
        sizes = [(n, n) for n in self.lengths] or [(self.t, n) for n in self.kv_lengths or (self.s_k,) * self.batch]
        seen = sum(t * (s_k - (t - 1) / 2 if self.causal else s_k) for t, s_k in sizes)
        return 2.0 * self.heads * seen * (columns + self.head_dim)


def lengths_of(kind: str, count: int, mean: int) -> tuple[int, ...]:
    """Lengths of `count` sequences: uniform from a tenth of the mean to 1.9 of it, or skewed, log-normal."""
    drawn = random.Random(count * mean)
    if kind == "uniform":
        return tuple(max(1, int(drawn.uniform(0.1, 1.9) * mean)) for _ in range(count))
    weights = [drawn.lognormvariate(0, 1) for _ in range(count)]
    return tuple(max(1, int(weight * mean * count / sum(weights))) for weight in weights)


def conversations(count: int) -> tuple[int, ...]:
    """Keys of so many conversations that a server is at: a prompt and a part of its answer. Their medians, 1020 and 129
    tokens, are those of the trace of conversations in Patel et al., "Splitwise" (ISCA 2024); the spread is ours."""
    drawn = random.Random(count)
    return tuple(
        max(16, round(drawn.lognormvariate(math.log(1020), 0.9) + drawn.uniform(0, 2 * 129))) for _ in range(count)
    )


def _served() -> list[PeerRow]:
    """Decode as models make it: 8 and 4 K/V heads, lengths that are no multiple of a tile, other lengths in each entry,
    192 tokens of speculation."""
    grouped = [
        (1, 32, 8, 1, 8193), (16, 32, 8, 1, 4111), (64, 32, 8, 1, 2085), (8, 64, 8, 1, 16421), (4, 28, 4, 1, 5000),
        (32, 16, 4, 1, 1337), (128, 32, 4, 1, 1021), (2, 64, 8, 1, 65537), (24, 32, 8, 8, 3001),
        (1, 32, 8, 192, 8385), (4, 64, 8, 48, 4144),
    ]  # fmt: skip
    rows = [
        PeerRow("grouped", d, b, h, n, t, s, t > 1, by_token=True) for b, h, n, t, s in grouped for d in (64, 128, 256)
    ]
    mixes = [(32, 32, 8), (96, 32, 8), (48, 28, 4), (16, 64, 8)]
    return rows + [
        PeerRow("mix", d, b, h, n, 1, max(lengths), by_token=True, kv_lengths=lengths)
        for b, h, n in mixes
        for lengths in (conversations(b),)
        for d in (64, 128, 256)
    ]


def _rows() -> list[PeerRow]:
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
    by_token = [(4, 32, 8, 4096), (8, 32, 8, 1024), (16, 32, 8, 512), (12, 16, 16, 768)]
    packed = [
        (48, 32, 8, lengths_of("uniform", 48, 300)), (24, 32, 8, lengths_of("skewed", 24, 600)),
        (96, 16, 16, lengths_of("uniform", 96, 128)), (12, 28, 4, lengths_of("uniform", 12, 1200)),
        (16, 28, 4, (8000, *(500,) * 15)),
    ]  # fmt: skip
    latent = [(16, 128, 8192), (1, 128, 32768), (1, 128, 131072), (64, 128, 4096), (16, 16, 8192)]
    rows = [PeerRow(name, d, b, h, 1, t, s) for name, b, h, t, s in decode for d in (64, 128, 256)]
    rows += [PeerRow(name, d, b, h, h, t, s, causal) for name, b, h, t, s, causal in prefill for d in (64, 128, 256)]
    rows += [
        PeerRow("by token", d, b, h, n, t, t, True, by_token=True) for b, h, n, t in by_token for d in (64, 128, 256)
    ]
    rows += [
        PeerRow("packed", d, b, h, n, max(lengths), max(lengths), True, by_token=True, lengths=lengths)
        for b, h, n, lengths in packed
        for d in (64, 128, 256)
    ]
    rows += _served()
    return rows + [PeerRow("MLA decode", 512, b, h, 1, 1, s, shared_kv=True) for b, h, s in latent]


ROWS: Final = tuple(_rows())


@dataclass(frozen=True)
class PeerInputs:
    """q [batch, kv_heads, t, heads / kv_heads, head_dim]; k and v [batch, kv_heads, s_k, head_dim], or v is k.

    Packed sequences are one batch entry of all their tokens.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def draw(row: PeerRow, seed: int, device: str = "cuda") -> PeerInputs:
    """Standard normal inputs on the device, equal for equal seeds."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=generator)

    (entries, t), (_, s_k) = row.queries, row.keys
    keys = (entries, row.kv_heads, s_k, row.head_dim)
    q, k = normal(entries, row.kv_heads, t, row.heads // row.kv_heads, row.head_dim), normal(*keys)
    return PeerInputs(q, k, k if row.shared_kv else normal(*keys))


def error_of(row: PeerRow, x: PeerInputs, got: torch.Tensor) -> float:
    """Relative L2 error of the last K/V head of the last entry or sequence against float64; NaN anywhere is NaN."""
    if bool(got.isnan().any()):
        return float("nan")
    t, s_k = (row.lengths[-1],) * 2 if row.lengths else (row.t, row.s_k)
    keys = slice(0, row.kv_lengths[-1]) if row.kv_lengths else slice(-s_k, None)
    q, k, v = x.q[-1, -1, -t:].double(), x.k[-1, -1, keys].double(), x.v[-1, -1, keys].double()
    s_k = len(k)
    wanted = torch.empty_like(q)
    for begin in range(0, t, 2048):
        s = torch.einsum("tgd,sd->tgs", q[begin : begin + 2048], k) * row.head_dim**-0.5
        if row.causal:
            last = torch.arange(begin, begin + s.shape[0], device=q.device) + s_k - t
            s.masked_fill_(torch.arange(s_k, device=q.device)[None, None] > last[:, None, None], -torch.inf)
        wanted[begin : begin + 2048] = torch.softmax(s, -1) @ v
    return float((got[-1, -1, -t:].double() - wanted).norm() / wanted.norm())
