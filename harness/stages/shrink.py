"""Shrink: from a random configuration that fails to a small one that fails alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

from fmha.harness.contract.protocol import Cell
from fmha.harness.errors import ChoiceError
from fmha.harness.judge.schedules import every_drawn_schedule, schedules_of
from fmha.harness.judge.status import RED
from fmha.harness.stages import matrix
from fmha.harness.stages.outcome import Outcome, Step

SHRINK_SECONDS: Final = 180.0


def shrunk(outcome: Outcome, context: matrix.Context, seconds: float = SHRINK_SECONDS) -> Outcome:
    """`outcome` with one more reason: the command that runs the smallest configuration found to have its status.

    Greedy: takes the first simpler configuration that fails, until none does or `seconds` have passed. Only variants
    that are built already are tried.
    """
    deadline = time.monotonic() + seconds
    smallest = outcome
    while time.monotonic() < deadline:
        found = _first_failing(smallest, context, deadline)
        if found is None:
            break
        smallest = found
    return replace(outcome, reasons=(*outcome.reasons, command(smallest.step.configuration, context)))


def command(configuration: Cell, context: matrix.Context) -> str:
    """How to run one configuration again as it was run here."""
    words = ["fmha run-matrix", f"--case {configuration.id}", f"--seed {context.seed}"]
    words += [f"--drawn {context.drawn}"] if context.drawn is not None else []
    count = len(context.schedules)
    exploring = count > 1 and context.schedules == schedules_of(count)
    words.append(f"--schedules {count}" if exploring else f"--schedule {','.join(context.schedules)}")
    return "the smallest found to fail alike: " + " ".join(words)


def first_red(outcomes: list[Outcome]) -> int | None:
    """The place of the first outcome that says something against the kernel itself, build errors left out."""
    for place, outcome in enumerate(outcomes):
        if outcome.status in RED and outcome.step.variant is not None and outcome.seconds > 0:
            return place
    return None


def _first_failing(outcome: Outcome, context: matrix.Context, deadline: float) -> Outcome | None:
    alone = replace(context, workers=1)  # the first that fails, whatever the number of workers
    steps = list(_steps(outcome.step, context))
    if outcome.met and context.drawn is not None:  # it may fail under one of those alone
        ids = [step.configuration.id for step in steps]
        alone = replace(alone, also={name: every_drawn_schedule(context.drawn, name) for name in ids})
    with closing(matrix.run(steps, alone)) as outcomes:
        for candidate in outcomes:
            if candidate.status is outcome.status:
                return candidate
            if time.monotonic() > deadline:
                break
    return None


def _steps(step: Step, context: matrix.Context) -> Iterator[Step]:
    kernel = context.matrix.kernels[step.configuration.kernel]
    for configuration in kernel.smaller(step.configuration):
        try:
            variant = context.host.variant_for(configuration)
        except ChoiceError:  # it fails otherwise
            continue
        if not isinstance(variant, str) and variant.name in context.builds:
            yield replace(step, configuration=configuration, variant=variant)
