"""Dry run: the plan in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from fmha.harness.stages.outcome import Step
from fmha.harness.stages.pipeline import PreparedRun


def lines(prepared: PreparedRun, shares: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Iterator[str]:
    """The plan in the order of the work; `shares` are the configurations by host, where several share them."""
    whose = {name: host for host, names in shares.items() for name in names}
    plan = prepared.plan
    chosen = f" --filter {plan.filter}" if str(plan.filter) else ""
    what = f"suite {plan.suite}" if plan.suite else "cases"
    yield f"{what}{chosen}, seed {prepared.seed}, schedule {prepared.schedule}"
    yield f"build: {len(plan.variants)}"
    for variant in plan.variants:
        yield f"  {variant.name}  {variant.arch}  {variant.source}"
    for name, steps in (("guard", plan.guard), ("matrix", plan.rest)):
        yield f"{name}: {len(steps)}"
        for step in steps:
            host = whose.get(step.configuration.id)
            yield f"  {step.configuration.id}  {_fate(step)}" + (f"  on {host}" if host else "")


def fields(prepared: PreparedRun, shares: Mapping[str, Sequence[str]] = MappingProxyType({})) -> dict[str, Any]:
    """The plan as `fmha-plan` has it; `shares` as for `lines`."""
    plan = prepared.plan
    return {
        "suite": plan.suite,
        "filter": str(plan.filter),
        "seed": prepared.seed,
        "schedule": prepared.schedule,
        "shares": {host: list(names) for host, names in shares.items()},
        "variants": [asdict(variant) | {"defines": dict(variant.defines)} for variant in plan.variants],
        "configurations": [
            {
                "id": step.configuration.id,
                "parameters": step.configuration.parameters,
                "guard": step.guard,
                "selected": step.selected,
                "variant": step.variant.name if step.variant else None,
                "reason": step.reason,
            }
            for step in plan.steps
        ],
    }


def _fate(step: Step) -> str:
    if step.variant is None:
        return f"not-run: {step.reason}"
    return step.variant.name + ("" if step.selected else "  (added as guard)")
