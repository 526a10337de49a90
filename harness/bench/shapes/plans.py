"""Which shapes and splits are tried for a problem; the benchmark keeps the fastest, as it does for the Triton peer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    shape: str
    splits: int = 1
    cluster: tuple[int, int] = (1, 1)
    overlaps: bool = True  # the grid before it

    def describe(self) -> str:
        late = "" if self.overlaps else ", no overlap"
        return f"{self.shape}, {self.splits} splits, cluster {self.cluster[0]} x {self.cluster[1]}{late}"


# An H200 holds 128 CTAs at once whatever the cluster, but only 15 clusters of 8: sixteen would take two turns.
TRIED = {
    ("decode", 64): [Plan("hd64_plain", 8), Plan("hd64_whole", 8)],
    ("decode", 128): [Plan("hd128_plain", 8), Plan("hd128_small", 8), Plan("hd128_short_plain", 8)],
    ("decode", 256): [Plan("hd256_plain", 8), Plan("hd256", 8, (1, 2))],
    ("decode", 512): [Plan("hd512_plain", 4), Plan("hd512_plain", 4, overlaps=False), Plan("hd512", 4, (2, 1))],
    ("short", 64): [Plan("hd64_short_plain", 8), Plan("hd64_short", 8, (1, 8)), Plan("hd64_plain", 4)],
    ("short", 128): [Plan("hd128_short_plain", 8), Plan("hd128_short", 8, (1, 8)), Plan("hd128_plain", 4)],
    ("short", 256): [Plan("hd256_short_plain", 8), Plan("hd256_plain", 8)],
    ("short", 512): [Plan("hd512_plain", 11), Plan("hd512_plain", 6)],
    ("prefill", 64): [Plan("hd64_3_plain"), Plan("hd64_4"), Plan("hd64_plain")],
    ("prefill", 128): [Plan("hd128_plain"), Plan("hd128_3")],
    ("prefill", 256): [Plan("hd256_plain")],
    ("prefill", 512): [Plan("hd512_plain")],
}
