"""The shapes that the rule of fmha.harness.kernel_side.choice takes at sizes of their own, forced at small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fmha.harness.bench.shapes.launch_shapes import OTHERS
from fmha.harness.judge.configuration import Configuration
from fmha.harness.kernel_side.choice import kinds_of


def _forced(head_dim: int, rows: int) -> Iterator[Configuration]:
    """Every branch, mask and way to merge of one shape."""
    plain = Configuration(head_dim, 70, 300, heads=3, rows=rows)
    yield plain
    yield replace(plain, mask="causal", kv_lens="ragged", batch=3, output="bf16", sink="finite")
    yield replace(plain, mask="window", window=90, query_offsets="mixed", kv="shared", batch=2, data="extreme")
    yield replace(plain, t=2, heads=70, kv_lens="ragged", batch=2, splits=3, merge="combine", output="fp32")
    if "whole" not in kinds_of(rows):
        return  # it knows no lists
    yield replace(plain, t=5, heads=40, topk=80, s_sparse=130, sparse_indices="holes", sparse_lens="ragged", batch=2)


def _short(head_dim: int) -> Iterator[Configuration]:
    """What the rule makes of the sizes that it was measured at, and of others beside them."""
    decode = Configuration(head_dim, 1, 512, heads=128, splits=8, output="bf16")
    yield decode
    yield replace(decode, batch=3, s_k=401, splits=7, kv_lens="ragged", sink="mixed", kv="shared")


def _sharing() -> Iterator[Configuration]:
    """Two row tiles that share their loads."""
    decode = Configuration(512, 1, 500, heads=128, splits=2, output="bf16")
    yield decode
    yield replace(decode, batch=3, s_k=700, splits=3, kv_lens="ragged", sink="mixed", output="fp32")
    yield replace(decode, t=5, heads=100, batch=2, mask="window", window=200, query_offsets="mixed", data="extreme")


def _many() -> Iterator[Configuration]:
    """Splits that four warps a row merge, and row tiles that a CTA walks over."""
    for head_dim in (64, 128, 256, 512):
        few = Configuration(head_dim, 1, 1500, heads=16, splits=20, output="bf16")
        yield few
        yield replace(few, heads=5, batch=2, splits=33, kv_lens="ragged", sink="mixed", kv="shared", output="fp32")
        yield replace(few, t=2, heads=40, splits=130, s_k=700, mask="causal", output="unnormalised")
    for head_dim in (64, 128, 256):
        many = Configuration(head_dim, 260, 40, batch=66, heads=2)
        yield replace(many, mask="causal", kv_lens="ragged", query_offsets="mixed", output="bf16")
        if head_dim < 256:
            yield replace(many, rows=192, mask="causal", kv_lens="ragged", query_offsets="mixed", sink="finite")
    yield replace(many, s_k=1100, t=150, mask="window", window=90, kv_lens="ragged", query_offsets="mixed")


def _narrow_balanced() -> Iterator[Configuration]:
    """Balanced splits of narrow row tiles."""
    for head_dim in (128, 256):
        yield Configuration(head_dim, 1, 700, batch=7, heads=10, kv_heads=2, rows=64, kv_lens="ragged", splits=20,
                            merge="balanced", output="bf16")  # fmt: skip


def _heads() -> Iterator[Configuration]:
    """Groups of query heads that leave rows idle, in shapes whose CTAs walk over the row tiles of several planes."""
    for head_dim in (64, 128):
        wide = Configuration(head_dim, 39, 20, batch=14, heads=25, kv_heads=5, rows=192, mask="causal", output="bf16")
        yield replace(wide, kv_lens="ragged")
    yield Configuration(256, 43, 90, batch=24, heads=9, kv_heads=3, rows=128, kv_lens="ragged", sink="finite")
    for head_dim in (128, 256):
        narrow = Configuration(head_dim, 39, 20, batch=14, heads=25, kv_heads=5, rows=64, mask="causal", output="bf16")
        yield replace(narrow, kv_lens="ragged")
        yield replace(narrow, batch=40, s_k=150, sink="mixed", layout="fused")


def _scattered() -> Iterator[Configuration]:
    """Pages and packed sequences in the shapes of prefill: boxes of 16 keys of a tile and one box, tails, windows, and
    CTAs that walk over entries of several lengths."""
    both: dict[str, Any] = {"packed": "both", "q_lens": "ragged", "kv_lens": "ragged"}
    plain = Configuration(256, 37, 300, batch=2, heads=12, kv_heads=2, rows=128, output="bf16")
    yield replace(plain, mask="causal", kv_lens="ragged", page_size=16, sink="finite")
    yield replace(plain, mask="window", window=20, query_offsets="mixed", page_size=256, data="extreme")
    yield replace(plain, kv="shared", kv_lens="ragged", page_size=64, output="fp32")
    yield replace(plain, mask="causal", sink="mixed", **both)
    yield replace(plain, batch=3, kv="shared", mask="window", window=90, **both)
    yield Configuration(256, 43, 90, batch=48, heads=9, kv_heads=3, rows=128, output="bf16", **both)
    for head_dim in (64, 128):
        wide = Configuration(head_dim, 37, 300, batch=2, heads=12, kv_heads=2, rows=192, output="bf16")
        yield replace(wide, mask="causal", kv_lens="ragged", page_size=16, sink="finite")
        yield replace(wide, mask="window", window=20, query_offsets="mixed", page_size=256, data="extreme")
        yield replace(wide, kv="shared", kv_lens="ragged", page_size=64, output="fp32")
        yield replace(wide, batch=3, mask="causal", sink="mixed", **both)
        walked = Configuration(head_dim, 39, 20, batch=14, heads=25, kv_heads=5, rows=192, output="bf16")
        yield replace(walked, batch=34, mask="causal", **both)
        yield replace(walked, s_k=150, kv_lens="ragged", page_size=16)
    for head_dim in (128, 256):
        narrow = Configuration(head_dim, 37, 300, batch=2, heads=12, kv_heads=2, rows=64, output="bf16")
        yield replace(narrow, mask="causal", kv_lens="ragged", page_size=16, sink="finite")
        yield replace(narrow, mask="window", window=20, query_offsets="mixed", page_size=256, data="extreme")
        yield replace(narrow, batch=3, mask="causal", sink="mixed", **both)
        walked = Configuration(head_dim, 39, 20, batch=34, heads=25, kv_heads=5, rows=64, output="bf16", **both)
        yield walked
        yield replace(walked, mask="causal", s_k=200)


def _balanced() -> Iterator[Configuration]:
    """Balanced splits: planes of one CTA and of many, more planes than CTAs and fewer, CTAs that have nothing."""
    for head_dim in (64, 128, 256):
        plain = Configuration(
            head_dim, 1, 700, batch=7, heads=5, kv_lens="ragged", splits=28, merge="balanced", output="bf16"
        )
        yield plain
        yield replace(plain, t=2, heads=30, mask="causal", query_offsets="mixed", sink="mixed", output="fp32", splits=5)
        yield replace(plain, batch=40, s_k=300, splits=6)
        yield replace(plain, batch=20, s_k=900, heads=6, kv_heads=3, splits=17)
        yield replace(plain, batch=1, s_k=3000, heads=6, kv_heads=3, splits=132)
        yield replace(plain, batch=3, heads=60, kv="shared", output="unnormalised", splits=27)
        yield replace(plain, heads=6, kv_heads=2, page_size=64, splits=29)
        yield replace(plain, t=5, heads=8, kv_heads=4, packed="both", q_lens="ragged", splits=18)


CASES = (
    tuple(item for shape in OTHERS for item in _forced(*shape))
    + tuple(item for head_dim in (64, 128, 256, 512) for item in _short(head_dim))
    + tuple(_sharing())
    + tuple(_many())
    + tuple(_heads())
    + tuple(_narrow_balanced())
    + tuple(_scattered())
    + tuple(_balanced())
)
