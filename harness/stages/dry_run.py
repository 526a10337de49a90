"""Dry run: the plan in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fmha.harness.stages.outcome import Step
from fmha.harness.stages.pipeline import Prepared
from fmha.harness.worker.protocol import parameters_of


def lines(prepared: Prepared) -> Iterator[str]:
    """The plan in the order of the work."""
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
            yield f"  {step.configuration.id}  {_fate(step)}"


def fields(prepared: Prepared) -> dict[str, Any]:
    """The plan as `fmha-plan` has it."""
    plan = prepared.plan
    return {
        "suite": plan.suite,
        "filter": str(plan.filter),
        "seed": prepared.seed,
        "schedule": prepared.schedule,
        "variants": [asdict(variant) | {"defines": dict(variant.defines)} for variant in plan.variants],
        "configurations": [
            {
                "id": step.configuration.id,
                "parameters": parameters_of(step.configuration),
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
