"""Gate: numbers and findings to a status. Pure; docs/understand/gates.md defines the metrics and the order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.limits import Biases, FailedCheck, Limit, ResourceLimits, Thresholds
from fmha.harness.judge.metrics import METRICS, Measurement
from fmha.harness.judge.status import Status

HAZARDS = "hazards"
BIASES = ("slope_bias", "lse_bias", "coarse")


class _Used(Protocol):
    """What one entry uses: registers a thread, and bytes."""

    @property
    def registers(self) -> int: ...
    @property
    def spill_stores(self) -> int: ...
    @property
    def spill_loads(self) -> int: ...
    @property
    def stack(self) -> int: ...
    @property
    def shared_static(self) -> int: ...


class _Shape(Protocol):
    @property
    def shared_bytes(self) -> int: ...


class _Variant(Protocol):
    @property
    def shape(self) -> _Shape: ...


class Built(Protocol):
    """A variant that was compiled, and what its kernels use."""

    @property
    def variant(self) -> _Variant:
        """The kernel's variant."""

    @property
    def resources(self) -> _Used | None:
        """ptxas's figures; None where there are none."""

    @property
    def combine_resources(self) -> _Used | None:
        """Those of the kernel that merges splits; None where there is none."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gate says of one configuration, and which limits it missed."""

    status: Status
    failed_checks: tuple[FailedCheck, ...]


def limits(
    thresholds: Thresholds, most: ResourceLimits | None, build: Built | None, biases: Biases | None = None
) -> dict[str, Limit]:
    """Every gate of a configuration with its limit, in the order in which they decide. Those of resources come last,
    the combine kernel's where `build` has one."""
    gates = {name: Limit("at most", 0.0) for name in ("unwritten", "nonfinite_mismatches", HAZARDS)}
    for name, limit in thresholds.limits.items():
        gates[name] = Limit("at least" if METRICS[name].least else "at most", limit)
    if biases:
        gates |= {name: Limit("at most", getattr(biases, name)) for name in BIASES}
    used = asdict(most) if most else {}
    for prefix in ("", *(("combine_",) if build and build.combine_resources else ())):
        gates |= {prefix + name: Limit("at most", limit) for name, limit in used.items()}
    return gates


def judge(
    measurement: Measurement,
    findings: Sequence[FindingRecord],
    thresholds: Thresholds,
    most: ResourceLimits | None = None,
    build: Built | None = None,
    biases: Biases | None = None,
) -> Judgement:
    """All missed gates, in order; the first one decides between `fail` and `hazard`. What is not finite misses."""
    values = _values(measurement, findings, build)
    failed = tuple(
        FailedCheck(name, value, gate.limit, gate.bound)
        for name, gate in limits(thresholds, most, build, biases).items()
        if _misses(value := values.get(name, math.nan), gate)
    )
    if not failed:
        return Judgement(Status.PASS, ())
    return Judgement(Status.HAZARD if failed[0].name == HAZARDS else Status.FAIL, failed)


def _values(measurement: Measurement, findings: Sequence[FindingRecord], build: Built | None) -> Mapping[str, float]:
    """What was measured, by the name of its gate."""
    figures = asdict(measurement) | (asdict(measurement.bias) if measurement.bias else {})
    numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    errors = sum(finding.severity == "error" for finding in findings)
    return numbers | {HAZARDS: errors} | dict(_used(build) if build else ())


def _used(build: Built) -> Iterator[tuple[str, float]]:
    """What a compiled variant uses: registers a thread; bytes of spills, of stack, and of shared memory, static and
    dynamic."""
    for prefix, used, dynamic in (
        ("", build.resources, build.variant.shape.shared_bytes),
        ("combine_", build.combine_resources, 0),
    ):
        if used:
            yield prefix + "registers", used.registers
            yield prefix + "spill_bytes", used.spill_stores + used.spill_loads
            yield prefix + "stack_bytes", used.stack
            yield prefix + "shared_bytes", used.shared_static + dynamic


def _misses(value: float, gate: Limit) -> bool:
    """Written as `not (...)`: a comparison with NaN is false, and must fail. Infinities are never evidence either.

    A figure that the build does not have misses too: a kernel without ptxas's figures did not pass them.
    """
    if gate.bound == "at least":
        return not (gate.limit <= value < math.inf)
    return not (-math.inf < value <= gate.limit)
