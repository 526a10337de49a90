"""Times calls on the GPU with torch: graph replay over rotated inputs, and single calls with a flushed L2."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Microseconds: median, 10th and 90th percentile."""
    ordered = sorted(samples)
    n = len(ordered)
    return {
        "median_us": round(statistics.median(ordered), 3),
        "p10_us": round(ordered[n // 10], 3),
        "p90_us": round(ordered[n * 9 // 10], 3),
        "samples": n,
    }


def captured(calls: Sequence[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """One graph of all `calls`, which run once before, as they come."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def graph_replay(calls: Sequence[Callable[[], Any]], replays: int = 30) -> dict[str, float]:
    """Microseconds a call; one graph holds all `calls`, each over its own inputs, so that L2 has the last ones only."""
    graph = captured(calls)
    for _ in range(3):
        graph.replay()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)]
    for begin, end in events:
        begin.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return spread([begin.elapsed_time(end) * 1e3 / len(calls) for begin, end in events])


def in_turn(graphs: Mapping[str, torch.cuda.CUDAGraph], rounds: int) -> dict[str, list[float]]:
    """Microseconds of `rounds` replays of each graph, one of each in turn, after a turn that does not count."""
    events: dict[str, list[Any]] = {name: [] for name in graphs}
    for turn in range(rounds + 1):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            if turn > 0:
                events[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: [begin.elapsed_time(end) * 1e3 for begin, end in pairs] for name, pairs in events.items()}


def cold_call(call: Callable[[], Any], repeats: int = 60) -> dict[str, float]:
    """Microseconds of one call between two events, after 256 MB were written: what triton.testing.do_bench measures."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    for _ in range(5):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for begin, end in events:
        flush.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return spread([begin.elapsed_time(end) * 1e3 for begin, end in events])


def cold_graph(call: Callable[[], Any], repeats: int = 60) -> dict[str, float]:
    """As cold_call, the call captured in a graph of its own: no host time between its launches."""
    return cold_call(captured([call]).replay, repeats)
