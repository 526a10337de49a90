"""Regress: a run held against its baseline."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.archive import RunRecord, signature
from fmha.harness.archive.record import Held
from fmha.harness.config import load
from fmha.harness.errors import CommitError, ConfigError, ExitCode, UserError
from fmha.harness.evidence import baseline
from fmha.harness.evidence.asked import asked, is_timed
from fmha.harness.evidence.story import Group, tell
from fmha.harness.git import resolve_commit
from fmha.harness.judge.comparison.comparison import Comparison, Kind, Regression, compare
from fmha.harness.judge.comparison.judged import named as named_files
from fmha.harness.judge.status import Status
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import Request, execute
from fmha.harness.stages.preflight import commit_facts, git_root
from fmha.harness.worker.subjects.adapter_process import AdapterError

NOTHING = "REGRESSED: nothing of this commit can be run"


@dataclass(frozen=True, slots=True)
class BaselineVerdict:
    """A run beside its baseline. `allowed` kinds are reported and do not count."""

    base: RunRecord
    new: RunRecord
    path: Path | None
    comparison: Comparison
    allowed: frozenset[Kind]
    told: tuple[str, ...]  # who vouches for the baseline; what has no speed to compare, and why

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be compared, and who vouches for the baseline."""
        return (*self.comparison.notes, *self.told)

    @property
    def groups(self) -> tuple[Group, ...]:
        """All that got worse, put together by what the configurations have in common."""
        return tell(self.comparison, self.base, self.new)

    @property
    def counted(self) -> tuple[Regression, ...]:
        """Those whose kind is not allowed: any of them is exit code 1."""
        return tuple(item for item in self.comparison.regressions if item.kind not in self.allowed)

    @property
    def exit_code(self) -> ExitCode:
        """1 for a regression, else the run's own code; what the baseline did not run either is no gap."""
        if self.counted:
            return ExitCode.GATE_FAILED
        code = ExitCode(self.new.verdict.exit_code)
        idle = {item.id for item in self.base.configurations if item.status is Status.NOT_RUN}
        gaps = [item.id for item in self.new.configurations if item.status is Status.NOT_RUN and item.id not in idle]
        return ExitCode.PASS if code is ExitCode.INCOMPLETE and not gaps else code

    def as_record(self) -> Held:
        """What the archive keeps of it."""
        counts = Counter(str(item.kind) for item in self.counted)
        return Held(baseline=self.base.commit.sha, regressions=dict(counts), exit_code=self.exit_code, words=str(self))

    def __str__(self) -> str:
        against = f"against commit {self.base.commit.sha[:12]}"
        if self.counted:
            counts = Counter(item.kind for item in self.counted)
            words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            return f"REGRESSED {against}: {words}"
        unasked = self.comparison.unasked  # the only line of --quiet says so, too
        apart = f"; {unasked} more were not asked for" if unasked else ""
        if self.exit_code is not ExitCode.PASS:
            return f"{self.new.verdict.word} {against}: no regression in what was compared{apart}"
        guards = " and the guard" if self.comparison.guards else ""
        compared = self.comparison.compared - self.comparison.guards
        return f"NO REGRESSION {against}, {compared} configurations{guards}{apart}"


def regress(
    request: Request,
    named: str | None,
    allowed: Collection[Kind],
    observer: Observer,
    show: Callable[[RunRecord, Path | None], None],
) -> BaselineVerdict:
    """Run what the baseline ran, or the part of it that filters name, and compare.

    `named` is a baseline; None takes that of the host's kind, the one of the request's suite if it has one. Suite, seed
    and schedule are the baseline's where the request leaves them open. On a GPU the baseline's commit is built as well
    and timed beside this one. Raises what `execute` does, UserError when there is no baseline, and CommitError where
    the commit's own adapter cannot be loaded.
    """
    try:
        return _regress(request, named, allowed, observer, show)
    except ConfigError as error:
        if request.judge is not None or not isinstance(error.__cause__, AdapterError):
            raise
        raise CommitError(f"{NOTHING}: {error.what}") from error


def cannot_be_run(reason: str) -> Regression:
    """That a commit's own code or matrix.yaml lets nothing of it be run: it has no record."""
    return Regression(Kind.STATUS, "commit", "run", "runs", "cannot be run", f"cannot be run: {reason}")


def _regress(
    request: Request,
    named: str | None,
    allowed: Collection[Kind],
    observer: Observer,
    show: Callable[[RunRecord, Path | None], None],
) -> BaselineVerdict:
    if commit_facts(request.directory).installed is not None:
        what = "nothing to compare with: a baseline is an accepted run of a commit, and here there is none"
        raise UserError(what, where=str(request.directory), next_step="run fmha in a checkout")
    root = git_root(request.directory)
    judge = _judge(request)
    results = judge / "results"  # a commit brings no baseline of its own, and does not say what a host is
    if request.suite and not named:
        named = baseline.of_suite(request.suite, request.host, results)
    base = _before(request, named, judge, results)
    if base:
        request = _completed(request, base, root)
    found: list[BaselineVerdict | UserError] = []

    def held(record: RunRecord) -> RunRecord:
        """The record says what came of the comparison, so that whoever sees the run later is told."""
        try:
            verdict = _held(record, base, named, request, results, frozenset(allowed))
        except UserError as error:  # raised once the run is archived
            found.append(error)
            return record
        record = record.model_copy(update={"regress": verdict.as_record()})
        found.append(dataclasses.replace(verdict, new=record))
        return record

    def keep(record: RunRecord, path: Path | None) -> None:
        if isinstance(verdict := found[0], BaselineVerdict):
            found[0] = dataclasses.replace(verdict, path=path)
        show(record, path)

    execute(request, observer, keep, amended=held)
    if isinstance(verdict := found[0], UserError):
        raise verdict
    return verdict


def _held(
    new: RunRecord, base: RunRecord | None, named: str | None, request: Request, results: Path, allowed: frozenset[Kind]
) -> BaselineVerdict:
    if base is None or (not named and baseline.name_of(base) != baseline.name_of(new)):
        base = baseline.load(baseline.name_of(new), results)
    comparison = _with_judge(compare(base, new, asked(base, new)), new)
    signed = signature.check(baseline.path_of(named or baseline.name_of(new), results))
    return BaselineVerdict(base, new, None, comparison, allowed, (signed.note, *_untimed(new, request)))


def _with_judge(comparison: Comparison, new: RunRecord) -> Comparison:
    """With the regression that a commit is which changes its own judge, until somebody accepts it."""
    judge = new.judge
    if judge is None or not judge.changed or judge.accepted:
        return comparison
    text = f"by the commit itself: {named_files(judge.changed)}"
    found = Regression(Kind.JUDGE, "changed", "commit", judge.commit, new.commit.sha, text)
    return dataclasses.replace(comparison, regressions=(found, *comparison.regressions))


def _judge(request: Request) -> Path:
    """The checkout that decides what is run, and what is held against what."""
    return request.judge.tree if request.judge else git_root(request.directory)


def _before(request: Request, named: str | None, judge: Path, results: Path) -> RunRecord | None:
    """The baseline, where it is known before the run: a GPU's name is known only after it, but the baseline of the host
    is that of its GPU unless it was given another."""
    if named:
        return baseline.load(named, results)
    settings = load(judge).hosts.get(request.host)
    if settings is not None and settings.kind == "emulator":
        return baseline.load(settings.kind, results)
    return baseline.of_host(request.host, results)


def _completed(request: Request, base: RunRecord, root: Path) -> Request:
    selection = base.selection
    timed = is_timed(_judge(request), request.host)
    return dataclasses.replace(
        request,
        suite=request.suite or selection.suite,
        filters=request.filters or ((selection.filter,) if selection.filter else ()),
        seed=selection.seed if request.seed is None else request.seed,
        schedule=request.schedule or selection.schedule,
        beside=resolve_commit(root, base.commit.sha) if timed else None,
    )


def _untimed(new: RunRecord, request: Request) -> Iterator[str]:
    """One line a reason."""
    if new.host.gpu is None:
        return
    if request.beside is None:
        yield "speed not compared: when the run began, no baseline of this host was known whose commit is in this clone"
    reasons = Counter(item.stats["untimed"] for item in new.configurations if "untimed" in item.stats)
    for reason, count in reasons.items():
        yield f"speed not compared in {count} configuration(s): {reason}"
