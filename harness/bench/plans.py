"""Which shape and how many splits a problem gets: the outcome of harness.bench.tune on an H200."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    shape: str
    splits: int = 1
    cluster: tuple[int, int] = (1, 1)

    def describe(self) -> str:
        return f"{self.shape}, {self.splits} splits, cluster {self.cluster[0]} x {self.cluster[1]}"


PLANS = {
    ("decode", 64): Plan("hd64_pp", 8),
    ("decode", 128): Plan("hd128_b2pp", 8),
    ("decode", 256): Plan("hd256", 8),
    ("decode", 512): Plan("hd512", 4, (2, 1)),
    ("short", 64): Plan("hd64_k64", 8, (1, 8)),
    ("short", 128): Plan("hd128_k64", 8, (1, 8)),
    ("short", 256): Plan("hd256", 8, (1, 8)),
    ("short", 512): Plan("hd512", 8, (1, 8)),
    ("prefill", 64): Plan("hd64_3"),
    ("prefill", 128): Plan("hd128_b2pp"),
    ("prefill", 256): Plan("hd256"),
    ("prefill", 512): Plan("hd512"),
}


def plan_for(kind: str, head_dim: int) -> Plan:
    return PLANS[kind, head_dim]
