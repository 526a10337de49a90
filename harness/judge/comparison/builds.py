"""Whether a variant takes longer to build: processor seconds, held against those of builds before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fmha.harness.judge.comparison.noise import Band

if TYPE_CHECKING:
    from fmha.harness.archive.record import RunRecord, VariantRecord

LEAST_BUILDS = 5  # with fewer nobody knows how far they vary
LEAST_DEVIATION = 0.1  # of their logarithms: a busy machine shares its caches and cores


def comparable(base: RunRecord, new: RunRecord) -> Iterator[tuple[VariantRecord, Band]]:
    """The variants of `new` whose sources are others than in `base` and that were compiled in the run, each with the
    logarithms of seconds that it may take. Nothing where the machine, the compiler or its flags are others, or where
    the baseline has fewer than LEAST_BUILDS builds: without noise a time says nothing."""
    known = base.acceptance.builds if base.acceptance else {}
    if (base.host.name, base.host.machine) != (new.host.name, new.host.machine):
        return
    before = {variant.name: variant for variant in base.variants}
    for b in new.variants:
        a, seconds = before.get(b.name), known.get(b.name, [])
        if a is None or not b.processor_seconds or len(seconds) < LEAST_BUILDS:
            continue
        if a.source_hash != b.source_hash and alike(a, b):
            yield b, band_of(seconds)


def alike(a: VariantRecord, b: VariantRecord) -> bool:
    """Whether both were compiled by one compiler with one set of flags."""
    return (a.nvcc, a.flags, a.defines) == (b.nvcc, b.flags, b.defines)


def band_of(seconds: Sequence[float]) -> Band:
    """Mean and deviation of the logarithms of earlier builds' seconds."""
    points = [math.log(value) for value in seconds if value > 0]
    return Band(statistics.fmean(points), max(statistics.stdev(points), LEAST_DEVIATION), len(points))
