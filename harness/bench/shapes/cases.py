"""What is checked and what is timed."""

from __future__ import annotations

from typing import Any

from fmha.harness.bench.shapes.launch_shapes import BuildShape
from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.kernel_side.params import SM90_KINDS


def decode(head_dim: int, s_k: int = 8192, batch: int = 16, **kw: Any) -> Problem:
    """A decode of one query and 128 heads."""
    return Problem(head_dim, heads=128, t=1, s_k=s_k, batch=batch, bf16=True, **kw)


def prefill(head_dim: int) -> Problem:
    """b4 h16 T4096 s4096 with heads of their own: 64 batch entries of one head."""
    return Problem(head_dim, heads=1, t=4096, s_k=4096, batch=64, bf16=True)


def checks(shape: BuildShape) -> list[Problem]:
    """Every mask, branch and output once, small, of those that the kernel of `shape` knows."""
    return [
        p
        for p in _checks(shape.head_dim, shape.keys, shape.walks)
        if SM90_KINDS.index(shape.kind) <= SM90_KINDS.index(p.kind)
    ]


def _checks(head_dim: int, keys: int, walks: bool) -> list[Problem]:
    problems = [
        Problem(head_dim, heads=3, t=2, s_k=5 * keys + 7),
        Problem(head_dim, heads=64, t=1, s_k=2 * keys, sink=True, bf16=True),
        Problem(
            head_dim,
            heads=8,
            t=9,
            s_k=3 * keys + 5,
            batch=2,
            window_left=keys + 3,
            window_right=0,
            kv_lens=True,
            offsets=True,
            normalise=False,
        ),
        Problem(
            head_dim,
            heads=16,
            t=3,
            s_k=keys // 2,
            topk=keys + 9,
            s_sparse=100,
            kv_lens=True,
            sparse_lens=True,
            sink=True,
            window_left=20,
            window_right=0,
        ),
        Problem(
            head_dim,
            heads=16,
            t=3,
            s_k=0,
            topk=keys + 9,
            s_sparse=300,
            shared_kv=True,
            sparse_lens=True,
            normalise=False,
        ),
        Problem(head_dim, heads=70, t=1, s_k=5 * keys + 1, shared_kv=True, kv_lens=True, batch=2),
        Problem(head_dim, heads=70, t=1, s_k=5 * keys + 1, splits=4, sink=True, kv_lens=True),
        Problem(head_dim, heads=70, t=1, s_k=9 * keys + 1, splits=9, sink=True, kv_lens=True, batch=2, bf16=True),
        Problem(head_dim, heads=16, t=9, s_k=7 * keys + 3, spread=20.0, window_right=0),
        Problem(head_dim, heads=2, t=300, s_k=290, window_right=0, bf16=True, seed=5),
        Problem(head_dim, heads=5, t=3, s_k=keys, splits=37, batch=2, sink=True, kv_lens=True),
        Problem(head_dim, heads=2, t=1, s_k=11 * keys, splits=19, bf16=True, shared_kv=True),
    ]
    if walks:
        problems += [
            Problem(
                head_dim,
                heads=7,
                t=99,
                s_k=4 * keys + 5,
                batch=2,
                walkers=2,
                window_right=0,
                kv_lens=True,
                shared_kv=True,
                sink=True,
            ),
            Problem(head_dim, heads=6, t=99, s_k=3 * keys, batch=3, walkers=3, kv_lens=True, bf16=True),
            Problem(head_dim, heads=1, t=700, s_k=500, walkers=1, window_left=keys, window_right=0, seed=2),
        ]
    return problems  # fmt: skip
