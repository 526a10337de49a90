"""The benchmark: ours and what a user would pick instead, in one run on one GPU.

`python -m fmha.harness.bench.runs.benchmark FOLDER OUT.json [--no-flex]`; the kernels of
fmha.harness.bench.shapes.build_shapes lie in FOLDER.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fmha.harness.bench.peers import torch_calls as peers
from fmha.harness.bench.runs.our_kernels import TorchCall, error, inputs
from fmha.harness.bench.shapes.cases import decode, prefill
from fmha.harness.bench.shapes.launch_problem import BuiltKernel
from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.bench.shapes.tried_plans import TRIED, LaunchPlan
from fmha.harness.bench.shapes.tried_variants import CANDIDATES
from fmha.harness.bench.timing.graph_replay import cold_call, cold_graph, graph_replay
from fmha.harness.worker.devices.cuda import CudaDevice

SETS_BYTES = 400 << 20  # of inputs that a graph walks through: several times the L2

METHOD = (
    "rotated: microseconds a call in a CUDA graph that walks through input sets of their own, 400 MB in all (20 sets "
    "at most), so that L2 (60 MB) holds none of a call's K and V at s8192; at s512 the sets stay in L2. cold: one "
    "call, as a graph, between two events after 256 MB were written. direct: as cold, launched without a graph, what "
    "triton.testing.do_bench measures. Median, 10th and 90th percentile. Every launch of a call counts, combine too."
)


def timed(calls: list[Callable[[], Any]], long: bool) -> dict[str, Any]:
    """Times of a graph over all inputs in turn and, unless it is long, of cold and direct calls."""
    if long:
        row: dict[str, Any] = {"rotated": graph_replay(calls * 3, 7)}
    else:
        row = {"rotated": graph_replay(calls), "cold": cold_graph(calls[0]), "direct": cold_call(calls[0])}
    return row | {"sm_clock_after": peers.smi("clocks.sm")[0]}


def peer_calls(p: Problem, sets: list[dict[str, torch.Tensor]], attention: peers.Attention) -> list[Callable[[], Any]]:
    """The same problem for a library: heads as rows in decode, [4, 16, 4096, head_dim] in prefill."""
    calls: list[Callable[[], Any]] = []
    for x in sets:
        q, k = x["q"], x["k"]
        v = x.get("v", k)
        if p.heads > 1:
            args = (q.view(p.batch, 1, p.t * p.heads, p.head_dim), k.unsqueeze(1), v.unsqueeze(1))
        else:
            shape = (p.batch // 16, 16, -1, p.head_dim)
            args = (q.reshape(shape), k.reshape(shape), v.reshape(shape))
        calls.append(functools.partial(attention, *args))
    return calls


def contenders(p: Problem, with_flex: bool) -> dict[str, peers.Attention]:
    """The peers that take this problem, by name."""
    found: dict[str, peers.Attention] = {}
    if p.head_dim <= 256:
        found |= {name: peers.sdpa(name) for name in peers.BACKENDS}
    if with_flex and p.head_dim <= 256 and p.heads > 1:
        found["flex_attention"] = peers.flex()
    return found


def best_triton(p: Problem, sets: list[dict[str, torch.Tensor]]) -> tuple[str, peers.Attention] | None:
    """The fastest of Triton's configurations, with its name; None where none runs."""
    tried = []
    for name, _, attention in peers.triton_choices(p.head_dim, p.batch, p.s_k):
        try:
            calls = peer_calls(p, sets, attention)
            tried.append((graph_replay(calls, 5)["median_us"], name, attention))
        except Exception as refusal:  # a configuration that does not fit the GPU is no contender
            print(f"  triton {name}: {type(refusal).__name__}", flush=True)
    return min(tried, key=lambda t: t[0])[1:] if tried else None


def ours(
    device: CudaDevice,
    p: Problem,
    plans: list[LaunchPlan],
    folder: Path,
    sets: list[dict[str, torch.Tensor]],
    long: bool,
) -> dict[str, Any]:
    """The fastest plan, timed; every plan is checked against float64 first."""
    tried = []
    for plan in plans:
        shaped = replace(p, splits=plan.splits)
        kernel = BuiltKernel(device.load(folder / f"{plan.shape}.cubin"), CANDIDATES[plan.shape])
        calls = [TorchCall(device, kernel, shaped, x, plan.overlaps) for x in sets]
        wrong = error(calls[0])
        if not wrong < 4e-3:
            raise SystemExit(f"{plan.describe()}: relative error {wrong:.1e} of {shaped}")
        quick = graph_replay(list(calls), 5 if long else 10)["median_us"]
        print(f"  {plan.describe()}: {quick} us", flush=True)
        tried.append((quick, wrong, plan, calls))
    _, wrong, plan, calls = min(tried, key=lambda t: t[0])
    every = {t[2].describe(): t[0] for t in tried}
    return {"plan": plan.describe(), "relative_error": wrong, "tried_us": every} | timed(list(calls), long)


def measure(device: CudaDevice, p: Problem, kind: str, folder: Path, with_flex: bool) -> dict[str, Any]:
    """Ours and every peer's times on one problem, and the errors of those that are wrong."""
    first = inputs(p, 0)
    nbytes = sum(t.nbytes for t in first.values())
    count = 1 if kind == "prefill" else max(1, min(20, -(-SETS_BYTES // nbytes)))
    sets = [first] + [inputs(p, i) for i in range(1, count)]
    flop = 4 * p.batch * p.t * p.heads * p.s_k * p.head_dim
    row: dict[str, Any] = {"kind": kind, "head_dim": p.head_dim, "shared_kv": p.shared_kv, "sets": count}
    row |= {"bytes": nbytes, "flop": flop, "results": {}}
    results = row["results"]
    results["ours"] = ours(device, p, TRIED[kind, p.head_dim], folder, sets, kind == "prefill")
    if not p.shared_kv:
        todo = contenders(p, with_flex)
        if kind != "prefill" and (chosen := best_triton(p, sets)):
            name, todo["triton_split"] = chosen
            row["triton_configuration"] = name
        for name, attention in todo.items():
            try:
                results[name] = timed(peer_calls(p, sets, attention), kind == "prefill")
            except RuntimeError as refusal:
                results[name] = {"refused": str(refusal).splitlines()[0]}
    for name, result in results.items():
        if "rotated" in result:
            us = [result.get(k, {}).get("median_us", float("nan")) for k in ("rotated", "cold", "direct")]
            print(
                f"{kind:8}hd{p.head_dim:<4}{'K=V' if p.shared_kv else '':4}{name:18} "
                f"rotated {us[0]:9.2f} cold {us[1]:8.2f} "
                f"direct {us[2]:8.2f} us {nbytes / us[0] / 1e6:5.2f} TB/s {flop / us[0] / 1e6:5.0f} TFLOP/s",
                flush=True,
            )
    return row


def benchmark(folder: Path, out: Path, with_flex: bool = True) -> None:
    """Measures everything with the kernels in `folder`, prints a line a result and keeps `out` up to date."""
    torch.zeros(1, device="cuda")
    device = CudaDevice()
    report: dict[str, Any] = {"environment": peers.environment(), "method": METHOD}
    report["roofline"] = {"copy_tb_s": peers.copy_bandwidth(), "matmul_tflop_s": peers.matmul_rate()}
    print(report["environment"], report["roofline"], flush=True)
    report["rows"] = rows = []
    for kind in ("decode", "short", "prefill"):
        for head_dim in (64, 128, 256, 512):
            p = {"decode": decode(head_dim), "short": decode(head_dim, 512, 1), "prefill": prefill(head_dim)}[kind]
            for shared in (False, True) if kind == "decode" else (False,):
                rows.append(measure(device, replace(p, shared_kv=shared), kind, folder, with_flex))
                torch.cuda.empty_cache()
                out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    benchmark(Path(sys.argv[1]), Path(sys.argv[2]), "--no-flex" not in sys.argv)
