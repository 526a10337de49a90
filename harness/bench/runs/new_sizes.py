"""What a call of sizes that no call had before costs the host: `python -m fmha.harness.bench.runs.new_sizes RECORD`.

Needs a GPU and torch; with `--peers fa3,sdpa` those are called over the same tensors. A row has the microseconds from a
call to its return: of the first calls, which compile, none is counted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness.attention import attention
from fmha.harness.bench.runs.swept import build_all
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import VARIANTS

CALLS: Final = 400
FEW_CALLS: Final = 60  # of SDPA, whose cuDNN plans each size for tens of milliseconds
BETWEEN: Final = 20  # calls, after which the GPU is waited for: no call waits for room in its queue
WARM: Final = 20
OPTIONS: Final = {"causal": True, "output_dtype": torch.bfloat16}
Step = Callable[[], object]


@dataclass(frozen=True)
class CallLoop:
    """Calls one after the other, each of sizes of its own; by contender."""

    name: str
    steps: dict[str, list[Step]]


def loops(peers: list[str]) -> Iterator[CallLoop]:
    """Loops in which sizes change at every call, ours and the peers'."""
    count = WARM + CALLS
    for head_dim, batch, heads, kv_heads in ((128, 8, 32, 8), (64, 1, 64, 1)):
        kind = f"head_dim {head_dim}, b{batch} h{heads}/{kv_heads}"
        cache_k, cache_v = _normal(2, batch, 2048 + count, kv_heads, head_dim).unbind()
        q = _normal(batch, 1, heads, head_dim)
        views = [(q, cache_k[:, : 2048 + i], cache_v[:, : 2048 + i]) for i in range(count)]
        yield CallLoop(f"K and V grow by a token, {kind}", _contenders(views, peers))
    drawn = random.Random(48)
    cache_k, cache_v = _normal(2, 16, 16384, 8, 128).unbind()
    queries = _normal(16, 1, 32, 128)
    sizes = [(drawn.randint(1, 16), s_k) for s_k in drawn.sample(range(64, 16384), count)]
    views = [(queries[:b], cache_k[:b, :n], cache_v[:b, :n]) for b, n in sizes]
    yield CallLoop("decode of any batch and length, head_dim 128, h32/8", _contenders(views, peers))
    yield packed(count, peers)


def packed(count: int, peers: list[str]) -> CallLoop:
    """Prompts of other lengths each time, 8 to a call."""
    drawn = random.Random(49)
    tokens = [_normal(8 * 512, heads, 128) for heads in (32, 8, 8)]
    fa3 = importlib.import_module("fa3_fwd_interface") if "fa3" in peers else None
    ours: list[Step] = []
    theirs: list[Step] = []
    for _ in range(count):
        lengths = [drawn.randint(16, 512) for _ in range(8)]
        ends = torch.tensor([0, *_sums(lengths)], dtype=torch.int32, device="cuda")
        q, k, v = (each[: sum(lengths)] for each in tokens)
        given: dict[str, Any] = {"max_seqlen_q": max(lengths), "max_seqlen_k": max(lengths)}
        ours.append(partial(attention, q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends, **given, **OPTIONS))
        if fa3 is not None:
            longest = max(lengths), max(lengths)
            theirs.append(partial(fa3.flash_attn_varlen_func, q, k, v, ends, ends, *longest, causal=True))
    steps = {"ours": ours} | ({"fa3": theirs} if theirs else {})
    return CallLoop("packed, another total each time, head_dim 128, b8 h32/8", steps)


def _sums(lengths: list[int]) -> Iterator[int]:
    total = 0
    for length in lengths:
        total += length
        yield total


def _normal(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)


def _contenders(views: list[tuple[torch.Tensor, ...]], peers: list[str]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {"ours": [partial(attention, *each, **OPTIONS) for each in views]}
    if "fa3" in peers:
        fa3 = importlib.import_module("fa3_fwd_interface")
        found["fa3"] = [partial(fa3.flash_attn_with_kvcache, *each, causal=True, num_splits=0) for each in views]
    if "sdpa" in peers:
        sdpa = partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
        found["sdpa"] = [partial(sdpa, *(x.transpose(1, 2) for x in each)) for each in views[:FEW_CALLS]]
    return found


def timed(steps: list[Step]) -> dict[str, float]:
    """Microseconds of a call, of those after the first WARM; and of a second round over the same sizes."""
    found: dict[str, float] = {}
    for word in ("new", "again"):
        taken = []
        for number, step in enumerate(steps):
            if number % BETWEEN == 0:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            step()
            taken.append((time.perf_counter() - begin) * 1e6)
        ordered = sorted(taken[WARM:])
        found |= {
            f"{word}_median_us": round(statistics.median(ordered), 1),
            f"{word}_mean_us": round(statistics.fmean(ordered), 1),
            f"{word}_p90_us": round(ordered[len(ordered) * 9 // 10], 1),
        }
    return found


def main() -> None:
    """Times calls of new sizes and writes a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--peers", default="", help="of fa3 and sdpa, with commas between")
    options = parser.parse_args()
    peers = [name for name in options.peers.split(",") if name]
    build_all([v for v in VARIANTS if v.arch == ARCH and v.head_dim in (64, 128)])
    rows = []
    for loop in loops(peers):
        for name, steps in loop.steps.items():
            rows.append({"loop": loop.name, "contender": name, **timed(steps)})
            print(rows[-1], flush=True)
        torch.cuda.empty_cache()
    options.record.write_text(json.dumps({"calls": CALLS, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
