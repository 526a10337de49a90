"""Several hosts in one run: each takes a share of the configurations, or each repeats them all.

Every host carries out an order of its own as it would alone: its checkout, its builds, its guard, its gates. Here
configurations are dealt out, the hosts followed side by side, what a lost host had not done given to the others, and
the outcomes put together into one record. Configurations of the guard run on every host, so that none is trusted with a
share before its proven path held.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fmha.harness import archive
from fmha.harness.config import HostSettings
from fmha.harness.config.settings import SUPERVISED, either
from fmha.harness.errors import ExitCode, FmhaError, InfrastructureError, InterruptionError, UserError
from fmha.harness.hosts import HostProvenance, open_host, settings_for
from fmha.harness.judge.status import RED, Status
from fmha.harness.stages import pipeline
from fmha.harness.stages.named_hosts import names
from fmha.harness.stages.outcome import Observer, Outcome, Step
from fmha.harness.stages.pipeline import HostOpener, PreparedRun, Progress, Request, Show
from fmha.harness.stages.plan import Plan
from fmha.harness.worker.pool.worker_shares import estimates

if TYPE_CHECKING:
    from fmha.harness.stages.archive import Circumstances

Answer = tuple["HostPart", Outcome]
_WORST_FIRST = (*(status for status in Status if status in RED), Status.INFRA_ERROR, Status.NOT_RUN, Status.PASS)


@dataclass(slots=True)
class HostPart:
    """What one host is given, and what has come of it. `error` is why no more will come, `broken` a fault of ours."""

    host: str
    prepared: PreparedRun
    progress: Progress = field(default_factory=Progress)
    error: FmhaError | None = None
    broken: Exception | None = None

    def run(self, observer: Observer) -> None:
        """Runs this host's part; its error is kept for whoever joins."""
        try:
            pipeline.carry_out(self.prepared, self.progress, observer)
            self.prepared.host.finish()
        except FmhaError as error:
            self.error = error
        except Exception as error:  # of a thread: who waits for it raises it
            self.broken = error

    @property
    def unfinished(self) -> list[Step]:
        """Steps without an answer that says anything of the kernel. What was not run since a guard could not be, for
        a fault of the host, is one of them."""
        outcomes = self.progress.outcomes
        silent = {Status.INFRA_ERROR}
        if any(outcome.status is Status.INFRA_ERROR for outcome in outcomes):
            silent.add(Status.NOT_RUN)
        answered = {outcome.id for outcome in outcomes if outcome.status not in silent}
        return [step for step in self.prepared.plan.steps if step.configuration.id not in answered]


def prepare(request: Request, opener: HostOpener = open_host) -> PreparedRun:
    """The whole run, as if the first host were to carry it out; seeds are drawn, for all hosts alike.

    Raises UserError for hosts that cannot share a run."""
    first, *others = hosts = names(request.host)
    prepared = pipeline.prepare(replace(request, host=first), opener)
    settings = [settings_for(name, prepared.matrix) for name in hosts]
    for host in settings:
        if host.remote is None:
            hint = f"several hosts are those of kind {either(SUPERVISED)}; --workers is for one emulator"
            raise UserError(f"--host {request.host}: {host.name} keeps no runs", next_step=hint)
    for name, host in zip(others, settings[1:], strict=True):
        if _kernels(host) != _kernels(settings[0]):
            mine, other = " on ".join(_kernels(settings[0])), " on ".join(_kernels(host))
            raise UserError(f"--host {request.host}: {first} runs {mine}, {name} {other}", next_step="run them apart")
    return replace(prepared, request=replace(prepared.request, seed=prepared.seed, drawn=prepared.drawn))


def dealt(prepared: PreparedRun, hosts: Sequence[str]) -> dict[str, list[str]]:
    """Names of configurations by host, the guard's left out: the longest first, each to the host that would be done
    with it soonest, by what configurations have cost there and by how many it runs at once."""
    return _dealt(prepared, prepared.plan.rest, hosts)


def execute(request: Request, each: bool, observer: Observer, show: Show, opener: HostOpener = open_host) -> ExitCode:
    """Runs a request on all of its hosts to one verdict, archives and shows it.

    Raises what `pipeline.execute` raises. A host that is lost costs its share a second run elsewhere, where there is
    another and `each` is not asked for; an error where there is none. Runs go on without a client that is stopped.
    """
    from fmha.harness.stages.archive import make_record

    whole = prepare(request, opener)
    archive.prepare(whole.results)
    hosts = names(request.host)
    shared = Shared(observer, len(whole.plan.steps) * (len(hosts) if each else 1))
    parts: list[HostPart] = []
    try:
        if each:
            _side_by_side([replace(whole.request, host=name) for name in hosts], parts, shared, opener)
        else:
            _shares(whole, hosts, parts, shared, opener)
    except KeyboardInterrupt:
        runs = [f"fmha attach {run} --host {part.host}" for part in parts if (run := part.prepared.host.run_id)]
        step = f"the runs go on: {'; '.join(runs)}" if runs else ""
        raise InterruptionError("interrupted; nothing archived", next_step=step) from None
    if all(part.error for part in parts):
        raise next(part.error for part in parts if part.error)
    record = make_record(_circumstances(whole, parts), combined(whole.plan, parts, each))
    try:
        path = archive.write(record, whole.results)
    except InfrastructureError:
        show(record, None)
        raise
    show(record, path)
    return ExitCode(record.verdict.exit_code)


def combined(plan: Plan, parts: Sequence[HostPart], each: bool) -> list[Outcome]:
    """One outcome a step of the plan. Where several hosts had it, the worst of them; other bits are a failure. With
    `each`, a host without an answer counts."""
    found: dict[str, list[Answer]] = {step.configuration.id: [] for step in plan.steps}
    for part in parts:
        for outcome in part.progress.outcomes:
            if outcome.id in found:  # a share without one of the guard ran the guard's fallback
                found[outcome.id].append((part, outcome))
    return [_combined(step, _asked(step, found[step.configuration.id], parts, each)) for step in plan.steps]


def _asked(step: Step, found: list[Answer], parts: Sequence[HostPart], each: bool) -> list[Answer]:
    """The answers that count."""
    if each:
        answered = [part for part, _ in found]
        missing = [part for part in parts if part not in answered]
        return found + [(part, Outcome(step, Status.INFRA_ERROR, (str(part.error),))) for part in missing]
    ran = [item for item in found if item[1].status not in (Status.INFRA_ERROR, Status.NOT_RUN)]
    return ran or [item for item in found if item[1].status is not Status.INFRA_ERROR] or found


def _combined(step: Step, said: Sequence[Answer]) -> Outcome:
    if not said:
        return Outcome(step, Status.INFRA_ERROR, ("every host that was asked for it is lost",))
    if len(said) == 1:
        ((part, outcome),) = said
        return replace(outcome, step=step, place=_place(part, outcome))
    part, worst = min(said, key=lambda item: _WORST_FIRST.index(item[1].status))
    measured = [item for item in said if item[1].measurement is not None]
    if worst.measurement is None and measured:  # its numbers are shown, under the status of the other
        part, shown = measured[0]
    else:
        shown = worst
    differing = _differing(measured)
    reasons = [f"{_place(part, outcome)}: {reason}" for part, outcome in said for reason in outcome.reasons]
    return replace(
        shown,
        step=step,
        status=Status.FAIL if differing and worst.status is Status.PASS else worst.status,
        reasons=tuple(dict.fromkeys([*reasons, *differing])),
        place=_place(part, shown),
        hashes={_place(part, outcome): _hash(outcome) for part, outcome in measured},
    )


def _differing(measured: Sequence[Answer]) -> list[str]:
    """Which places have other bits than most of their kind: the odd one out, where there is one."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for part, outcome in measured:
        facts = part.prepared.host.facts()
        kind = facts.gpu.name if facts.gpu else part.prepared.host.device
        kinds.setdefault(kind, {}).setdefault(_hash(outcome), []).append(_place(part, outcome))
    lines = []
    for kind, hashes in kinds.items():
        most, *others = (", ".join(places) for places in sorted(hashes.values(), key=len, reverse=True))
        if others and len(max(hashes.values(), key=len)) > 1:
            lines.append(f"outputs differ on {kind}: {', '.join(others)} has other bits than {most}")
        elif others:
            lines.append(f"outputs differ on {kind}: {' against '.join([most, *others])}")
    return lines


def _hash(outcome: Outcome) -> str:
    assert outcome.measurement is not None
    return outcome.measurement.output_hash


def _place(part: HostPart, outcome: Outcome) -> str:
    return f"{part.host}/{outcome.place}" if outcome.place else part.host


def _kernels(host: HostSettings) -> tuple[str, str]:
    """What decides which kernels run, and on what."""
    assert host.remote is not None
    return host.remote.arch, host.remote.device


def _shares(
    whole: PreparedRun, hosts: Sequence[str], parts: list[HostPart], shared: Shared, opener: HostOpener
) -> None:
    """Adds all parts there were, those of lost hosts too. What these had not done is dealt out among the others."""
    guard = [step.configuration.id for step in whole.plan.guard if step.selected]
    rest, left = list(whole.plan.rest), list(hosts)
    while left and (rest or not parts):
        shares = {host: share for host, share in _dealt(whole, rest, left).items() if share or not rest}
        made: list[HostPart] = []
        first = [] if parts else guard  # those who take over have run it
        try:
            requests = [_of(whole.request, host, [*first, *share]) for host, share in shares.items()]
            _side_by_side(requests, made, shared, opener)
        finally:
            parts += made
        failed = [part for part in made if part.unfinished]
        left = [host for host in left if host not in {part.host for part in failed}]
        for part in failed:
            also = f"; what it has not done goes to {', '.join(left)}" if left else ""
            shared.tell(f"{part.host} {_why(part)}{also}")
        again = {step.configuration.id for part in failed for step in part.unfinished}
        rest = [step for step in rest if step.configuration.id in again]


def _why(part: HostPart) -> str:
    run = part.prepared.host.run_id
    where = f" (run {run})" if run else ""
    return f"is lost{where}: {part.error}" if part.error else f"has no answer for some of its share{where}"


def _of(request: Request, host: str, cases: Sequence[str]) -> Request:
    """The request for configurations by name, on one host."""
    return replace(
        request, host=host, suite=None, filters=(), random_cases=None, one_a_variant=False, cases=tuple(cases)
    )


def _side_by_side(requests: Iterable[Request], parts: list[HostPart], shared: Shared, opener: HostOpener) -> None:
    """Adds one part a request. Each begins in turn, since that is when the checkout is read; then all are followed."""
    threads: list[threading.Thread] = []
    git = None
    for request in requests:
        part = HostPart(request.host, pipeline.prepare(request, opener))
        if git is not None:  # a snapshot of the tree is one commit for all
            part.prepared = replace(part.prepared, git=git)
        observer = shared.of(request.host)
        try:
            part.prepared = pipeline.begin(part.prepared, observer)
        except UserError as error:
            if not threads:
                raise
            part.error = error
        except InfrastructureError as error:
            part.error = error
        else:
            git = part.prepared.git
            # A daemon: a client that is stopped does not wait for hosts, whose runs go on.
            threads.append(threading.Thread(target=part.run, args=(observer,), daemon=True))
            threads[-1].start()
        parts.append(part)
    for thread in threads:
        thread.join()
    for part in parts:
        if part.broken is not None:
            raise part.broken


def _dealt(prepared: PreparedRun, steps: Sequence[Step], hosts: Sequence[str]) -> dict[str, list[str]]:
    shares: dict[str, list[str]] = {host: [] for host in hosts}
    if not steps:
        return shares
    configurations = [step.configuration for step in steps]
    seats = {host: _seats(settings_for(host, prepared.matrix), prepared.request) for host in hosts}
    seconds = {host: estimates(configurations, archive.costs(prepared.results, host)) for host in hosts}
    busy = dict.fromkeys(hosts, 0.0)
    for item in sorted(configurations, key=lambda item: max(cost[item.id] for cost in seconds.values()), reverse=True):
        ends = {host: busy[host] + seconds[host][item.id] / seats[host] for host in hosts}
        host = min(hosts, key=ends.__getitem__)
        busy[host] = ends[host]
        shares[host].append(item.id)
    return shares


def _seats(host: HostSettings, request: Request) -> int:
    """How many configurations the host runs at once, as far as the settings say."""
    assert host.remote is not None
    slurm: Mapping[str, object] = host.remote.slurm or {}
    said = request.workers or slurm.get("tasks") or host.remote.gpu.get("count") or host.remote.workers
    return said if isinstance(said, int) and said else 1


class Shared:
    """The observer of the whole run, told by several hosts at once."""

    def __init__(self, observer: Observer, total: int) -> None:
        self._observer, self._total = observer, total
        self._lock = threading.Lock()
        self._done = 0

    def of(self, host: str) -> Observer:
        """What one host's part is to tell."""
        return _Told(self, host)

    def tell(self, text: str) -> None:
        """To the run's observer, one host at a time."""
        with self._lock:
            self._observer.tell(text)

    def note(self, text: str) -> None:
        """To the run's observer, one host at a time."""
        with self._lock:
            self._observer.note(text)

    def started(self, configuration: str) -> None:
        """To the run's observer, one host at a time."""
        with self._lock:
            self._observer.started(configuration)

    def finished(self, outcome: Outcome) -> None:
        """To the run's observer, counted over all hosts."""
        with self._lock:
            self._done += 1
            # The guard and what was lost run more than once.
            self._total = max(self._total, self._done)
            self._observer.finished(outcome, self._done, self._total)


class _Told:
    """What one host has to say, under its name."""

    def __init__(self, shared: Shared, host: str) -> None:
        self._shared, self._host = shared, host

    def stage(self, name: str, detail: str) -> None:
        self._shared.note(f"{self._host}: {name}: {detail}")

    def note(self, text: str) -> None:
        self._shared.note(text if text.startswith(f"{self._host}:") else f"{self._host}: {text}")

    def tell(self, text: str) -> None:
        self._shared.tell(text)

    def started(self, configuration: str) -> None:
        self._shared.started(configuration)

    def finished(self, outcome: Outcome, done: int, total: int) -> None:
        self._shared.finished(outcome)


def _circumstances(whole: PreparedRun, parts: Sequence[HostPart]) -> Circumstances:
    """Of all parts that came to an end; stages took as long as the slowest host."""
    ended = [part for part in parts if part.error is None] or list(parts)
    each = [pipeline.circumstances(part.prepared, part.progress) for part in ended]
    stages = {name for one in each for name in one.durations}
    facts = [one.host for one in each]
    return replace(
        each[0],
        plan=whole.plan,
        host=_together(list({fact.name: fact for fact in facts}.values())),
        builds={name: build for one in reversed(each) for name, build in one.builds.items()},
        durations={name: max(one.durations.get(name, 0.0) for one in each) for name in stages},
        started=min(one.started for one in each),
        finished=max(one.finished for one in each),
    )


def _together(facts: Sequence[HostProvenance]) -> HostProvenance:
    if len(facts) == 1:
        return facts[0]
    gpus = [gpu for fact in facts for gpu in (fact.gpus or ((fact.gpu,) if fact.gpu else ()))]
    return replace(facts[0], name="+".join(fact.name for fact in facts), gpus=tuple(gpus), hosts=tuple(facts))
