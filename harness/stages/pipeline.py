"""The stages, piped: preflight -> plan -> sync -> build -> guard -> matrix, gate inside -> archive -> report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fmha.harness import account, archive
from fmha.harness.config import SCHEDULES, Matrix, load, parse_filter
from fmha.harness.errors import CancelledError, ExitCode, InfrastructureError, InterruptionError, UserError
from fmha.harness.hosts import Host, Order, open_host
from fmha.harness.judge.identity import identity
from fmha.harness.judge.schedules import drawn_schedules, parse_schedule, schedules_of
from fmha.harness.kernel_side import abi
from fmha.harness.stages import guard, matrix, shrink
from fmha.harness.stages.build import Builds, build
from fmha.harness.stages.outcome import Observer, Outcome
from fmha.harness.stages.plan import Plan, RunSelection, make_plan
from fmha.harness.stages.preflight import GitFacts, git_facts

# What a host's runner, which starts in the middle, does without is loaded where it is needed.
if TYPE_CHECKING:
    from fmha.harness.archive import RunRecord
    from fmha.harness.archive.record import Elsewhere
    from fmha.harness.stages.apart import JudgeApart
    from fmha.harness.stages.archive import Circumstances

CHOICES = (
    "suite",
    "filters",
    "seed",
    "schedule",
    "schedules",
    "one_a_variant",
    "random_cases",
    "cases",
    "noise_seeds",
    "drawn",
)

MOST_NAMED = 5  # files in a line
MOST_SEED = 2**31  # that anybody would type; drawn ones are larger

INTERRUPTED: Final = "interrupted"  # the reason of what a run that was stopped had not come to

HostOpener = Callable[[str, Matrix, Path], Host]
Show = Callable[["RunRecord", Path | None], None]
Amended = Callable[["RunRecord"], "RunRecord"]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for. None stands for matrix.yaml's word, or for `results/` of the checkout."""

    directory: Path
    _: KW_ONLY
    host: str = "emulator"
    suite: str | None = None
    filters: Sequence[str] = ()
    seed: int | None = None
    schedule: str | None = None
    results: Path | None = None
    schedules: int | None = None
    one_a_variant: bool = False
    random_cases: int | None = None
    cases: Sequence[str] = ()
    noise_seeds: Sequence[int] = ()  # under which every configuration is measured as well
    coverage: bool = False  # say which lines of the kernels were executed
    drawn: int | None = None  # the second seed to judge on; drawn anew where none is given and no noise is measured
    snapshot: bool = False
    approve_protected: bool = False
    priority: str = "normal"
    judge: JudgeApart | None = None  # another commit's; None: the harness that runs, with the checkout's matrix.yaml
    alike: str | None = None  # where nobody else judges: a commit of the default branch that has the same harness
    beside: str | None = None  # a commit to time beside, on hosts that run commits
    workers: int | None = None  # how many configurations run at once; None: the host's word


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A request made concrete; nothing has run yet."""

    request: Request
    git: GitFacts
    matrix: Matrix
    host: Host
    plan: Plan
    seed: int
    drawn: int | None
    schedules: tuple[str, ...]
    results: Path
    elsewhere: Elsewhere | None = None
    costs: Mapping[str, float] = field(default_factory=dict)  # seconds that configurations have taken before, by id

    @property
    def also(self) -> dict[str, tuple[str, ...]]:
        """Schedules that configurations meet besides, where the run has the first one alone and drew a seed."""
        if self.drawn is None or self.schedules != SCHEDULES[:1] or not self.host.device.startswith("emulator"):
            return {}
        cells = [(step.variant.name, step.configuration.id) for step in self.plan.steps if step.variant]
        return drawn_schedules(self.drawn, cells)

    @property
    def schedule(self) -> str:
        """As `--schedule` takes it."""
        return ",".join(self.schedules)


@dataclass(slots=True)
class Progress:
    """What has been learned so far."""

    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    durations: dict[str, float] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    builds: Builds = field(default_factory=dict)
    otherwise: tuple[str, ...] = ()  # files that were built, and that the commit has otherwise or not at all

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """How long it takes in here goes to the stage's duration."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.durations[name] = time.monotonic() - start


def prepare(request: Request, opener: HostOpener = open_host) -> PreparedRun:
    """Preflight and plan. Raises UserError or InfrastructureError; touches nothing."""
    git = git_facts(request.directory)
    # Hosts are the judge's and the user's own: what the judged commit calls one could be any program.
    settings = load(request.judge.tree if request.judge is not None else git.root).complete()
    host = opener(request.host, settings, git.root)
    if request.judge is not None:
        from fmha.harness.stages.apart import launches_otherwise

        if launches_otherwise(request.judge):
            host.judge_apart(request.judge.commit, git.root)
    elif not host.exact:  # which launches by the commit's own code
        _known_struct(git.root)
    return prepare_for(request, git, settings, host)


def prepare_for(request: Request, git: GitFacts, settings: Matrix, host: Host) -> PreparedRun:
    """The plan for a commit and a host that are known already."""
    if request.cases and (request.suite or request.random_cases is not None):
        other = "--suite" if request.suite else "--cases"
        raise UserError(f"--case: names what to run in place of a suite, {other} a suite", next_step="use either")
    if request.coverage and host.device != "emulator":
        raise UserError("--coverage: only the emulator knows which instructions are executed", where=request.host)
    accepted = parse_filter(request.filters, settings.keys)
    seed = settings.seed if request.seed is None else request.seed
    selection = RunSelection(
        request.suite or settings.default_suite,
        accepted,
        seed,
        request.random_cases,
        request.cases,
        request.one_a_variant,
    )
    plan = make_plan(settings, selection, host)
    return PreparedRun(
        request=request,
        git=git,
        matrix=settings,
        host=host,
        plan=plan,
        seed=seed,
        drawn=_drawn(request, seed),
        schedules=_schedules(request, settings),
        results=request.directory / request.results if request.results else account.no_link(git.home / "results"),
    )


def _known_struct(root: Path) -> None:
    """UserError where a checkout's kernels take other parameters than this fmha packs: they would read what is not
    there, and a bisection would call that a regression."""
    header = root / abi.PARAMS_HEADER
    if not header.is_file() or header.samefile(abi.header(abi.PARAMS_HEADER)):
        return
    try:
        taken = abi.layout_of(header.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(str(error), where=str(header)) from error
    if taken != abi.layout_of(abi.header(abi.PARAMS_HEADER).read_text(encoding="utf-8")):
        raise UserError(
            "its kernels take another parameter struct than this fmha launches with",
            where=str(header),
            next_step="run that commit by its own fmha (make install in its checkout), or name a judge by --judge",
        )


def _drawn(request: Request, seed: int) -> int | None:
    """A seed that nobody could know when the kernel was written. Noise is measured under seeds of its own already."""
    if request.drawn is not None and request.drawn == seed:
        raise UserError(f"--drawn: {seed} is the run's own seed", next_step="leave it out, or take another")
    if request.drawn is not None or request.noise_seeds:
        return request.drawn
    return MOST_SEED + secrets.randbelow(MOST_SEED)  # apart from the small seeds that people choose


def _schedules(request: Request, settings: Matrix) -> tuple[str, ...]:
    if request.schedules is not None:
        if request.schedule is not None:
            raise UserError("--schedules: explores several schedules, --schedule is one", next_step="use either")
        return schedules_of(request.schedules)
    host = settings.hosts.get(request.host)  # a run's commit need not know the host that it runs on
    schedules = tuple((request.schedule or (host.schedule if host else SCHEDULES[0])).split(","))
    for schedule in schedules:
        try:
            parse_schedule(schedule, 0)
        except ValueError as error:
            raise UserError(f"--schedule: {error}") from error
    if len(set(schedules)) < len(schedules):
        raise UserError("--schedule: one is repeated")
    return schedules


def execute(
    request: Request,
    observer: Observer,
    show: Show,
    opener: HostOpener = open_host,
    amended: Amended | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> ExitCode:
    """Run a request to its verdict, archive it and show it. What `amended` makes of the record is what is archived;
    `meanwhile` is done while a host elsewhere is at work.

    Raises UserError, InfrastructureError, or InterruptionError when stopped from outside. What was finished by then is
    archived, the rest of it as not-run; but a run on a host elsewhere goes on, and `attach` archives it. A record that
    cannot be archived is shown before the error is raised.
    """
    progress = Progress()
    with progress.stage("preflight"):
        prepared = prepare(request, opener)
        archive.prepare(prepared.results)
    begun = begin(prepared, observer)
    return conclude(begun, observer, show, progress, amended, meanwhile if begun.host.exact else None)


def begin(prepared: PreparedRun, observer: Observer) -> PreparedRun:
    """Hand the whole order to the host; one that takes commits only gets the commit. The facts of what is judged."""
    request, host = prepared.request, prepared.host
    git, matrix_text = prepared.git, ""
    costs = archive.costs(prepared.results, request.host)
    if host.exact:
        from fmha.harness.stages import sync

        git = sync.exact_commit(git, observer.tell, snapshot=request.snapshot)
        matrix_text = sync.matrix_text(request.judge.tree if request.judge else git.root)
        observer.stage("sync", f"commit {git.commit[:12]}")
    order = Order(
        sha=git.commit,
        branch=git.branch,
        label=" ".join([f"suite {prepared.plan.suite}", *(f"--filter {text}" for text in request.filters)]),
        request={
            **choices(request),
            "suite": prepared.plan.suite,
            "seed": prepared.seed,
            "drawn": prepared.drawn,
            "schedule": prepared.schedule,
            "schedules": None,
        },
        limits=prepared.matrix.limits,
        matrix=matrix_text,
        matrix_sha256=prepared.matrix.sha256,
        approve_protected=request.approve_protected,
        priority=request.priority,
        alike=request.alike is not None or request.judge is not None,  # one with another harness goes along
        beside=request.beside,
        spare=archive.baseline_commits(prepared.results) if host.exact else (),
        workers=request.workers,
        costs={name: costs[name] for step in prepared.plan.steps if (name := step.configuration.id) in costs},
    )
    host.begin(order, observer.note, observer.tell)
    return replace(prepared, git=git, costs=order.costs)


def choices(request: Request) -> dict[str, object]:
    """What of a request chooses the configurations and how they run, as plain data that `Request` takes again."""
    return {name: getattr(request, name) for name in CHOICES}


def conclude(
    prepared: PreparedRun,
    observer: Observer,
    show: Show,
    progress: Progress | None = None,
    amended: Amended | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> ExitCode:
    """Carry what has begun to its verdict; errors, and `meanwhile`, are those of `execute`."""
    progress = progress or Progress()
    try:
        carry_out(prepared, progress, observer, meanwhile)
        prepared.host.finish()
    except KeyboardInterrupt:
        raise _interrupted(prepared, progress) from None
    from fmha.harness.stages.archive import make_record

    record = make_record(circumstances(prepared, progress), progress.outcomes)
    record = amended(record) if amended else record
    try:
        run = prepared.host.run_id
        path = archive.write(record, prepared.results, f"{run}-{prepared.request.host}" if run else None)
    except InfrastructureError:
        show(record, None)
        raise
    show(record, path)
    return ExitCode(record.verdict.exit_code)


def _interrupted(prepared: PreparedRun, progress: Progress) -> InterruptionError:
    """What is said of a run that was stopped; what it had finished, if it was here, is archived first."""
    from fmha.harness.stages.archive import make_record

    done, steps = progress.outcomes, prepared.plan.steps
    words = f"interrupted: {len(done)} of {len(steps)} configurations finished"
    if run := prepared.host.run_id:
        step = f"the run goes on; fmha attach {run} --host {prepared.request.host}"
        return InterruptionError(f"{words}; nothing archived", next_step=step)
    if not done:
        return InterruptionError(f"{words}; nothing archived")
    finished = {outcome.id for outcome in done}
    rest = [step for step in steps if step.configuration.id not in finished]
    record = make_record(circumstances(prepared, progress), [*done, *guard.withheld(rest, INTERRUPTED, "stopped")])
    path = archive.write(record, prepared.results)
    return InterruptionError(f"{words}; archived", next_step=f"fmha results show {path.stem}")


def carry_out(
    prepared: PreparedRun, progress: Progress, observer: Observer, meanwhile: Callable[[], None] | None = None
) -> None:
    """Build, guard and matrix on the host; builds and outcomes are added to `progress`, these in the plan's order.
    `meanwhile` is done once everything is built, while a host elsewhere starts its workers."""
    plan = prepared.plan
    with progress.stage("build"):
        observer.stage("build", _count(plan.variants, "variant"))
        try:
            progress.builds = build(plan, prepared.host, prepared.matrix.limits, observer)
        except CancelledError as error:
            kept = guard.withheld([*plan.guard, *plan.rest], str(error.what), "stopped")
            _collect(kept, prepared, progress, observer)
            return
    if meanwhile is not None:
        meanwhile()
    progress.otherwise = _otherwise(prepared, progress.builds, observer)
    context = matrix.Context(
        matrix=prepared.matrix,
        host=prepared.host,
        builds=progress.builds,
        seed=prepared.seed,
        schedules=prepared.schedules,
        observer=observer,
        noise_seeds=tuple(prepared.request.noise_seeds),
        coverage=prepared.request.coverage,
        drawn=prepared.drawn,
        also=prepared.also,
        workers=prepared.request.workers or 0,
        costs=prepared.costs,
        timed=bool(plan.filter.kernels),  # who names kernels compares them
    )
    with progress.stage("guard"):
        observer.stage("guard", _count(plan.guard, "configuration"))
        _collect(matrix.run(plan.guard, context), prepared, progress, observer)
        reason = guard.alarm(progress.outcomes)
    with progress.stage("matrix"):
        if plan.rest:
            observer.stage("matrix", reason or _count(plan.rest, "configuration"))
        rest = guard.withheld(plan.rest, reason, "guard") if reason else matrix.run(plan.rest, context)
        _collect(rest, prepared, progress, observer)
    place = shrink.first_red(progress.outcomes)
    if place is not None and _is_drawn(progress.outcomes[place], prepared):
        with progress.stage("shrink"):
            observer.stage("shrink", progress.outcomes[place].id)
            progress.outcomes[place] = shrink.shrunk(progress.outcomes[place], context)


def _otherwise(prepared: PreparedRun, builds: Builds, observer: Observer) -> tuple[str, ...]:
    """The files that were built here and are not the commit's, though git may have called the checkout clean."""
    facts = prepared.git
    if prepared.host.exact or facts.installed is not None:  # a commit's own worktree, proved; no commit at all
        return ()
    from fmha.harness.stages.as_committed import otherwise, read_by

    known = frozenset(facts.dirty_files)
    found = otherwise(facts.root, facts.commit, read_by(facts.root, builds.values())) if facts.commit else ()
    below = tuple(f"{name}/" for name in known)  # git names a changed submodule alone
    more = tuple(name for name in found if name not in known and not name.startswith(below))
    if more:
        named = ", ".join(more[:MOST_NAMED]) + (f" and {len(more) - MOST_NAMED} more" if len(more) > MOST_NAMED else "")
        observer.note(f"built of other files than commit {facts.commit[:12]} has, whatever git status says: {named}")
    return more


def _is_drawn(outcome: Outcome, prepared: PreparedRun) -> bool:
    """Whether a random suite brought the configuration: no other suite that was asked for has it."""
    matrix = prepared.matrix
    suites = matrix.named(prepared.plan.suite) if prepared.plan.suite else ()
    written = {item for name in suites if name in matrix.suites for item in matrix.suites[name]}
    return bool(set(suites) & set(matrix.random_suites)) and outcome.step.configuration not in written


def _collect(
    outcomes: Generator[Outcome, None, None], prepared: PreparedRun, progress: Progress, observer: Observer
) -> None:
    with closing(outcomes):
        for outcome in outcomes:
            progress.outcomes.append(outcome)
            observer.finished(outcome, len(progress.outcomes), len(prepared.plan.steps))
    places = {step.configuration.id: place for place, step in enumerate(prepared.plan.steps)}
    progress.outcomes.sort(key=lambda outcome: places[outcome.id])  # several workers end in another order


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"


def circumstances(prepared: PreparedRun, progress: Progress) -> Circumstances:
    """What a record says of where and how a run was made."""
    from fmha.harness.stages.archive import Circumstances

    started, finished = prepared.host.span() or (progress.started, datetime.now(UTC))
    return Circumstances(
        git=replace(prepared.git, dirty_files=(*prepared.git.dirty_files, *progress.otherwise)),
        host=prepared.host.facts(),
        plan=prepared.plan,
        seed=prepared.seed,
        drawn=prepared.drawn,
        biases=prepared.matrix.biases,
        schedule=prepared.schedule,
        matrix_sha256=prepared.matrix.sha256,
        judge=identity(prepared.matrix.judged_sha256, own=prepared.matrix.files),
        apart=prepared.request.judge,
        alike=prepared.request.alike,
        builds=progress.builds,
        durations={**progress.durations, **prepared.host.durations()},
        started=started,
        finished=finished,
        elsewhere=prepared.elsewhere,
    )
