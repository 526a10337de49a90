"""Every choice of ours at given shapes, and the peers: what a rule lost at the shapes where it lost.

    python -m fmha.harness.bench.runs.chosen RECORD --of results/drawn-4809-h200.json --below 1 --peers fa3
    python -m fmha.harness.bench.runs.chosen RECORD --seed 4811 --count 60

Needs a Hopper GPU and torch. The shapes are those of records of fmha.harness.bench.runs.drawn whose best peer over ours
is below a number, the bench's rows of decode with `--bench`, and `count` of each class drawn by a seed as there. Decode
is timed in every choice of rows and splits, and `python -m tools.refit` reads these rows of the record; prefill, by
token and packed in every shape of a row tile, under `rows` of the record.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness.attention.arguments import CheckedArguments, check
from fmha.harness.attention.decision import decide
from fmha.harness.attention.entry import listed
from fmha.harness.attention.given import AttentionArguments, Tensors
from fmha.harness.attention.plans import AttentionPlan
from fmha.harness.bench.peers.libraries import PEERS, by_head, ends_of, packed_of, tokens_of
from fmha.harness.bench.peers.peer_rows import ROWS, PeerInputs, PeerRow, draw, error_of
from fmha.harness.bench.runs import beside, drawn, swept
from fmha.harness.bench.timing import box
from fmha.harness.bench.timing.graph_replay import captured, in_turn
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.price import BALANCED
from fmha.harness.kernel_side.variants import VARIANTS, kind_of, knows_heads, knows_lengths, knows_pages, rows_define

DECODE: Final = ("grouped", "ragged")
METHOD: Final = f"{swept.METHOD} Of `prefill` the choices are the rows of a row tile, 0 the head_dim's own."


def decodes(row: PeerRow) -> bool:
    """Whether its choices are splits."""
    return row.decodes and not row.shared_kv


def decode_of(row: PeerRow) -> swept.DecodeShape:
    """As swept times it."""
    kind = "given" if row.kv_lengths else "same"
    return swept.DecodeShape(
        row.head_dim, row.batch, row.heads, row.kv_heads, row.t, row.s_k, kind, tuple(row.kv_lengths)
    )


def shapes_of(variant: Variant) -> list[Variant]:
    """Kernels that know what `variant` knows, of every shape of a row tile."""

    def knows(one: Variant) -> tuple[object, ...]:
        return one.arch, one.head_dim, kind_of(one), knows_heads(one), knows_pages(one), knows_lengths(one)

    return [one for one in VARIANTS if one.arch == ARCH and knows(one) == knows(variant)]


def arguments_of(row: PeerRow, x: PeerInputs) -> tuple[CheckedArguments, Tensors]:
    """The call of a row of prefill, and its tensors."""
    given: dict[str, Any] = {}
    if row.by_token:
        q, k, v = packed_of(x) if row.lengths else tokens_of(x)
        if row.lengths:
            ends = ends_of(row, x.q.device)
            given = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": row.t, "max_seqlen_k": row.s_k}
    else:
        q, k, v = (tensor.flatten(0, 1) for tensor in (x.q, x.k, x.v))
    arguments = check(AttentionArguments(q, k, v, **given, causal=row.causal, output_dtype=torch.bfloat16))
    tensors = {name: tensor for name, tensor in given.items() if isinstance(tensor, torch.Tensor)}
    return arguments, listed(q, k, v, **tensors)


def measured(row: PeerRow, peers: list[str]) -> dict[str, Any]:
    """The times of each shape of a row tile at a row of prefill, and the peers'."""
    nbytes = row.bytes + 2 * row.queries[0] * row.queries[1] * row.heads * row.head_dim
    sets = [draw(row, seed) for seed in range(max(1, min(swept.MOST_SETS, -(-swept.SETS_BYTES // nbytes))))]
    given = [arguments_of(row, x) for x in sets]
    arguments = given[0][0]
    where = sets[0].q.device
    variant, call = decide(arguments, None, "auto", where)
    plain, whole = decide(arguments, 1, "auto", where)
    ours = {f"{rows_define(one)} 1": (one, whole) for one in shapes_of(plain)}
    rule = f"{rows_define(variant)} {BALANCED if call.balance else call.splits}"
    ours[rule] = variant, call
    contenders: dict[str, list[Callable[[], torch.Tensor]]] = {}
    for name, (one, of) in ours.items():
        plan = AttentionPlan(arguments, given[0][1], one, of, "lse")
        contenders[name] = [partial(_o, plan, tensors) for _, tensors in given]
    contenders |= {name: calls for peer in peers for name, calls in _ways(peer, row, sets)}
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    wrong: dict[str, Any] = {}
    for name, calls in contenders.items():
        try:
            got = calls[0]()
            error = error_of(row, sets[0], _by_head(row, got) if name[0].isdigit() else got)
            if error <= swept.MOST_ERROR:
                graphs[name] = captured(calls)
            else:
                wrong[name] = error
        except Exception as refusal:  # a library raises what it likes
            wrong[name] = beside.said(refusal)
    times = {name: round(statistics.median(us) / len(sets), 3) for name, us in in_turn(graphs, swept.ROUNDS).items()}
    told = asdict(row) | {"rule": rule, "us": times}
    return told | ({"wrong": wrong} if wrong else {})


def _ways(peer: str, row: PeerRow, sets: list[PeerInputs]) -> Iterator[tuple[str, list[Callable[[], torch.Tensor]]]]:
    """Every way of a peer to compute it; none where it refuses to."""
    try:
        ways = PEERS[peer](row)
    except Exception:  # a library raises what it likes
        return
    for name, way in ways.items():
        yield f"{peer} {name}", [way.make(row, x) for x in sets]


def _o(plan: AttentionPlan, tensors: Any) -> torch.Tensor:
    return plan.run(tensors, None).o


def _by_head(row: PeerRow, o: torch.Tensor) -> torch.Tensor:
    if row.by_token:
        return by_head(row, o)
    return o.view(row.batch, row.kv_heads, row.t, row.heads // row.kv_heads, row.head_dim)


def chosen(options: argparse.Namespace) -> Iterator[PeerRow]:
    """The rows that are asked for, each once."""
    seen: set[PeerRow] = set()
    for record in options.of:
        for row in json.loads(record.read_text(encoding="utf-8"))["rows"]:
            quotient = drawn.ratio(row)
            if quotient is not None and quotient < options.below:
                found = beside.row_of(row)
                seen.add(replace(found, lengths=tuple(found.lengths), kv_lengths=tuple(found.kv_lengths)))
    if options.bench:
        seen |= {row for row in ROWS if decodes(row)}
    of = [name.strip() for name in options.classes.split(",")]
    yield from sorted(seen, key=lambda row: (row.name, row.head_dim, row.batch, row.s_k))
    if options.seed is not None:
        yield from (row for row in drawn.drawn(options.seed, options.count) if row.name in of)


def main() -> None:
    """Times the shapes, and writes a record after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--of", type=Path, nargs="*", default=[], help="records of drawn")
    parser.add_argument("--below", type=float, default=1.0, help="best peer over ours")
    parser.add_argument("--bench", action="store_true", help="the bench's rows of decode")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=60, help="shapes of each class")
    parser.add_argument("--classes", default=",".join(drawn.CLASSES), help="of these alone")
    parser.add_argument("--peers", default="", help="with commas between")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    options = parser.parse_args()
    begin = time.monotonic()
    rows = list(chosen(options))
    peers = [name for name in options.peers.split(",") if name]
    decode = [row for row in rows if decodes(row)]
    ahead = [one for row in rows if not decodes(row) for one in shapes_of(drawn.variant_of(row))]
    wanted = [*swept.variants_of(map(decode_of, decode)), *map(drawn.variant_of, decode), *ahead]
    swept.build_all(list({variant.name: variant for variant in wanted}.values()))
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    report: dict[str, Any] = {"method": METHOD, "box": box.measure().record, "seed": options.seed, "rows": []}
    report["prefill"] = []
    for row in rows:
        if time.monotonic() - begin > options.seconds:
            print(f"ended after {options.seconds:.0f} s", flush=True)
            break
        of_class = report["rows" if decodes(row) else "prefill"]
        of_class.append(swept.measured(decode_of(row), peers) if decodes(row) else measured(row, peers))
        print(swept.told({"kind": row.name} | of_class[-1]), flush=True)
        torch.cuda.empty_cache()
    report["box_after"] = box.measure().record
    print(f"{len(report['rows'])} and {len(report['prefill'])} of {len(rows)} in {time.monotonic() - begin:.0f} s")
    text = json.dumps(report, separators=(",", ":")).replace('{"head_dim', '\n{"head_dim').replace('{"name', '\n{"name')
    options.record.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
