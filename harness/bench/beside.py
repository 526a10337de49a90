"""Ours and its peers at many shapes, in one interleaved run on one GPU: what `fmha bench --peer` measures.

Every contender is checked against float64 on the same inputs before it is timed. Times are those of CUDA graphs that
walk through input sets of their own, replayed in turn, so that a GPU that grows slower grows slower for all.
`python -m fmha.harness.bench.beside RECORD` prints what documentation says of a record.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fmha.harness.attention import attention, plan
from fmha.harness.bench.timing import captured, in_turn

SETS_BYTES: Final = 400 << 20
MOST_SETS: Final = 20
MOST_ERROR: Final = 8e-3  # relative, of bf16 outputs
HOST_CALLS: Final = 300
METHOD: Final = (
    "Median microseconds a call over replays of CUDA graphs that walk through input sets of 400 MB in all, 20 sets at "
    "most, the contenders' graphs in turn; each checked against float64 first. Floor: K and V once at the copy's rate, "
    "or the products at the matrix product's, whichever is longer, both measured in the run. Host: median of seven "
    "means of 300 calls without waiting, after 50."
)
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A shape: `heads` query heads in all over `kv_heads`, which each have `heads` / `kv_heads`."""

    name: str
    head_dim: int
    batch: int
    heads: int
    kv_heads: int
    t: int
    s_k: int
    causal: bool = False

    @property
    def bytes(self) -> int:
        return 4 * self.batch * self.kv_heads * self.s_k * self.head_dim

    @property
    def flop(self) -> float:
        seen = self.s_k - (self.t - 1) / 2 if self.causal else self.s_k
        return 4.0 * self.batch * self.heads * self.t * seen * self.head_dim


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
    rows = [Row(name, d, b, h, 1, t, s) for name, b, h, t, s in decode for d in (64, 128, 256)]
    return rows + [Row(name, d, b, h, h, t, s, causal) for name, b, h, t, s, causal in prefill for d in (64, 128, 256)]


ROWS: Final = tuple(_rows())


@dataclass(frozen=True)
class Inputs:
    """q [batch, kv_heads, t, heads / kv_heads, head_dim]; k and v [batch, kv_heads, s_k, head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def draw(row: Row, seed: int) -> Inputs:
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)

    keys = (row.batch, row.kv_heads, row.s_k, row.head_dim)
    group = row.heads // row.kv_heads
    return Inputs(normal(row.batch, row.kv_heads, row.t, group, row.head_dim), normal(*keys), normal(*keys))


def _ours(row: Row, x: Inputs) -> Call:
    q, k, v = x.q.flatten(0, 1), x.k.flatten(0, 1), x.v.flatten(0, 1)
    call = partial(attention, causal=row.causal, output_dtype=torch.bfloat16)
    return lambda: call(q, k, v).o.view_as(x.q)


def _fa3(row: Row, x: Inputs) -> Call:
    """Its decode entry chooses splits, its other does not."""
    fa3 = importlib.import_module("fa3_fwd_interface")

    q = x.q.permute(0, 2, 1, 3, 4).flatten(2, 3).contiguous()  # [batch, t, heads, head_dim]
    k, v = (keys.transpose(1, 2).contiguous() for keys in (x.k, x.v))
    shape = (row.batch, row.t, row.kv_heads, row.heads // row.kv_heads, row.head_dim)
    if row.kv_heads == 1:
        return lambda: fa3.flash_attn_with_kvcache(q, k, v, causal=row.causal, num_splits=0).view(shape).transpose(1, 2)
    return lambda: fa3.flash_attn_func(q, k, v, causal=row.causal).view(shape).transpose(1, 2)


def _sdpa(backend: str | None, row: Row, x: Inputs) -> Call:
    """Heads of one K/V head are rows, which none of its masks knows."""
    if row.causal and (row.kv_heads == 1 or row.t != row.s_k):
        raise NotImplementedError("aligns the first query with the first key")
    q = x.q.flatten(2, 3)
    run = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=row.causal)
    if backend is None:
        return lambda: run(q, x.k, x.v).view_as(x.q)
    chosen = getattr(SDPBackend, backend)

    def call() -> torch.Tensor:
        with sdpa_kernel(chosen):
            return run(q, x.k, x.v).view_as(x.q)

    return call


PEERS: Final[Mapping[str, Callable[[Row, Inputs], Call]]] = {
    "fa3": _fa3,
    "cudnn": partial(_sdpa, "CUDNN_ATTENTION"),
    "flash2": partial(_sdpa, "FLASH_ATTENTION"),
    "sdpa": partial(_sdpa, None),
}


def error_of(row: Row, x: Inputs, got: torch.Tensor) -> float:
    """Relative L2 error of the last K/V head of the last batch entry against float64; NaN anywhere is NaN."""
    if bool(got.isnan().any()):
        return float("nan")
    q, k, v = x.q[-1, -1].double(), x.k[-1, -1].double(), x.v[-1, -1].double()
    wanted = torch.empty_like(q)
    for begin in range(0, row.t, 2048):
        s = torch.einsum("tgd,sd->tgs", q[begin : begin + 2048], k) * row.head_dim**-0.5
        if row.causal:
            last = torch.arange(begin, begin + s.shape[0], device="cuda") + row.s_k - row.t
            s.masked_fill_(torch.arange(row.s_k, device="cuda")[None, None] > last[:, None, None], -torch.inf)
        wanted[begin : begin + 2048] = torch.softmax(s, -1) @ v
    return float((got[-1, -1].double() - wanted).norm() / wanted.norm())


def measure(row: Row, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    nbytes = row.bytes + 2 * row.batch * row.heads * row.t * row.head_dim
    sets = [draw(row, seed) for seed in range(max(1, min(MOST_SETS, -(-SETS_BYTES // nbytes))))]
    results: dict[str, Any] = {}
    graphs = {}
    makers = {"ours": _ours, **{name: PEERS[name] for name in peers}}
    for name, make in makers.items():
        try:
            calls = [make(row, x) for x in sets]
            wrong = error_of(row, sets[0], calls[0]())
        except (RuntimeError, NotImplementedError) as refusal:
            results[name] = {"refused": str(refusal).splitlines()[0]}
            continue
        results[name] = {"relative_error": wrong}
        if wrong <= MOST_ERROR:
            graphs[name] = captured(calls)
    for name, replays in in_turn(graphs, rounds).items():
        times = sorted(us / len(sets) for us in replays)
        results[name] |= {"median_us": statistics.median(times), "least_us": times[0], "most_us": times[-1]}
    return asdict(row) | {"bytes": row.bytes, "flop": row.flop, "results": results}


def host_times(peers: Sequence[str]) -> list[dict[str, Any]]:
    """What a call costs the host, and the memory that it takes beside its outputs."""
    found = []
    for row in (
        Row("decode", 128, 1, 128, 1, 1, 512),
        Row("decode", 128, 16, 128, 1, 1, 8192),
        Row("causal", 128, 1, 16, 16, 1024, 1024, True),
    ):
        x = draw(row, 0)
        q, k, v = x.q.flatten(0, 1), x.k.flatten(0, 1), x.v.flatten(0, 1)
        options: dict[str, Any] = {"causal": row.causal, "output_dtype": torch.bfloat16}
        planned = plan(q, k, v, **options)
        out = planned(q, k, v)
        calls: dict[str, Call] = {
            "ours": partial(attention, q, k, v, **options),
            "ours, given outputs": partial(attention, q, k, v, **options, out=out),
            "ours, a plan and given outputs": partial(planned, q, k, v, out=out),
            "ours, compiled": partial(torch.compile(partial(attention, **options)), q, k, v),
        }
        for name in peers:
            try:
                calls[name] = PEERS[name](row, x)
            except NotImplementedError:
                continue
        measured: dict[str, Any] = {}
        for name, call in calls.items():
            try:
                measured[name] = _host_time(call)
            except Exception as refusal:  # of a compiler, too
                measured[name] = {"refused": (str(refusal).splitlines() or [type(refusal).__name__])[0]}
            print(f"  host {row.name} b{row.batch} {name}: {measured[name]}", flush=True)
        found.append(asdict(row) | {"results": measured})
    return found


def _host_time(call: Call) -> dict[str, float]:
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


def benchmark(peers: Sequence[str], out: Path, rounds: int = 9, rows: Sequence[Row] = ROWS) -> None:
    """Measures all `rows`, prints a line of each and keeps `out` up to date."""
    from fmha.harness.bench.peers import copy_bandwidth, environment, matmul_rate  # needs triton

    report: dict[str, Any] = {"environment": environment(), "method": METHOD, "peers": list(peers)}
    report["roofline"] = {"copy_tb_s": copy_bandwidth(), "matmul_tflop_s": matmul_rate()}
    print(report["environment"], report["roofline"], flush=True)
    report["rows"], report["host"] = [], host_times(peers)
    for row in rows:
        report["rows"].append(measure(row, peers, rounds))
        torch.cuda.empty_cache()
        print(_line(report["rows"][-1], report), flush=True)
        out.write_text(json.dumps(report, indent=1) + "\n")


def floor_us(row: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    ceilings = report["roofline"]
    return max(float(row["bytes"] / ceilings["copy_tb_s"]), float(row["flop"] / ceilings["matmul_tflop_s"])) / 1e6


def _line(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """A row of the table: sizes, floor, times, and the best peer's time over ours."""
    times, best = _times(row)
    sizes = f"b{row['batch']} h{row['heads']} T{row['t']} s{row['s_k']}"
    peers = " | ".join(f"{times[name]:.1f}" if name in times else "none" for name in report["peers"])
    cells = (
        row["name"],
        sizes,
        row["head_dim"],
        f"{floor_us(row, report):.1f}",
        f"{times.get('ours', 0.0):.1f}",
        peers,
    )
    return "| " + " | ".join(map(str, cells)) + f" | {best / times['ours']:.2f} |" if "ours" in times else str(row)


def _times(row: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """Median microseconds by contender, and the best peer's; 0 where no peer was timed."""
    times = {name: found["median_us"] for name, found in row["results"].items() if "median_us" in found}
    return times, min((us for name, us in times.items() if name != "ours"), default=0.0)


def summary(report: Mapping[str, Any]) -> str:
    """The run in sentences, as Markdown: where it was, its rates, and how far the best peer is from ours."""
    on, rates = report["environment"], report["roofline"]
    cudnn = f"{on['cudnn'] // 10000}.{on['cudnn'] // 100 % 100}"
    copy, products = f"{rates['copy_tb_s']:.2f} TB/s", f"{rates['matmul_tflop_s']:.0f} TFLOP/s"
    decode, prefill = (_against_best(report, one_kv_head) for one_kv_head in (True, False))
    return (
        f"One {on['gpu']}, {on['date'][:10]}, torch {on['torch']}, cuDNN {cudnn}; its copy runs at {copy}, its matrix "
        f"product at {products}.\nBest peer / ours is {decode[0]:.2f} to {decode[-1]:.2f} in decode, {prefill[0]:.2f} "
        f"to {prefill[-1]:.2f} in prefill."
    )


def _against_best(report: Mapping[str, Any], one_kv_head: bool) -> list[float]:
    """The best peer's time over ours, row by row, ascending: of decode, whose heads share K and V, or of prefill."""
    found = []
    for row in report["rows"]:
        times, best = _times(row)
        if (row["kv_heads"] == 1) == one_kv_head and "ours" in times and best:
            found.append(best / times["ours"])
    return sorted(found)


def table(report: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    names = " | ".join(report["peers"])
    head = [
        f"| | sizes | head_dim | floor | ours | {names} | best peer / ours |",
        "|---" * (6 + len(report["peers"])) + "|",
    ]
    return "\n".join([*head, *(_line(row, report) for row in report["rows"])])


def host_table(report: Mapping[str, Any]) -> str:
    """The host's times as Markdown."""
    names = list(dict.fromkeys(name for row in report["host"] for name in row["results"]))
    lines = ["| host, us | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for row in report["host"]:
        found = [row["results"].get(name, {}).get("host_us") for name in names]
        sizes = f"{row['name']} b{row['batch']} h{row['heads']} T{row['t']} s{row['s_k']}"
        lines.append(f"| {sizes} | " + " | ".join("none" if us is None else f"{us:.1f}" for us in found) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    record = json.loads(Path(sys.argv[1]).read_text())
    print(f"{summary(record)}\n\n{table(record)}\n\n{host_table(record)}")
