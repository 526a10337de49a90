"""Matrix: runs steps on the host and turns its events into outcomes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config import Matrix
from harness.errors import InfrastructureError
from harness.hosts import Host
from harness.stages import gate
from harness.stages.build import Builds
from harness.stages.outcome import Limit, Observer, Outcome, Step
from harness.status import Status
from harness.worker.protocol import Event, Job


@dataclass(frozen=True, slots=True)
class Context:
    """What every step of a run shares."""

    matrix: Matrix
    host: Host
    builds: Builds
    seed: int
    schedules: tuple[str, ...]
    observer: Observer
    noise_seeds: tuple[int, ...] = ()
    coverage: bool = False


def run(steps: Sequence[Step], context: Context) -> Generator[Outcome, None, None]:
    """One outcome a step, as they come in. Closing the iterator ends what still runs.

    A step without a variant is not-run, one whose variant did not build a build-error; they cost the host nothing.
    """
    waiting: dict[str, Step] = {}
    for step in steps:
        settled = _settled(step, context.builds)
        if settled:
            yield replace(settled, limits=_limits(step, context))
        else:
            waiting[step.configuration.id] = step
    if waiting:
        yield from _measured(waiting, context)


def _settled(step: Step, builds: Builds) -> Outcome | None:
    if step.variant is None:
        return Outcome(step, Status.NOT_RUN, (step.reason,))
    error = builds[step.variant.name].error
    if error is not None:
        return Outcome(step, Status.BUILD_ERROR, (f"{step.variant.name}: {error}",))
    return None


def _measured(waiting: dict[str, Step], context: Context) -> Generator[Outcome, None, None]:
    names = dict.fromkeys(step.variant.name for step in waiting.values() if step.variant)
    job = Job(
        device=f"{context.host.device}-watching" if context.coverage else context.host.device,
        builds=tuple(context.builds[name] for name in names),
        configurations=tuple(step.configuration for step in waiting.values()),
        seed=context.seed,
        schedules=context.schedules,
        noise_seeds=context.noise_seeds,
    )
    events = context.host.run(job, context.matrix.limits)
    try:
        for event in events:
            if event.event == "started":
                context.observer.started(event.config)
            elif event.event in ("result", "error"):
                step = _take(waiting, event)
                yield replace(_outcome(event, step, context), limits=_limits(step, context))
    finally:
        events.close()
    for step in waiting.values():
        yield Outcome(step, Status.INFRA_ERROR, ("the worker ended without a word about this configuration",))


def _take(waiting: dict[str, Step], event: Event) -> Step:
    try:
        return waiting.pop(event.config)
    except KeyError:
        raise InfrastructureError(f"the worker reported {event.config!r}, which was not asked for or is done") from None


def _outcome(event: Event, step: Step, context: Context) -> Outcome:
    common: dict[str, Any] = {"findings": event.findings, "stats": event.stats, "seconds": event.seconds}
    if event.event == "error":
        return Outcome(step, _status(event), (event.message or f"{event.status} without a message",), **common)
    if event.measurement is None:
        return Outcome(step, Status.INFRA_ERROR, ("the worker sent a result without a measurement",), **common)
    assert step.variant is not None
    build = context.builds[step.variant.name]
    thresholds = context.matrix.thresholds_for(step.configuration)
    judgement = gate.judge(event.measurement, event.findings, thresholds, context.matrix.resources, build)
    return Outcome(
        step,
        judgement.status,
        tuple(str(check) for check in judgement.failed_checks),
        judgement.failed_checks,
        event.measurement,
        timing=event.timing,
        noise={
            drawn.seed: drawn.measurement
            for drawn in event.noise
            if gate.judge(drawn.measurement, drawn.findings, thresholds, context.matrix.resources, build).status
            is Status.PASS
        },
        **common,
    )


def _limits(step: Step, context: Context) -> tuple[Limit, ...]:
    build = context.builds.get(step.variant.name) if step.variant else None
    return gate.limits(context.matrix.thresholds_for(step.configuration), context.matrix.resources, build)


def _status(event: Event) -> Status:
    """The status of an error event. An unknown one, or a `pass` with no numbers, is our own failure."""
    if event.status in set(Status) - {Status.PASS}:
        return Status(event.status)
    return Status.INFRA_ERROR
