"""Times our shapes and plans: `python -m harness.bench.tune FOLDER OUT.json [decode|short|prefill...]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.bench.cases import decode, prefill
from harness.bench.gpu import Kernel, Launch, initialise, load_combine, load_forward, output_sizes, prepare
from harness.bench.problem import Problem
from harness.bench.timing import cold_graph, graph_replay
from harness.bench.variants import CANDIDATES

SETS_BYTES = 400 << 20  # of inputs that a graph walks through: several times the L2


class Call:
    """A launch over torch tensors of its own, on torch's current stream."""

    def __init__(self, kernel: Kernel, combine: Any, p: Problem, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors = dict(tensors)
        self.out = {n: torch.empty(b, dtype=torch.uint8, device="cuda") for n, b in output_sizes(p).items()}
        pointers = {n: t.data_ptr() for n, t in (self.tensors | self.out).items()}
        self.launch: Launch = prepare(kernel, combine, p, pointers)

    def __call__(self) -> None:
        self.launch(torch.cuda.current_stream().cuda_stream)

    def result(self) -> torch.Tensor:
        p = self.launch.problem
        dtype = torch.bfloat16 if p.bf16 else torch.float32
        return self.out["o"].view(dtype).view(p.batch, p.t, p.heads, p.head_dim)


def inputs(p: Problem, seed: int) -> dict[str, torch.Tensor]:
    g = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=g)

    tensors = {"q": normal(p.batch, p.t, p.heads, p.head_dim), "k": normal(p.batch, p.s_k, p.head_dim)}
    if not p.shared_kv:
        tensors["v"] = normal(p.batch, p.s_k, p.head_dim)
    return tensors


def error(call: Call) -> float:
    """Relative L2 error of the first two batch entries against float64; NaN counts."""
    p, x = call.launch.problem, call.tensors
    for t in call.out.values():
        t.fill_(0xFF)
    call()
    batch = min(p.batch, 2)
    q = x["q"][:batch].double().reshape(batch, p.t * p.heads, p.head_dim)
    k, v = x["k"][:batch].double(), x.get("v", x["k"])[:batch].double()
    ref = torch.softmax(q @ k.mT * p.scale, -1) @ v
    return float((call.result()[:batch].double().reshape_as(ref) - ref).norm() / ref.norm())


def plans(kind: str) -> list[tuple[str, str, Problem]]:
    """(label, shape, problem) of everything that is tried for one kind of work."""
    tried = []
    for name, shape in CANDIDATES.items():
        d, wide = shape.head_dim, shape.rows == 64
        width = 2 if wide else 1
        if kind == "decode" and shape.row_groups != 3:
            for splits, height in ((4, 1),) if wide else ((8 * shape.ctas_per_sm, 1), (8, 2)):
                for shared in (False, True):
                    p = replace(decode(d), splits=splits, shared_kv=shared, cluster=(width, height))
                    tried.append((f"{splits}/{height}", name, p))
        if kind == "short" and shape.row_groups != 3 and not shape.ping_pong:
            p = decode(d, s_k=512, batch=1)
            for splits, height, x in ((4, 4, 1), (8, 8, 1), (8, 2, 1), (8, 1, 1), (16, 1, 1)):
                if splits * shape.keys <= 512:
                    tried.append((f"{splits}/{height}x{x}", name, replace(p, splits=splits, cluster=(x, height))))
        if kind == "prefill":
            tried.append(("x1", name, prefill(d)))
            if shape.boxes >= 2:
                tried.append(("x2", name, replace(prefill(d), cluster=(2, 1))))
    return tried


def measure(kernel: Kernel, combine: Any, p: Problem, kind: str) -> dict[str, Any]:
    first = inputs(p, 0)
    nbytes = sum(t.nbytes for t in first.values())
    count = 1 if kind == "prefill" else max(1, min(20, -(-SETS_BYTES // nbytes)))
    calls = [Call(kernel, combine, p, first if i == 0 else inputs(p, i)) for i in range(count)]
    row: dict[str, Any] = {"error": error(calls[0])}
    if kind == "prefill":
        row["graph"] = graph_replay(calls * 3, 5)
    else:
        row["graph"] = graph_replay(calls)
        row["cold"] = cold_graph(calls[0])
    row["sets"], row["bytes"] = count, nbytes
    row["flop"] = 4 * p.batch * p.t * p.heads * p.s_k * p.head_dim
    return row


def main() -> int:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    kinds = [k for k in sys.argv[3:] if "=" not in k] or ["decode", "short", "prefill"]
    torch.zeros(1, device="cuda")
    initialise()
    combine = load_combine(folder)
    kernels = {name: load_forward(folder / f"{name}.cubin", shape) for name, shape in CANDIDATES.items()}
    sizes = {n: kernels["hd128"].most_clusters((1, n)) for n in range(2, 9)}
    print("clusters that fit:", sizes)
    rows = []
    for kind in kinds:
        for label, name, p in plans(kind):
            row = {"kind": kind, "shape": name, "plan": label, "shared_kv": p.shared_kv}
            row |= measure(kernels[name], combine[p.head_dim], p, kind)
            rows.append(row)
            us = row["graph"]["median_us"]
            cold = row.get("cold", {}).get("median_us", 0.0)
            print(
                f"{kind:8}{name:12}{label:10}{'K=V' if p.shared_kv else '':4} graph {us:9.2f} us cold {cold:7.2f} us "
                f"{row['bytes'] / us / 1e6:6.2f} TB/s {row['flop'] / us / 1e6:6.0f} TFLOP/s error {row['error']:.1e}",
                flush=True,
            )
            torch.cuda.empty_cache()
    out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
