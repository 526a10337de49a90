"""Build: every variant of the plan, on the host."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.harness.config import Limits
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts import Host
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.plan import Plan

Builds = Mapping[str, BuildResult]


def build(plan: Plan, host: Host, limits: Limits, observer: Observer) -> Builds:
    """Results by variant name; a failed variant has its `error` set. Raises InfrastructureError."""
    if not plan.variants:
        return {}
    results = {result.variant.name: result for result in host.build(plan.variants, limits, observer.note)}
    missing = [variant.name for variant in plan.variants if variant.name not in results]
    if missing:
        raise InfrastructureError(f"the host did not say what became of {', '.join(missing)}")
    return results
