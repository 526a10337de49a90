"""Matrix: runs steps on the host and turns its events into outcomes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fmha.harness.config import Matrix
from fmha.harness.contract.protocol import Drawn, Event, Job, Measurement, Met
from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts import Host
from fmha.harness.judge import gate
from fmha.harness.judge.case import Case
from fmha.harness.judge.configuration import OURS
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.limits import Limit
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.schedules import compare_outputs, merge_findings
from fmha.harness.judge.status import Status
from fmha.harness.stages.build import Builds
from fmha.harness.stages.outcome import Observer, Outcome, Step, Withheld


@dataclass(frozen=True, slots=True, kw_only=True)
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
    drawn: int | None = None  # the seed that this run drew, under which every configuration is judged as well
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # drawn schedules of configurations, by id
    workers: int = 0  # at once, at the most; 0 leaves it to the host
    costs: Mapping[str, float] = field(default_factory=dict)  # seconds that configurations took before, by id
    timed: bool = False  # each configuration by itself, where the device has a clock


def run(steps: Sequence[Step], context: Context) -> Generator[Outcome, None, None]:
    """One outcome a step, as they come in. Closing the iterator ends what still runs.

    A step without a variant is not-run, or a build-error where its kernel's code failed at the choice; one whose
    variant did not build is a build-error. They cost the host nothing.
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
        return Outcome(step, Status.BUILD_ERROR if step.fault else Status.NOT_RUN, (step.reason,))
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
        kernels=context.matrix.places,
        root=context.matrix.root,
        schedules=context.schedules,
        tolerances=_tolerances(waiting.values(), context.matrix),
        noise_seeds=context.noise_seeds if context.drawn is None else (context.drawn, *context.noise_seeds),
        workers=context.workers,
        timed=context.timed,
        also={name: ",".join(context.also[name]) for name in waiting if name in context.also},
        costs={name: context.costs[name] for name in waiting if name in context.costs},
    )
    events = context.host.run(job, context.matrix.limits)
    try:
        for event in events:
            if event.event == "started":
                context.observer.started(event.config)
            elif event.event == "note":
                context.observer.note(event.message)
            elif event.event in ("result", "error"):
                step = _take(waiting, event)
                yield replace(_outcome(event, step, context), limits=_limits(step, context))
    finally:
        events.close()
    for step in waiting.values():
        yield Outcome(step, Status.INFRA_ERROR, ("the worker ended without a word about this configuration",))


def _tolerances(steps: Iterable[Step], matrix: Matrix) -> dict[str, float]:
    """Of kernels of one's own the gate of `max_error`, by which sentinels are told from what they hide."""
    cells = (step.configuration for step in steps if isinstance(step.configuration, Case))
    return {cell.id: matrix.thresholds_for(cell).limits["max_error"] for cell in cells}


def _take(waiting: dict[str, Step], event: Event) -> Step:
    try:
        return waiting.pop(event.config)
    except KeyError:
        raise InfrastructureError(f"the worker reported {event.config!r}, which was not asked for or is done") from None


def _outcome(event: Event, step: Step, context: Context) -> Outcome:
    common: dict[str, Any] = {
        "findings": event.findings,
        "stats": event.stats,
        "seconds": event.seconds,
        "place": event.place,
    }
    if event.event == "error":
        status, words = _status(event), event.message or f"{event.status} without a message"
        withheld: Withheld | None = "stopped" if event.stopped and status is Status.NOT_RUN else None
        return Outcome(step, status, (words,), withheld=withheld, **common)
    if event.measurement is None:
        return Outcome(step, Status.INFRA_ERROR, ("the worker sent a result without a measurement",), **common)
    assert step.variant is not None
    build = context.builds[step.variant.name]
    gates = context.matrix.gates_for(step.configuration)
    judgement = gate.judge(event.measurement, event.findings, gates.thresholds, gates.resources, build, gates.biases)
    status, checks = judgement.status, judgement.failed_checks
    reasons = _reasons(judgement, event.measurement)
    drawn = next((item for item in event.noise if item.seed == context.drawn), None)
    if drawn is not None:
        again = gate.judge(drawn.measurement, drawn.findings, gates.thresholds, None, build, gates.biases)
        common["findings"] = event.findings or merge_findings([(context.schedules[0], drawn.findings)])
        status = again.status if status is Status.PASS else status
        checks += again.failed_checks
        reasons += [f"on the drawn inputs of seed {drawn.seed}: {why}" for why in _reasons(again, drawn.measurement)]
    elif context.drawn is not None:
        return Outcome(step, Status.INFRA_ERROR, ("the worker sent no measurement on the drawn inputs",), **common)
    asked = tuple(context.also.get(step.configuration.id, ()))
    if tuple(met.schedule for met in event.met) != asked:
        return Outcome(step, Status.INFRA_ERROR, ("the worker sent no measurement under drawn schedules",), **common)
    for met in event.met:
        found = met.findings + _other_bits(event.measurement.output_hash, met, step, context)
        again = gate.judge(met.measurement, found, gates.thresholds, None, build, gates.biases)
        common["findings"] += found
        status = again.status if status is Status.PASS else status
        checks += again.failed_checks
        reasons += [
            f"under schedule {met.schedule}, drawn for this run: {why}" for why in _reasons(again, met.measurement)
        ]
    return Outcome(
        step,
        status,
        tuple(reasons),
        checks,
        event.measurement,
        drawn=drawn.measurement if drawn else None,
        met=asked,
        timing=event.timing,
        noise={
            item.seed: item.measurement for item in event.noise if _judged(item, step, context).status is Status.PASS
        },
        **common,
    )


def _reasons(judgement: gate.Judgement, measurement: Measurement) -> list[str]:
    """The element that is worst, where numbers failed, and every gate that was missed."""
    said = [str(check) for check in judgement.failed_checks]
    of_numbers = {check.name for check in judgement.failed_checks} & {*METRICS, "nonfinite_mismatches", "unwritten"}
    if not measurement.worst or not of_numbers:
        return said
    apart = f"; {measurement.sentinels} sentinels are judged apart" if measurement.sentinels else ""
    return [f"{measurement.worst}{apart}", *said]


def _other_bits(bits: str, met: Met, step: Step, context: Context) -> tuple[FindingRecord, ...]:
    """Of our kernels every schedule has the same bits; one of one's own may add in the order in which threads come, and
    has the gates of its numbers."""
    if step.configuration.kernel != OURS:
        return ()
    return compare_outputs([(context.schedules[0], bits), (met.schedule, met.measurement.output_hash)])


def _judged(drawn: Drawn, step: Step, context: Context) -> gate.Judgement:
    assert step.variant is not None
    gates, build = context.matrix.gates_for(step.configuration), context.builds[step.variant.name]
    return gate.judge(drawn.measurement, drawn.findings, gates.thresholds, gates.resources, build, gates.biases)


def _limits(step: Step, context: Context) -> Mapping[str, Limit]:
    build = context.builds.get(step.variant.name) if step.variant else None
    gates = context.matrix.gates_for(step.configuration)
    return gate.limits(gates.thresholds, gates.resources, build, gates.biases)


def _status(event: Event) -> Status:
    """The status of an error event. An unknown one, or a `pass` with no numbers, is our own failure."""
    if event.status in set(Status) - {Status.PASS}:
        return Status(event.status)
    return Status.INFRA_ERROR
