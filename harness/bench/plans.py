"""Which shapes and splits are tried for a problem; the benchmark keeps the fastest, as it does for the Triton peer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    shape: str
    splits: int = 1
    cluster: tuple[int, int] = (1, 1)

    def describe(self) -> str:
        return f"{self.shape}, {self.splits} splits, cluster {self.cluster[0]} x {self.cluster[1]}"


# An H200 holds 128 CTAs at once whatever the cluster, but only 15 clusters of 8: sixteen would take two turns.
TRIED = {
    ("decode", 64): [Plan("hd64_pp", 8), Plan("hd64_peel", 8), Plan("hd64", 8), Plan("hd64_k64", 8)],
    ("decode", 128): [Plan("hd128_b2pp", 8), Plan("hd128_b2peel", 8), Plan("hd128", 8), Plan("hd128_k64", 8)],
    ("decode", 256): [Plan("hd256", 8), Plan("hd256_peel", 8), Plan("hd256_early", 8), Plan("hd256_pp", 8)],
    ("decode", 512): [
        *(Plan(shape, 4, (width, 1)) for shape in ("hd512", "hd512_late", "hd512_whole") for width in (1, 2)),
    ],
    ("short", 64): [Plan("hd64_k64", 8), Plan("hd64_k64", 8, (1, 8)), Plan("hd64_pp", 4), Plan("hd64", 4, (1, 4))],
    ("short", 128): [Plan("hd128_k64", 8), Plan("hd128_k64", 8, (1, 8)), Plan("hd128_b2pp", 4)],
    ("short", 256): [Plan("hd256", 8), Plan("hd256", 8, (1, 8)), Plan("hd256", 8, (1, 4))],
    ("short", 512): [Plan("hd512", 8), Plan("hd512", 8, (1, 8)), Plan("hd512_whole", 8, (1, 8))],
    ("prefill", 64): [Plan("hd64_3peel"), Plan("hd64_3"), Plan("hd64_3pppeel"), Plan("hd64_peel")],
    ("prefill", 128): [Plan("hd128"), Plan("hd128_b2pp"), Plan("hd128_b2peel")],
    ("prefill", 256): [Plan("hd256"), Plan("hd256_peel"), Plan("hd256_pp")],
    ("prefill", 512): [
        *(Plan(shape, 1, (width, 1)) for shape in ("hd512", "hd512_late", "hd512_whole") for width in (1, 2))
    ],
}
