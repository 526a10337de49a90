"""Decode as models make it, at shapes drawn by a seed, in every choice of rows and splits: what prices are fitted to.

    python -m fmha.harness.bench.runs.swept RECORD --seed 4801 --count 120
    python -m fmha.harness.bench.runs.swept RECORD --seed 4802 --count 80 --peers fa3,sdpa
    python -m fmha.harness.bench.runs.swept RECORD --seed 4814 --count 80 --queries 16 256

Needs a Hopper GPU and torch. `python -m tools.refit RECORD` fits the constants of fmha.harness.kernel_side.cost to such
records, and tells how far what is cheapest by them is from what was fastest.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness import account, project
from fmha.harness.attention.arguments import CheckedArguments, check
from fmha.harness.attention.decision import decide
from fmha.harness.attention.entry import listed
from fmha.harness.attention.given import AttentionArguments
from fmha.harness.attention.plans import AttentionPlan
from fmha.harness.bench.timing import box
from fmha.harness.bench.timing.graph_replay import captured, in_turn
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import InfrastructureError
from fmha.harness.kernel_side.choice import ARCH, Balance, kind_of
from fmha.harness.kernel_side.launch import Call
from fmha.harness.kernel_side.params import SM90_KERNELS, SM90_KINDS, sm90_launch
from fmha.harness.kernel_side.price import BALANCED, MULTIPROCESSORS, PART_KEYS
from fmha.harness.kernel_side.variants import VARIANTS, balances, knows_heads, knows_lengths, knows_pages, rows_define
from fmha.harness.kernel_side.variants import kind_of as variant_kind
from fmha.harness.worker.compilers.build_kernels import build_variants

SETS_BYTES: Final = 400 << 20
MOST_SETS: Final = 12
MOST_ERROR: Final = 8e-3  # relative, of bf16 outputs
MOST_KEYS_BYTES: Final = 1 << 30  # of K and V of a shape
MOST_FLOP: Final = 1e11  # of its products, where entries have so many queries as are asked for
ROUNDS: Final = 5
MOST_TURNS: Final = 4  # of CTAs on the GPU
SPLITS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
# Query heads and K/V heads of models that are served: Llama, Qwen, Mistral, Gemma and others, whole or a GPU's share.
HEADS: Final = (
    (32, 8),
    (64, 8),
    (40, 8),
    (48, 8),
    (24, 8),
    (16, 8),
    (28, 4),
    (32, 4),
    (16, 4),
    (64, 4),
    (8, 4),
    (96, 8),
    (16, 2),
    (14, 2),
    (8, 2),
    (128, 8),
    (128, 1),
    (64, 1),
    (16, 1),
    (32, 1),
)
HEAD_DIMS: Final = (64, 128, 256, 64, 128, 256, 64, 128, 256, 512)  # in turn  # fmt: skip
LENGTHS: Final = ("same", "same", "same", "uniform", "skewed", "one long")
METHOD: Final = (
    "Median microseconds a call over replays of CUDA graphs that walk through input sets of 400 MB in all, 12 sets at "
    "most, all choices of a shape in turn; each checked first. rows 0: the shape of the head_dim's own; splits -1: "
    "balanced. O in bf16 and the LSE are stored. `rule` is what the harness chose."
)


@dataclass(frozen=True)
class DecodeShape:
    """Decode of `t` queries an entry, causal. `lengths` are those of K and V where entries differ; s_k the longest."""

    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    t: int
    s_k: int
    kind: str = "same"
    lengths: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Of K and V that are read."""
        return 4 * self.head_dim * self.kv_heads * (sum(self.lengths) or self.batch * self.s_k)


def drawn(seed: int, count: int, queries: Sequence[int] = ()) -> Iterator[DecodeShape]:
    """Sizes are log-uniform; a query with up to seven further ones, as speculation adds them, is one in five. With
    `queries` an entry has from the first to the second of them: a tree of drafts, or the end of a prompt."""
    generator = random.Random(seed)

    def between(least: int, most: int) -> int:
        return round(math.exp(generator.uniform(math.log(least), math.log(most))))

    made = 0
    while made < count:
        head_dim = HEAD_DIMS[made % len(HEAD_DIMS)]
        heads, kv_heads = generator.choice(HEADS)
        batch, s_k = between(1, 160), between(200, 80000)
        t = between(*queries) if queries else generator.choice((1, 1, 1, 1, between(2, 8)))
        s_k = max(s_k, t)
        kind = generator.choice(LENGTHS)
        if batch == 1:
            kind = "same"
        if 4 * head_dim * kv_heads * batch * s_k > MOST_KEYS_BYTES:
            continue
        if queries and 4.0 * head_dim * heads * batch * t * s_k > MOST_FLOP:
            continue
        lengths = _lengths(kind, batch, s_k, t, generator)
        yield DecodeShape(head_dim, batch, heads, kv_heads, t, max(lengths, default=s_k), kind, lengths)
        made += 1


def _lengths(kind: str, batch: int, s_k: int, t: int, generator: random.Random) -> tuple[int, ...]:
    if kind == "same":
        return ()
    if kind == "uniform":
        found = [generator.randint(s_k // 10, s_k) for _ in range(batch)]
    elif kind == "skewed":
        found = [min(s_k, round(0.15 * s_k * generator.lognormvariate(0, 1))) for _ in range(batch)]
    else:
        found = [s_k] + [s_k // 16] * (batch - 1)
    return tuple(max(t, length) for length in found)


@dataclass(frozen=True)
class DecodeInputs:
    """The tensors of a decode."""

    q: torch.Tensor  # [batch, t, heads, head_dim]
    k: torch.Tensor  # [batch, s_k, kv_heads, head_dim]
    v: torch.Tensor
    lengths: torch.Tensor | None


def inputs_of(shape: DecodeShape) -> list[DecodeInputs]:
    """As many sets of inputs as it takes to leave the cache."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    nbytes = 4 * shape.head_dim * shape.kv_heads * shape.batch * shape.s_k
    count = max(1, min(MOST_SETS, -(-SETS_BYTES // nbytes)))

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16, generator=generator)

    lengths = torch.tensor(shape.lengths, dtype=torch.int32, device="cuda") if shape.lengths else None
    keys = (shape.batch, shape.s_k, shape.kv_heads, shape.head_dim)
    queries = (shape.batch, shape.t, shape.heads, shape.head_dim)
    return [DecodeInputs(normal(*queries), normal(*keys), normal(*keys), lengths) for _ in range(count)]


def right(shape: DecodeShape, x: DecodeInputs) -> torch.Tensor:
    """O of the last entry, of its first K/V head: [t, group, head_dim] float64."""
    group, length = shape.heads // shape.kv_heads, (shape.lengths or (shape.s_k,))[-1]
    q, k, v = x.q[-1, :, :group].double(), x.k[-1, :length, 0].double(), x.v[-1, :length, 0].double()
    s = torch.einsum("tgd,sd->tgs", q, k) * shape.head_dim**-0.5
    last = torch.arange(shape.t, device="cuda") + length - shape.t
    s.masked_fill_(torch.arange(length, device="cuda")[None, None] > last[:, None, None], -torch.inf)
    return torch.softmax(s, -1) @ v


def error_of(shape: DecodeShape, o: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative L2 error of the last entry's first K/V head."""
    got = o[-1, :, : shape.heads // shape.kv_heads].double()
    return float((got - wanted).norm() / wanted.norm())


def arguments_of(shape: DecodeShape, x: DecodeInputs) -> CheckedArguments:
    """The call of a shape, checked."""
    given = AttentionArguments(x.q, x.k, x.v, kv_lens=x.lengths, causal=shape.t > 1, output_dtype=torch.bfloat16)
    return check(given)


def choices(shape: DecodeShape, call: Call) -> Iterator[tuple[int, int, Variant, Call]]:
    """Rows that are asked for, splits or BALANCED, and what they are launched as."""
    planes, windowed = call.planes, shape.t > 1
    own_rows = planes.t * planes.heads
    for rows in (0, *(rows for head_dim, rows in SM90_KERNELS if rows and head_dim == shape.head_dim)):
        launch = sm90_launch(shape.head_dim, rows)
        if rows > max(64, own_rows):
            continue  # a wide row tile of few rows
        row_tiles, slots = -(-own_rows // launch.rows), MULTIPROCESSORS * launch.ctas_per_sm
        room = slots // (row_tiles * planes.batch)
        most = min(-(-shape.s_k // launch.keys), max(1, MOST_TURNS * slots // (row_tiles * planes.batch)), 128)
        for splits in sorted({*SPLITS, room, room - 1, 2 * room, most} - {0, -1}):
            variant = _variant(shape, rows, kind_of(planes, splits, windowed))
            if splits <= most and variant is not None:
                yield rows, splits, variant, replace(call, splits=splits)
        balancing = [v for v in _variants(shape.head_dim, rows, True) if balances(v)]
        if balancing and row_tiles == 1 and call.kv_heads <= slots:
            balance = Balance(slots, -(-PART_KEYS // launch.keys))
            yield rows, BALANCED, balancing[0], replace(call, balance=balance, splits=1)


def _variants(head_dim: int, rows: int, by_head: bool) -> list[Variant]:
    """Without pages."""
    mine = [v for v in VARIANTS if v.arch == ARCH and v.head_dim == head_dim and rows_define(v) == rows]
    return [v for v in mine if knows_heads(v) == by_head and not knows_pages(v)]


def _variant(shape: DecodeShape, rows: int, kind: str) -> Variant | None:
    """The one that knows enough and little more; None where there is none."""
    by_head = shape.kv_heads > 1
    there = {variant_kind(v): v for v in _variants(shape.head_dim, rows, by_head) if not knows_lengths(v)}
    if by_head:
        return there.get("dense")
    enough = [there[name] for name in SM90_KINDS[SM90_KINDS.index(kind) :: -1] if name in there]
    return enough[0] if enough else None


def peers_of(names: list[str], shape: DecodeShape, x: DecodeInputs) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Every way of the named peers to compute it."""
    if "fa3" in names:
        fa3 = importlib.import_module("fa3_fwd_interface")

        for pack in (None, True, False):
            run = partial(
                fa3.flash_attn_with_kvcache, x.q, x.k, x.v, cache_seqlens=x.lengths, causal=shape.t > 1, num_splits=0,
                pack_gqa=pack,
            )  # fmt: skip
            yield f"fa3, pack_gqa={pack}", run
    if "sdpa" in names and not shape.lengths and shape.t == 1:
        q, k, v = (tensor.transpose(1, 2) for tensor in (x.q, x.k, x.v))
        sdpa = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, enable_gqa=True)
        yield "sdpa", lambda: sdpa().transpose(1, 2)


def measured(shape: DecodeShape, peers: list[str]) -> dict[str, Any]:
    """The times of every choice and peer at a shape, and those that were wrong."""
    sets = inputs_of(shape)
    wanted = right(shape, sets[0])
    arguments = arguments_of(shape, sets[0])
    variant, ruled = decide(arguments, None, "auto", sets[0].q.device)
    tensors = [listed(x.q, x.k, x.v, kv_lens=x.lengths) for x in sets]
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    kept: list[Any] = []
    wrong: dict[str, Any] = {}

    def keep(name: str, calls: list[Callable[[], torch.Tensor]]) -> None:
        try:
            error = error_of(shape, calls[0](), wanted)
            if not error <= MOST_ERROR:
                wrong[name] = error
                return
            graphs[name] = captured(calls)
            kept.append(calls)
        except Exception as refusal:  # a library raises what it likes
            wrong[name] = str(refusal)[:200]

    for rows, splits, of, call in choices(shape, arguments.call):
        plan = AttentionPlan(arguments, tensors[0], of, call, "lse")
        keep(f"{rows} {splits}", [partial(_o, plan, each) for each in tensors])
    rule = f"{rows_define(variant)} {BALANCED if ruled.balance else ruled.splits}"
    if rule not in graphs:
        plan = AttentionPlan(arguments, tensors[0], variant, ruled, "lse")
        keep(rule, [partial(_o, plan, each) for each in tensors])
    others = [list(peers_of(peers, shape, x)) for x in sets]
    for same in zip(*others, strict=True):
        keep(same[0][0], [run for _, run in same])
    taken = in_turn(graphs, ROUNDS)
    times = {name: round(statistics.median(replays) / len(sets), 3) for name, replays in taken.items()}
    return (
        asdict(shape)
        | {
            "rule": rule,
            "us": times,
        }
        | ({"wrong": wrong} if wrong else {})
    )


def _o(plan: AttentionPlan, tensors: Any) -> torch.Tensor:
    return plan.run(tensors, None).o


def build_all(variants: Sequence[Variant], seconds: float = 600.0) -> None:
    """Side by side, to be found among the account's builds by whoever launches them."""
    cores, root = len(os.sched_getaffinity(0)), project.sources()
    for made in build_variants(root, variants, account.folder("builds"), seconds, cores, lambda _: None):
        if made.error is not None:
            raise InfrastructureError(f"a kernel does not build: {made.error}")


def variants_of(shapes: Iterable[DecodeShape]) -> list[Variant]:
    """All that are launched."""
    wanted: dict[str, Variant] = {}
    for shape in shapes:
        call = Call(
            head_dim=shape.head_dim, batch=shape.batch, t=shape.t, heads=shape.heads, kv_heads=shape.kv_heads,
            s_k=shape.s_k, scale=1.0,
        )  # fmt: skip
        wanted |= {variant.name: variant for _, _, variant, _ in choices(shape, call)}
    return list(wanted.values())


def told(row: Mapping[str, Any]) -> str:
    """What of a row was chosen, what was best, and the best peer."""
    ours = {name: us for name, us in row["us"].items() if name[0] in "-0123456789"}
    best = min(ours, key=lambda name: ours[name])
    peers = {name: us for name, us in row["us"].items() if name not in ours}
    peer = min(peers, key=lambda name: peers[name]) if peers else ""
    beside = f"; {peer} {peers[peer]:.1f}" if peer else ""
    sizes = f"hd{row['head_dim']} b{row['batch']} h{row['heads']}/{row['kv_heads']} t{row['t']} s{row['s_k']}"
    rule = ours.get(row["rule"], float("nan"))
    return f"{sizes} {row['kind']}: rule {row['rule']} {rule:.1f} us, best {best} {ours[best]:.1f}{beside}"


def main() -> None:
    """Sweeps drawn shapes over rows and splits, and writes a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--head-dims", default="", help="of these alone, with commas between")
    parser.add_argument("--grouped", action="store_true", help="over several K/V heads alone")
    parser.add_argument("--one-head", action="store_true", help="over one K/V head alone")
    parser.add_argument("--ragged", action="store_true", help="of lengths that differ alone, over several K/V heads")
    parser.add_argument("--queries", type=int, nargs=2, default=(), metavar=("LEAST", "MOST"), help="of an entry")
    parser.add_argument("--peers", default="", help="of fa3 and sdpa, with commas between")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    options = parser.parse_args()
    begin = time.monotonic()
    of = {int(head_dim) for head_dim in options.head_dims.split(",") if head_dim} or set(HEAD_DIMS)
    shapes = [
        shape
        for shape in drawn(options.seed, options.count, options.queries)
        if shape.head_dim in of
        and not (options.ragged and not shape.lengths)
        and not ((options.ragged or options.grouped) and shape.kv_heads == 1)
        and not (options.one_head and shape.kv_heads > 1)
    ]
    build_all(variants_of(shapes))
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    first = box.measure()
    report: dict[str, Any] = {
        "method": METHOD, "seed": options.seed, "count": options.count, "box": first.record, "rows": [],
    }  # fmt: skip
    print(json.dumps(first.record), flush=True)
    for shape in shapes:
        if time.monotonic() - begin > options.seconds:
            print(f"{len(report['rows'])} of {len(shapes)} shapes in {options.seconds:.0f} s", flush=True)
            break
        report["rows"].append(measured(shape, [name for name in options.peers.split(",") if name]))
        print(told(report["rows"][-1]), flush=True)
        torch.cuda.empty_cache()
    report["box_after"] = box.measure().record
    print(f"{time.monotonic() - begin:.0f} s in all", flush=True)
    options.record.write_text(
        json.dumps(report, indent=None, separators=(",", ":")).replace('{"head_dim', '\n{"head_dim') + "\n"
    )


if __name__ == "__main__":
    main()
