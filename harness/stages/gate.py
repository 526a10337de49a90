"""Gate: numbers and findings to a status. Pure; docs/gates.md defines the metrics and the order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.config import Resources, Thresholds
from harness.stages.outcome import Check
from harness.status import Status
from harness.worker.protocol import BuildResult, FindingRecord, Measurement

HAZARDS = "hazards"


@dataclass(frozen=True, slots=True)
class Judgement:
    status: Status
    failed_checks: tuple[Check, ...]


def judge(
    measurement: Measurement,
    findings: Sequence[FindingRecord],
    thresholds: Thresholds,
    resources: Sequence[Check] = (),
) -> Judgement:
    """All missed gates, in order; the first one decides between `fail` and `hazard`. What is not finite misses.

    `resources` are those that the kernel itself has missed, and come last.
    """
    failed = (*_failed_checks(measurement, findings, thresholds), *resources)
    if not failed:
        return Judgement(Status.PASS, ())
    return Judgement(Status.HAZARD if failed[0].name == HAZARDS else Status.FAIL, failed)


def resource_checks(build: BuildResult, most: Resources) -> tuple[Check, ...]:
    """The gates that a compiled variant misses by what its forward and its combine kernel use."""
    kernels = (
        ("", build.resources, build.variant.shape.shared_bytes),
        ("combine_", build.combine_resources, 0),
    )
    return tuple(
        check
        for prefix, used, dynamic in kernels
        if used
        for name, value, limit in (
            ("registers", used.registers, most.registers),
            ("spill_bytes", used.spill_stores + used.spill_loads, most.spill_bytes),
            ("stack_bytes", used.stack, most.stack_bytes),
            ("shared_bytes", used.shared_static + dynamic, most.shared_bytes),
        )
        for check in _at_most(prefix + name, value, limit)
    )


def _failed_checks(
    measurement: Measurement, findings: Sequence[FindingRecord], thresholds: Thresholds
) -> Iterator[Check]:
    errors = sum(finding.severity == "error" for finding in findings)
    yield from _at_most("unwritten", measurement.unwritten, 0)
    yield from _at_most("nonfinite_mismatches", measurement.nonfinite_mismatches, 0)
    yield from _at_most(HAZARDS, errors, 0)
    yield from _at_least("cosine", measurement.cosine, thresholds.cosine)
    yield from _at_most("relative_l2", measurement.relative_l2, thresholds.relative_l2)
    yield from _at_most("max_error", measurement.max_error, thresholds.max_error)
    yield from _at_most("lse_error", measurement.lse_error, thresholds.lse_error)
    yield from _at_most("row_max_error", measurement.row_max_error, thresholds.row_max_error)
    yield from _at_most("row_sum_error", measurement.row_sum_error, thresholds.row_sum_error)


# Written as `not (...)`: a comparison with NaN is false, and must fail. Infinities are never evidence either.
def _at_most(name: str, value: float, limit: float) -> Iterator[Check]:
    if not (-math.inf < value <= limit):
        yield Check(name, value, limit, "at most")


def _at_least(name: str, value: float, limit: float) -> Iterator[Check]:
    if not (limit <= value < math.inf):
        yield Check(name, value, limit, "at least")
