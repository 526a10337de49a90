"""K and V in pages beside K and V in order, and packed sequences beside a batch, on this machine's GPU:
`python -m fmha.harness.bench.runs.scattered FILE`.

Every call is checked against the batched one first; then times are the medians of CUDA graphs in turn, as those of
fmha.harness.bench.runs.beside. With `--check` a few small calls of each kernel, against float64: what compute-sanitizer
is to look at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness import exact
from fmha.harness.attention import attention
from fmha.harness.bench.runs.beside import MOST_ERROR, MOST_SETS, SETS_BYTES
from fmha.harness.bench.timing.graph_replay import captured, in_turn

PAGE_SIZES: Final = (16, 64, 256)
HEAD_DIMS: Final = (64, 128, 256, 512)
DEVICE: Final = "cuda" if torch.cuda.is_available() else "cpu"  # where --check runs on the emulator
Tensors = dict[str, Any]


def paged(k: torch.Tensor, v: torch.Tensor, size: int, seed: int) -> Tensors:
    """K and V [batch, s_k, kv_heads, head_dim] in pages of `size` rows, in an order of chance; s_k is a multiple."""
    batch, s_k, *row = k.shape
    order = torch.randperm(batch * s_k // size, generator=torch.Generator().manual_seed(seed)).to(k.device)
    pages = [torch.empty_like(x).view(-1, size, *row) for x in (k, v)]
    for page, x in zip(pages, (k, v), strict=True):
        page[order] = x.reshape(-1, size, *row)
    return {"k": pages[0], "v": pages[1], "block_table": order.view(batch, -1).int()}


def packed(x: Tensors) -> Tensors:
    """A batch of whole sequences, one behind the other."""
    batch, t, s_k = len(x["q"]), x["q"].shape[1], x["k"].shape[1]
    ends = torch.arange(batch + 1, dtype=torch.int32, device=x["q"].device)
    where = {"cu_seqlens_q": ends * t, "cu_seqlens_k": ends * s_k, "max_seqlen_q": t, "max_seqlen_k": s_k}
    return {name: x[name].flatten(0, 1) for name in ("q", "k", "v")} | where


def draw(seed: int, head_dim: int, batch: int, heads: int, kv_heads: int, t: int, s_k: int) -> Tensors:
    """Standard normal q, k and v on the GPU, equal for equal seeds."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    shapes = {"q": (batch, t, heads), "k": (batch, s_k, kv_heads), "v": (batch, s_k, kv_heads)}
    return {
        name: torch.randn(*shape, head_dim, generator=generator, device=DEVICE).bfloat16()
        for name, shape in shapes.items()
    }


def timed(ways: Mapping[str, list[Tensors]], causal: bool, rounds: int) -> dict[str, float]:
    """Median microseconds a call of each way; `ways` have the same problems in the same order, the first in order."""
    options: Tensors = {"causal": causal, "output_dtype": torch.bfloat16}
    calls = {name: [partial(attention, **x, **options) for x in sets] for name, sets in ways.items()}
    first, *_ = (calls[name][0]().o.flatten(0, -3).float() for name in ways)
    for name, each in calls.items():
        wrong = float((each[0]().o.flatten(0, -3).float() - first).norm() / first.norm())
        if wrong > MOST_ERROR:
            raise ValueError(f"{name} is {wrong:.1e} off")
    graphs = {name: captured(each) for name, each in calls.items()}
    count = len(next(iter(ways.values())))
    return {name: round(statistics.median(us) / count, 2) for name, us in in_turn(graphs, rounds).items()}


def measure(head_dim: int, kind: str, rounds: int) -> dict[str, Any]:
    """Decode of 16 entries of 8192 keys, or causal prefill of 4 of 2048; 8 K/V heads."""
    decode = kind == "decode"
    heads, kv_heads, batch, t, s_k = (64, 8, 16, 1, 8192) if decode else (32, 8, 4, 2048, 2048)
    nbytes = 4 * batch * kv_heads * s_k * head_dim
    count = min(MOST_SETS, SETS_BYTES // nbytes + 1)
    sets = [draw(seed, head_dim, batch, heads, kv_heads, t, s_k) for seed in range(count)]
    ways = {"in order": sets}
    for size in PAGE_SIZES:
        ways[f"page {size}"] = [{"q": x["q"]} | paged(x["k"], x["v"], size, seed) for seed, x in enumerate(sets)]
    ways["packed"] = [packed(x) for x in sets]
    return {"head_dim": head_dim, "kind": kind} | timed(ways, not decode, rounds)


def check() -> None:
    """Small calls of each kernel, with lengths that end inside of pages and tiles. ValueError."""
    for head_dim, size, splits in product(HEAD_DIMS, (16, 256), (1, 3)):
        x = draw(head_dim, head_dim, 3, 6, 2, 5, 512)
        lengths = torch.tensor([300, 0, 511], dtype=torch.int32, device=DEVICE)
        given = {"q": x["q"]} | paged(x["k"], x["v"], size, size) | {"kv_lens": lengths}
        _agrees(f"{head_dim} page {size} splits {splits}", given, splits)
        ends = torch.tensor([[0, 5, 5, 12], [0, 200, 213, 512]], dtype=torch.int32, device=DEVICE)
        flat = {name: x[name].flatten(0, 1) for name in ("q", "k", "v")}
        few = {"q": flat["q"][:12], "k": flat["k"][:512], "v": flat["v"][:512]}
        where = {"cu_seqlens_q": ends[0].clone(), "cu_seqlens_k": ends[1].clone(), "max_seqlen_q": 7}
        _agrees(f"{head_dim} packed splits {splits}", few | where | {"max_seqlen_k": 299}, splits)
    for head_dim, causal in product((64, 128, 256), (True, False)):  # by lengths, with a mask and without: two orders
        x = draw(head_dim, head_dim, 1, 40, 8, 733, 733)
        ends = torch.tensor([0, 300, 301, 333, 333, 480, 733], dtype=torch.int32, device=DEVICE)
        where = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 300, "max_seqlen_k": 300}
        flat = {name: x[name].flatten(0, 1) for name in ("q", "k", "v")}
        _agrees(f"{head_dim} by lengths{' causal' if causal else ''}", flat | where, 1, causal)


def _agrees(name: str, given: Tensors, splits: int, causal: bool = True) -> None:
    got = attention(**given, causal=causal, splits=splits).o.cpu().double()
    here = {key: x.cpu() if isinstance(x, torch.Tensor) else x for key, x in given.items()}
    wanted = exact.attention(**here, causal=causal).o
    wrong = float((got - wanted).norm() / wanted.norm())
    print(f"{name}: {wrong:.1e}", flush=True)
    if not wrong <= MOST_ERROR:
        raise ValueError(f"{name} is {wrong:.1e} off")


def main() -> int:
    """Times pages and packed sequences beside contiguous ones, or checks them."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.bench.runs.scattered", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if given.check:
        check()
    if given.file:
        rows = []
        for head_dim, kind in product(HEAD_DIMS, ("decode", "prefill")):
            rows.append(measure(head_dim, kind, given.rounds))
            print(json.dumps(rows[-1]), flush=True)
            torch.cuda.empty_cache()
        report = {"device": torch.cuda.get_device_name(), "rows": rows}
        given.file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
