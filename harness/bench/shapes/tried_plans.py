"""Which shapes and splits are tried for a problem; the benchmark keeps the fastest, as it does for the Triton peer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchPlan:
    """A build, and how a problem is launched with it."""

    shape: str
    splits: int = 1
    overlaps: bool = True  # the grid before it

    def describe(self) -> str:
        """In words, for a table."""
        late = "" if self.overlaps else ", no overlap"
        return f"{self.shape}, {self.splits} splits{late}"


TRIED = {
    ("decode", 64): [LaunchPlan("hd64_plain", 8), LaunchPlan("hd64_whole", 8)],
    ("decode", 128): [LaunchPlan("hd128_plain", 8), LaunchPlan("hd128_small", 8), LaunchPlan("hd128_short_plain", 8)],
    ("decode", 256): [LaunchPlan("hd256_plain", 8)],
    ("decode", 512): [
        LaunchPlan("hd512_plain", 4),
        LaunchPlan("hd512_plain", 4, overlaps=False),
    ],
    ("short", 64): [
        LaunchPlan("hd64_short_plain", 8),
        LaunchPlan("hd64_plain", 4),
    ],
    ("short", 128): [
        LaunchPlan("hd128_short_plain", 8),
        LaunchPlan("hd128_plain", 4),
    ],
    ("short", 256): [LaunchPlan("hd256_short_plain", 8), LaunchPlan("hd256_plain", 8)],
    ("short", 512): [LaunchPlan("hd512_plain", 11), LaunchPlan("hd512_plain", 6)],
    ("prefill", 64): [LaunchPlan("hd64_3_plain"), LaunchPlan("hd64_4"), LaunchPlan("hd64_plain")],
    ("prefill", 128): [LaunchPlan("hd128_plain"), LaunchPlan("hd128_3")],
    ("prefill", 256): [LaunchPlan("hd256_plain")],
    ("prefill", 512): [LaunchPlan("hd512_plain")],
}
