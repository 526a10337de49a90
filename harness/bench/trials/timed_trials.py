"""The part of `fmha.harness.bench.trials.tried` that needs a GPU and torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from fmha.harness.bench.runs.benchmark import SETS_BYTES
from fmha.harness.bench.runs.our_kernels import TorchCall, error, inputs
from fmha.harness.bench.shapes.launch_problem import BuiltKernel
from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.bench.timing.graph_replay import captured, cold_call, graph_replay
from fmha.harness.bench.trials.clocks import read, summary
from fmha.harness.bench.trials.trial import Trial
from fmha.harness.worker.devices.cuda import CudaDevice

MOST_ERROR = 4e-3
REPLAYS, LONG_REPLAYS = 12, 4
DIRECT_REPEATS = 30
STAMPED_CALLS = 8  # over inputs of their own; the last one's stamps are read


def timed(
    device: CudaDevice, trials: Sequence[Trial], kernels: Mapping[str, BuiltKernel]
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Each trial with what was measured, or how `wrong` it is. Inputs are drawn once for trials that share them."""
    for _, group in groupby(trials, lambda trial: _inputs_of(trial.problem)):
        same = list(group)
        sets = _sets(same[0])
        for trial in same:
            calls = [TorchCall(device, kernels[trial.shape], trial.problem, x, trial.overlaps) for x in sets]
            wrong = error(calls[0])
            if not wrong < MOST_ERROR:
                yield trial, {"wrong": wrong}
                continue
            measured: dict[str, Any] = {"relative_error": round(wrong, 5)}
            measured |= graph_replay(calls * 2 if trial.long else calls, LONG_REPLAYS if trial.long else REPLAYS)
            if trial.kind == "short":
                measured["direct_us"] = cold_call(calls[0], DIRECT_REPEATS)["median_us"]
            yield trial, measured


def stamped(device: CudaDevice, trial: Trial, kernel: BuiltKernel) -> dict[str, Any]:
    """The stamps of a build with clocks."""
    p = trial.problem
    # Their memory is the graph's, too.
    calls = [TorchCall(device, kernel, p, inputs(p, seed)) for seed in range(STAMPED_CALLS)]
    graph = captured(calls)

    def run() -> None:
        graph.replay()
        torch.cuda.synchronize()

    run()
    found = summary(read(device, kernel, run, kernel.shape.row_tiles(p) * p.splits * p.batch))
    print(trial.shape, found, flush=True)
    return found


def _inputs_of(p: Problem) -> tuple[Any, ...]:
    return p.head_dim, p.batch, p.t, p.heads, p.s_k, p.shared_kv


def _sets(trial: Trial) -> list[dict[str, Any]]:
    first = inputs(trial.problem, 0)
    nbytes = sum(tensor.nbytes for tensor in first.values())
    count = 1 if trial.long else max(1, min(20, -(-SETS_BYTES // nbytes)))
    return [first] + [inputs(trial.problem, seed) for seed in range(1, count)]
