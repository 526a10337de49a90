"""Ours and its peers at many shapes, in one interleaved run on one GPU: what `fmha bench --peer` measures.

Every contender is checked against float64 on the same inputs before it is timed. Times are those of CUDA graphs that
walk through input sets of their own, replayed in turn, so that a GPU that grows slower grows slower for all.
`python -m fmha.harness.bench.runs.beside RECORD` prints what documentation says of a record.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness.attention import attention, plan
from fmha.harness.attention.arguments import check
from fmha.harness.attention.decision import decide
from fmha.harness.attention.given import AttentionArguments
from fmha.harness.bench.peers.libraries import (
    PEERS,
    Call,
    LibraryWay,
    Ways,
    by_head,
    ends_of,
    kv_lens_of,
    packed_of,
    tokens_of,
)
from fmha.harness.bench.peers.peer_rows import ROWS, PeerInputs, PeerRow, draw, error_of
from fmha.harness.bench.timing import box
from fmha.harness.bench.timing.graph_replay import captured, in_turn
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side.launch import Call as Launched

SETS_BYTES: Final = 400 << 20
MOST_SETS: Final = 20
MOST_ERROR: Final = 8e-3  # relative, of bf16 outputs
HOST_CALLS: Final = 300
METHOD: Final = (
    "Median microseconds a call over replays of CUDA graphs that walk through input sets of 400 MB in all, 20 sets at "
    "most, the contenders' graphs in turn; each checked against float64 first. Floor: Q, K, V and O once at the copy's "
    "rate, or the products at the matrix product's, whichever is longer, both measured in the run. Ours stores O and "
    "the LSE as FlashAttention-3 does. Host: median of seven means of 300 calls without waiting, after 50."
)


def _ours(row: PeerRow, x: PeerInputs) -> Call:
    """Stores O and the LSE, since FlashAttention-3 stores those."""
    call = partial(attention, causal=row.causal, output_dtype=torch.bfloat16, statistics="lse")
    if row.by_token:
        tensors = packed_of(x) if row.lengths else tokens_of(x)
        if row.lengths:
            ends, longest = ends_of(row, x.q.device), {"max_seqlen_q": row.t, "max_seqlen_k": row.s_k}
            call = partial(call, cu_seqlens_q=ends, cu_seqlens_k=ends, **longest)
        if row.kv_lengths:
            call = partial(call, kv_lens=kv_lens_of(row, x.q.device))
        return lambda: by_head(row, call(*tensors).o)
    q, k, v = x.q.flatten(0, 1), x.k.flatten(0, 1), None if row.shared_kv else x.v.flatten(0, 1)
    return lambda: call(q, k, v).o.view_as(x.q)


def decided(row: PeerRow, device: str = "cuda:0") -> tuple[Variant, Launched]:
    """The kernel that runs ours, and its call."""

    def empty(*sizes: int) -> torch.Tensor:
        return torch.empty(*sizes, row.head_dim, dtype=torch.bfloat16, device=device)

    given: dict[str, Any] = {}
    if row.lengths:
        q, k = (empty(sum(row.lengths), heads) for heads in (row.heads, row.kv_heads))
        ends = ends_of(row, torch.device(device))
        given |= {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": row.t, "max_seqlen_k": row.s_k}
    elif row.by_token:
        q, k = empty(row.batch, row.t, row.heads), empty(row.batch, row.s_k, row.kv_heads)
    else:
        planes = row.batch * row.kv_heads
        q, k = empty(planes, row.t, row.heads // row.kv_heads), empty(planes, row.s_k)
    if row.kv_lengths:
        given["kv_lens"] = kv_lens_of(row, torch.device(device))
    arguments = check(AttentionArguments(q, k, k, **given, causal=row.causal, output_dtype=torch.bfloat16))
    return decide(arguments, None, "auto", torch.device(device))


def measure(row: PeerRow, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    """Ours and the peers' times on one row, in rounds that take turns."""
    nbytes = row.bytes + 2 * math.prod(row.queries) * row.heads * row.head_dim
    sets = [draw(row, seed) for seed in range(max(1, min(MOST_SETS, -(-SETS_BYTES // nbytes))))]
    results: dict[str, Any] = {}
    ready = {}
    contenders: dict[str, Callable[[PeerRow], Ways]] = {
        "ours": lambda _: {"": LibraryWay(_ours)},
        **{n: PEERS[n] for n in peers},
    }
    for name, ways_of in contenders.items():
        results[name], found = fastest(row, sets, ways_of)
        if found is not None:
            ready[name] = found
    for name, replays in in_turn({name: found.graph for name, found in ready.items()}, rounds).items():
        times = sorted(us / len(sets) for us in replays)
        results[name] |= {"median_us": statistics.median(times), "least_us": times[0], "most_us": times[-1]}
    results["ours"]["splits"] = decided(row, str(sets[0].q.device))[1].splits
    return asdict(row) | {"bytes": row.bytes, "flop": row.flop, "results": results}


@dataclass(frozen=True)
class Ready:
    """A graph over all sets. Its calls have copies of inputs, plans and workspaces that its replays read."""

    graph: torch.cuda.CUDAGraph
    calls: Sequence[Call]
    record: dict[str, Any]


def fastest(
    row: PeerRow, sets: Sequence[PeerInputs], ways_of: Callable[[PeerRow], Ways]
) -> tuple[dict[str, Any], Ready | None]:
    """The fastest of a contender's ways that are right, and what the record says of it.

    Where none is right, the record has the error of the last one or why it was refused. Where one is, it has those of
    the ways that are not.
    """
    record: dict[str, Any] = {}
    right: dict[str, Ready] = {}
    others: dict[str, Any] = {}
    try:
        ways = ways_of(row)
    except Exception as refusal:  # a library raises what it likes
        return {"refused": said(refusal)}, None
    for name, way in ways.items():
        try:
            calls = [way.make(row, x) for x in sets]
            wrong = error_of(row, sets[0], calls[0]())
            record = {"relative_error": wrong} | ({"way": name} if name else {})
            record |= {"columns": way.columns} if way.columns else {}
            if wrong <= MOST_ERROR:
                right[name] = Ready(captured(calls), calls, record)
                continue
        except Exception as refusal:
            record = {"refused": said(refusal)}
        others[name] = record
    if not right:
        return record, None
    took = in_turn({name: ready.graph for name, ready in right.items()}, 3)
    best = right[min(took, key=lambda name: min(took[name]))]
    return best.record | ({"not_timed": others} if others else {}), best


def said(refusal: Exception) -> str:
    """A refusal in one line."""
    return (str(refusal).splitlines() or [""])[0] or type(refusal).__name__


def host_times(peers: Sequence[str]) -> list[dict[str, Any]]:
    """What a call costs the host, and the memory that it takes beside its outputs."""
    found = []
    for row in (
        PeerRow("decode", 128, 1, 128, 1, 1, 512),
        PeerRow("decode", 128, 16, 128, 1, 1, 8192),
        PeerRow("causal", 128, 1, 16, 16, 1024, 1024, True),
    ):
        x = draw(row, 0)
        q, k, v = x.q.flatten(0, 1), x.k.flatten(0, 1), x.v.flatten(0, 1)
        options: dict[str, Any] = {"causal": row.causal, "output_dtype": torch.bfloat16}
        planned = plan(q, k, v, **options)
        out = planned(q, k, v)
        calls: dict[str, Call] = {
            "ours": partial(attention, q, k, v, **options),
            "ours, without statistics": partial(attention, q, k, v, **options, statistics="none"),  # as sdpa
            "ours, given outputs": partial(attention, q, k, v, **options, out=out),
            "ours, a plan and given outputs": partial(planned, q, k, v, out=out),
            "ours, compiled": partial(torch.compile(partial(attention, **options)), q, k, v),
        }
        for name in peers:
            try:
                calls[name] = next(iter(PEERS[name](row).values())).make(row, x)
            except Exception as refusal:
                print(f"  host {row.name} b{row.batch} {name}: {said(refusal)}", flush=True)
        measured: dict[str, Any] = {}
        for name, call in calls.items():
            try:
                measured[name] = host_time(call)
            except Exception as refusal:  # of a compiler, too
                measured[name] = {"refused": said(refusal)}
            print(f"  host {row.name} b{row.batch} {name}: {measured[name]}", flush=True)
        found.append(asdict(row) | {"results": measured})
    return found


def host_time(call: Call) -> dict[str, float]:
    """Of a call that is made again and again, and the bytes that it takes from torch."""
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    means = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        means.append((time.perf_counter() - begin) / HOST_CALLS * 1e6)
        torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocated_bytes.all.allocated"]
    call()
    allocated = torch.cuda.memory_stats()["allocated_bytes.all.allocated"] - before
    return {"host_us": round(statistics.median(means), 2), "allocated_bytes": allocated}


def benchmark(peers: Sequence[str], out: Path, rounds: int = 9, rows: Sequence[PeerRow] = ROWS) -> None:
    """Measures all `rows`, prints a line of each and keeps `out` up to date."""
    from fmha.harness.bench.peers.torch_calls import copy_bandwidth, environment, matmul_rate  # needs triton

    report: dict[str, Any] = {"environment": environment(), "method": METHOD, "peers": list(peers)}
    report["roofline"] = {"copy_tb_s": copy_bandwidth(), "matmul_tflop_s": matmul_rate()}
    report["box"] = box.measure().record
    print(report["environment"], report["roofline"], flush=True)
    report["rows"], report["host"] = [], host_times(peers)
    for row in rows:
        report["rows"].append(measure(row, peers, rounds))
        torch.cuda.empty_cache()
        print(_told(report["rows"][-1], report), flush=True)
        out.write_text(json.dumps(report, indent=1) + "\n")


def _told(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """What a run prints of a row, refusals and wrong results with it."""
    peers = report["peers"]
    lines = _latent_lines(row, report, peers) if _of_latent(row) else [_line(row, report, peers)]
    for name, found in row["results"].items():
        if "median_us" not in found:
            lines.append(f"  {name}: {found.get('refused') or 'wrong, relative error ' + str(found['relative_error'])}")
    return "\n".join(lines)


def floor_us(row: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    """Microseconds that no kernel is below at the rates that the run measured."""
    ceilings, sizes = report["roofline"], row_of(row)
    return float(max(sizes.least_bytes / ceilings["copy_tb_s"], sizes.flop / ceilings["matmul_tflop_s"])) / 1e6


def row_of(row: Mapping[str, Any]) -> PeerRow:
    """A record's; records of before do not say all."""
    return PeerRow(**{field.name: row[field.name] for field in fields(PeerRow) if field.name in row})


def _line(row: Mapping[str, Any], report: Mapping[str, Any], names: Sequence[str]) -> str:
    """A row of the table: sizes, floor, times, and the best peer's time over ours."""
    times, best = _times(row)
    peers = " | ".join(f"{times[name]:.1f}" if name in times else "none" for name in names)
    cells = (
        row["name"],
        _sizes(row),
        row["head_dim"],
        f"{floor_us(row, report):.1f}",
        f"{times.get('ours', 0.0):.1f}",
        peers,
    )
    return "| " + " | ".join(map(str, cells)) + f" | {best / times['ours']:.2f} |" if "ours" in times else str(row)


def _sizes(row: Mapping[str, Any]) -> str:
    if row.get("lengths"):
        return f"b{row['batch']} h{row['heads']}/{row['kv_heads']}, {sum(row['lengths'])} tokens, longest {row['t']}"
    if row.get("kv_lengths"):
        least, mean = min(row["kv_lengths"]), sum(row["kv_lengths"]) // row["batch"]
        return f"b{row['batch']} h{row['heads']}/{row['kv_heads']} T{row['t']} s{least} to {row['s_k']}, mean {mean}"
    if _serves(row):
        return f"b{row['batch']} h{row['heads']}/{row['kv_heads']} T{row['t']} s{row['s_k']}"
    if _by_token(row):
        return f"b{row['batch']} h{row['heads']}/{row['kv_heads']} {row['t']}"
    return f"b{row['batch']} h{row['heads']} T{row['t']} s{row['s_k']}"


def _latent_lines(row: Mapping[str, Any], report: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """A line for each contender of a row of K = V: what it multiplies and reads is its own, and no ratio is made."""
    sizes, lines = row_of(row), list[str]()
    for name in ("ours", *names):
        found = row["results"][name]
        if "median_us" not in found:
            continue
        columns, us = found.get("columns", sizes.head_dim), found["median_us"]
        tflop_s, tb_s = sizes.flop_of(columns) / us / 1e6, row["bytes"] * columns / sizes.head_dim / us / 1e6
        cells = (_sizes(row), name, columns, sizes.head_dim, f"{us:.1f}", f"{tflop_s:.0f}", f"{tb_s:.2f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _of_latent(row: Mapping[str, Any]) -> bool:
    """K = V; records of before there were such rows do not say."""
    return bool(row.get("shared_kv"))


def _by_token(row: Mapping[str, Any]) -> bool:
    """As callers have them; records of before there were such rows do not say."""
    return bool(row.get("by_token"))


def _serves(row: Mapping[str, Any]) -> bool:
    """Decode as models that are served make it."""
    return row_of(row).serves


def _times(row: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """Median microseconds by contender, and the best peer's; 0 where no peer was timed."""
    times = {name: found["median_us"] for name, found in row["results"].items() if "median_us" in found}
    return times, min((us for name, us in times.items() if name != "ours"), default=0.0)


def summary(report: Mapping[str, Any]) -> str:
    """The run in sentences, as Markdown: where it was, its rates, and how far the best peer is from ours."""
    on, rates = report["environment"], report["roofline"]
    cudnn = f"{on['cudnn'] // 10000}.{on['cudnn'] // 100 % 100}"
    copy, products = f"{rates['copy_tb_s']:.2f} TB/s", f"{rates['matmul_tflop_s']:.0f} TFLOP/s"
    decode = _against_best(report, lambda row: row["kv_heads"] == 1)
    prefill = _against_best(report, lambda row: row["kv_heads"] > 1 and not _by_token(row))
    given = _against_best(report, lambda row: _by_token(row) and not _serves(row))
    served = _against_best(report, _serves)
    more = f", {given[0]:.2f} to {given[-1]:.2f} by token and packed" if given else ""
    more += f", {served[0]:.2f} to {served[-1]:.2f} in decode as it is served" if served else ""
    return (
        f"One {on['gpu']}, {on['date'][:10]}, torch {on['torch']}, cuDNN {cudnn}; its copy runs at {copy}, its matrix "
        f"product at {products}.\nBest peer / ours is {decode[0]:.2f} to {decode[-1]:.2f} in decode, {prefill[0]:.2f} "
        f"to {prefill[-1]:.2f} in prefill{more}."
    )


def _against_best(report: Mapping[str, Any], wanted: Callable[[Mapping[str, Any]], bool]) -> list[float]:
    """The best peer's time over ours at the rows that are wanted, ascending."""
    found = []
    for row in report["rows"]:
        times, best = _times(row)
        if wanted(row) and "ours" in times and best and not _of_latent(row):
            found.append(best / times["ours"])
    return sorted(found)


def table(report: Mapping[str, Any]) -> str:
    """Decode and prefill as Markdown, with the peers that were timed at one of them."""
    return _table_of([row for row in report["rows"] if not _of_latent(row) and not _by_token(row)], report)


def given_table(report: Mapping[str, Any]) -> str:
    """Prefill by token and packed, likewise."""
    return _table_of([row for row in report["rows"] if _by_token(row) and not _serves(row)], report)


def served_table(report: Mapping[str, Any]) -> str:
    """Decode as models that are served make it, likewise."""
    return _table_of([row for row in report["rows"] if _serves(row)], report)


def _table_of(rows: Sequence[Mapping[str, Any]], report: Mapping[str, Any]) -> str:
    names = [name for name in report["peers"] if any(name in _times(row)[0] for row in rows)]
    head = [
        f"| | sizes | head_dim | floor | ours | {' | '.join(names)} | best peer / ours |",
        "|---" * (6 + len(names)) + "|",
    ]
    return "\n".join([*head, *(_line(row, report, names) for row in rows)])


def latent_table(report: Mapping[str, Any]) -> str:
    """Decode with K = V as Markdown: of each contender its own columns, products and bytes."""
    lines = [line for row in report["rows"] if _of_latent(row) for line in _latent_lines(row, report, report["peers"])]
    return "\n".join(["| sizes | | columns of K | of V | us | TFLOP/s | TB/s |", "|---" * 7 + "|", *lines])


def ways_table(report: Mapping[str, Any]) -> str:
    """How often each way of a peer with several was the fastest, as Markdown."""
    chosen = Counter(
        (name, found["way"])
        for row in report["rows"]
        for name, found in row["results"].items()
        if "way" in found and "median_us" in found
    )
    lines = [f"| {name} | {way} | {count} |" for (name, way), count in sorted(chosen.items())]
    return "\n".join(["| peer | way | rows |", "|---" * 3 + "|", *lines])


def host_table(report: Mapping[str, Any]) -> str:
    """The host's times as Markdown."""
    names = list(dict.fromkeys(name for row in report["host"] for name in row["results"]))
    lines = ["| host, us | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for row in report["host"]:
        found = [row["results"].get(name, {}).get("host_us") for name in names]
        lines.append(
            f"| {row['name']} {_sizes(row)} | "
            + " | ".join("none" if us is None else f"{us:.1f}" for us in found)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    record = json.loads(Path(sys.argv[1]).read_text())
    made = (summary, table, served_table, given_table, host_table, latent_table, ways_table)
    parts = [each(record) for each in made]
    print("\n\n".join(parts))
