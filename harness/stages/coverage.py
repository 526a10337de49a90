"""Coverage: what a run executed of its kernels, collected from what the configurations' events say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from fmha.harness.contract.lines import Lines
from fmha.harness.stages.outcome import Outcome

STAT = "coverage"  # of an outcome's statistics, until it is collected


@dataclass(frozen=True, slots=True)
class RunCoverage:
    """PTX by variant and entry, CUDA by file over all variants: a line counts as executed once any variant did."""

    ptx: Mapping[str, Lines]
    source: Mapping[str, Lines]


def collect(outcomes: Sequence[Outcome]) -> tuple[list[Outcome], RunCoverage]:
    """The outcomes without the statistic, and all that it says. Sources outside the checkout are left out."""
    ptx: dict[str, Lines] = {}
    source: dict[str, Lines] = {}
    plain = []
    for outcome in outcomes:
        seen = outcome.stats.get(STAT)
        plain.append(replace(outcome, stats={name: value for name, value in outcome.stats.items() if name != STAT}))
        if seen and outcome.step.variant:
            for entry, data in seen["ptx"].items():
                name = f"{outcome.step.variant.name} {entry}"
                ptx[name] = ptx.get(name, Lines()) | Lines.read(data)
            for file, data in seen["source"].items():
                if not PurePosixPath(file).is_absolute():
                    source[file] = source.get(file, Lines()) | Lines.read(data)
    return plain, RunCoverage(dict(sorted(ptx.items())), dict(sorted(source.items())))
