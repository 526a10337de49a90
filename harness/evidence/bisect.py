"""Bisect: the commit that made a regression, found by tests of commits in worktrees of their own.

Every tested commit is an archived run in the bisection's folder, which the account has for each checkout and question.
An interrupted bisection goes on because it asks the same questions again and the runs that are there answer at once.
Several commits are tested side by side where there are several hosts, or where a host is asked for several at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fmha.harness import account, archive
from fmha.harness.archive import Index, RunRecord
from fmha.harness.config import load
from fmha.harness.config.filters import NothingSelectedError
from fmha.harness.errors import FmhaError, InfrastructureError, UserError
from fmha.harness.evidence import baseline
from fmha.harness.evidence.asked import asked, is_timed
from fmha.harness.evidence.regress import cannot_be_run
from fmha.harness.evidence.suspects import Suspects
from fmha.harness.git import git, git_text, resolve_commit
from fmha.harness.judge.comparison.comparison import Comparison, Kind, Regression, compare
from fmha.harness.judge.comparison.noise import scaled, values_of
from fmha.harness.judge.status import Status
from fmha.harness.stages import several
from fmha.harness.stages.named_hosts import names
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import INTERRUPTED, Request, execute

CHECKOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Bisection:
    """What is asked: the newest good and a later bad commit, and a run of the pipeline. `kind` None: the gravest.

    `at_once` is how many commits each host of the request tests side by side.
    """

    good: str
    bad: str
    request: Request
    kind: Kind | None = None
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class Tested:
    """A commit with its run, or with the reason why it has none."""

    sha: str
    record: RunRecord | None
    path: Path | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first bad commit, what it made worse against the commit before it, and how often commits were run."""

    sha: str
    subject: str
    before: Tested
    after: Tested
    regressions: tuple[Regression, ...]
    candidates: tuple[str, ...]  # more than one when those between could not be tested
    tested: int
    skipped: tuple[Tested, ...]


def bisect(root: Path, asked: Bisection, observer: Observer) -> Culprit:
    """Find the first commit with the regression that `bad` has against `good`.

    Raises UserError when the ends are no such pair or the bisection is under way elsewhere, and what `execute` raises;
    a bisection that was stopped goes on when it is asked for again.
    """
    good, bad = _ends(root, asked)
    asked = _pinned(root, asked)
    hosts = names(asked.request.host)
    if asked.kind in (None, Kind.SPEED) and all(is_timed(root, host) for host in hosts):
        asked = replace(asked, request=replace(asked.request, beside=good))  # times count beside GOOD's alone
    elif asked.kind is Kind.SPEED:
        raise UserError(f"{asked.request.host} times nothing", next_step="name a host with a GPU: --host NAME")
    if len(hosts) > 1:
        several.prepare(asked.request)  # whether they run the same kernels on the same kind of device
    folder = folder_of(root) / _key(good, bad, asked)
    with _locked(folder), ExitStack() as stack:
        places = []
        for number in range(len(hosts) * asked.at_once):
            tree = stack.enter_context(_worktree(root, folder / (f"tree-{number}" if number else "tree"), good))
            places.append(_TestTree(hosts[number % len(hosts)], tree))
        search = _Search(root, folder, places, asked, observer)
        return search.run(good, bad)


def folder_of(root: Path) -> Path:
    """Where bisections of a checkout are kept. Not in it: a commit could bring the answers of others."""
    return account.folder("bisect", outside=root) / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]


@dataclass(slots=True)
class _TestTree:
    """Where one commit at a time is tested. `error` is why it tests no more, or a fault of ours."""

    host: str
    tree: Path
    error: Exception | None = None


@dataclass(slots=True)
class _Turn:
    """One commit that a place is testing."""

    sha: str
    place: _TestTree
    tested: Tested | None = field(default=None)


class _Search:
    """One bisection under way in its worktrees."""

    def __init__(self, root: Path, folder: Path, places: list[_TestTree], asked: Bisection, observer: Observer) -> None:
        self._root = root
        self._runs = folder / "runs"
        self._places = places
        self._asked = asked
        self._observer = observer
        self._shared = several.Shared(observer, 0)
        self._known: dict[str, Tested] = {}

    def run(self, good: str, bad: str) -> Culprit:
        first, last = self._test(good, bad)
        target = self._target(first, last)
        self._observer.note(f"looking for: {target[0]}")
        suspects = Suspects(self._between(good, bad))
        while chosen := suspects.choose(len(self._places)):
            words: dict[str, list[str]] = {"good": [], "bad": [], "skip": []}
            for tested in self._test(*chosen):
                word = self._judge(tested, first, last, target)
                self._observer.note(f"{tested.sha[:12]} {word}{f': {tested.reason}' if tested.reason else ''}")
                words[word].append(tested.sha)
            suspects.learn(words["good"], words["bad"], words["skip"])
        return self._culprit(suspects.left, first, target)

    def _between(self, good: str, bad: str) -> dict[str, list[str]]:
        listed = git_text(self._root, "rev-list", "--topo-order", "--reverse", "--parents", f"{good}..{bad}")
        return {sha: parents for sha, *parents in (line.split() for line in listed.splitlines())}

    def _target(self, first: Tested, last: Tested) -> tuple[Regression, ...]:
        """The regressions of the gravest kind, or of the kind that was asked for, between the ends."""
        if first.record is None:
            raise UserError(f"GOOD, {first.sha[:12]}, cannot be tested: {first.reason}")
        if last.record is None:
            if self._asked.kind not in (None, Kind.STATUS):
                raise UserError(f"BAD, {last.sha[:12]}, cannot be tested: {last.reason}", next_step="leave --for out")
            return (cannot_be_run(last.reason),)
        found = self._compare(first, last).regressions
        if self._asked.kind:
            found = tuple(item for item in found if item.kind is self._asked.kind)
        if not found:
            kind = f" of kind {self._asked.kind}" if self._asked.kind else ""
            cached = self._asked.kind is Kind.BUILD and any(variant.cached for variant in last.record.variants)
            raise UserError(
                f"{last.sha[:12]} has no regression{kind} against {first.sha[:12]}",
                next_step="its builds came from the cache, and have no time: set FMHA_CACHE to an empty folder"
                if cached
                else "widen the filter or name other commits",
            )
        return tuple(item for item in found if item.kind is found[0].kind)

    def _judge(self, tested: Tested, first: Tested, last: Tested, target: Sequence[Regression]) -> str:
        if last.record is None:  # what is looked for is why it cannot be tested
            alike = tested.record is None and _without_numbers(tested.reason) == _without_numbers(last.reason)
            return "bad" if alike else "good" if tested.record is not None else "skip"
        if tested.record is None or _unmeasured(tested.record, target):
            return "skip"
        if target[0].kind is Kind.NUMBERS:
            return "bad" if any(_nearer_to_last(item, tested, first, last) for item in target) else "good"
        wanted = {(item.subject, item.what) for item in target}
        found = self._compare(first, tested).regressions
        return "bad" if any((item.subject, item.what) in wanted for item in found) else "good"

    def _compare(self, first: Tested, other: Tested) -> Comparison:
        """Against the good end, with the noise of the baseline if there is one."""
        assert first.record
        assert other.record
        base = baseline.with_noise(first.record, self._root / "results")
        return compare(base, other.record, asked(base, other.record))

    def _test(self, *shas: str) -> list[Tested]:
        """Run commits side by side, unless that was done before. A place that fails leaves its commit to the others."""
        for sha in shas:
            if sha not in self._known and (before := self._archived(sha)):
                self._known[sha] = before
        while missing := [sha for sha in dict.fromkeys(shas) if sha not in self._known]:
            turns = [_Turn(sha, place) for sha, place in zip(missing, self._places, strict=False)]
            if len(self._places) == 1:
                turns[0].tested = self._executed(turns[0].sha, turns[0].place, self._observer)
            else:
                self._side_by_side(turns)
            self._known.update((turn.sha, turn.tested) for turn in turns if turn.tested is not None)
        return [self._known[sha] for sha in shas]

    def _side_by_side(self, turns: Sequence[_Turn]) -> None:
        # A client that is stopped does not wait for them.
        threads = [threading.Thread(target=self._take, args=(turn,), daemon=True) for turn in turns]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for turn in turns:
            error = turn.place.error
            if error is None:
                continue
            if not isinstance(error, InfrastructureError) or len(self._places) == 1:
                raise error
            self._places.remove(turn.place)
            self._observer.tell(f"{turn.place.host} is lost: {error}; the other hosts test {turn.sha[:12]}")

    def _take(self, turn: _Turn) -> None:
        try:
            turn.tested = self._executed(turn.sha, turn.place, self._shared.of(turn.place.host))
        except (FmhaError, OSError) as error:  # of a thread: who waits for it raises it
            turn.place.error = error

    def _archived(self, sha: str) -> Tested | None:
        with Index(self._runs) as index:
            rows = index.runs(sha=sha)
        for row in rows:
            record = archive.read(self._runs / row.name)
            interrupted = any(item.reasons == [INTERRUPTED] for item in record.configurations)
            if not interrupted and _machinery(record) is None:
                return _tested(sha, record, self._runs / row.name)
        return None

    def _executed(self, sha: str, place: _TestTree, observer: Observer) -> Tested:
        observer.stage("bisect", f"{sha[:12]} {git_text(self._root, 'show', '-s', '--format=%s', sha)}")
        if git_text(place.tree, "rev-parse", "HEAD") != sha:
            git_text(place.tree, "checkout", "--quiet", "--detach", sha, seconds=CHECKOUT_SECONDS)
        try:
            try:
                record, path = self._run(self._asked.request.filters, place, observer)
            except NothingSelectedError:  # all that was asked for is gone: what there is besides says so
                record, path = self._run((), place, observer)
        except UserError as error:  # the commit's own matrix.yaml is wrong, or has nothing of what is asked
            return Tested(sha, None, None, error.what.splitlines()[0])
        if reason := _machinery(record):
            raise InfrastructureError(f"{sha[:12]} could not be tested on {place.host}: {reason}")
        return _tested(sha, record, path)

    def _run(self, filters: Sequence[str], place: _TestTree, observer: Observer) -> tuple[RunRecord, Path | None]:
        asked = self._asked.request
        request = replace(
            asked,
            directory=place.tree,
            host=place.host,
            filters=filters,
            results=self._runs.resolve(),
            workers=1 if self._asked.at_once > 1 else None,
        )
        found: list[tuple[RunRecord, Path | None]] = []
        execute(request, observer, lambda record, path: found.append((record, path)))
        return found[0]

    def _culprit(self, found: Sequence[str], first: Tested, target: Sequence[Regression]) -> Culprit:
        sha = found[-1]
        (after,) = self._test(sha)
        before = self._before(sha, first)
        worse: Sequence[Regression] = target
        if before.record and after.record:
            worse = self._compare(before, after).regressions
        wanted = {(item.kind, item.subject, item.what) for item in target}
        return Culprit(
            sha,
            git_text(self._root, "show", "-s", "--format=%s", sha),
            before,
            after,
            tuple(item for item in worse if (item.kind, item.subject, item.what) in wanted) or tuple(worse),
            tuple(found),
            sum(item.record is not None for item in self._known.values()),
            tuple(item for item in self._known.values() if item.record is None),
        )

    def _before(self, sha: str, first: Tested) -> Tested:
        """The nearest ancestor that can be tested."""
        chain = git_text(self._root, "rev-list", "--first-parent", f"{first.sha}..{sha}^").split()
        for ancestor in chain:
            (tested,) = self._test(ancestor)
            if tested.record is not None:
                return tested
        return first


def _tested(sha: str, record: RunRecord, path: Path | None) -> Tested:
    """A run is an answer unless something did not build."""
    for item in record.configurations:
        if item.status is Status.BUILD_ERROR:
            return Tested(sha, None, None, f"does not build: {item.reasons[0].splitlines()[0]}")
    return Tested(sha, record, path)


def _machinery(record: RunRecord) -> str | None:
    """Why the run says nothing of the commit, where a fault of the machinery left something without an answer."""
    for item in record.configurations:
        if item.status is Status.INFRA_ERROR:
            return item.reasons[0] if item.reasons else "a configuration has no answer"
    return None


def _without_numbers(text: str) -> str:
    """What is alike of one fault in several commits: its line may be another."""
    return re.sub(r"\d+", "0", text)


def _unmeasured(record: RunRecord, target: Sequence[Regression]) -> bool:
    """Whether the run has nothing to say of what is looked for: something else kept it from being measured."""
    if target[0].kind is Kind.BUILD:
        compiled = {variant.name for variant in record.variants if variant.processor_seconds}
        return compiled.isdisjoint(item.subject for item in target)
    if target[0].kind is Kind.SPEED:
        timed = {item.id for item in record.configurations if item.timing is not None and item.timing.beside}
        return timed.isdisjoint(item.subject for item in target)
    if target[0].kind not in (Kind.NUMBERS, Kind.COUNTERS, Kind.HASH):
        return False
    measured = {item.id for item in record.configurations if item.metrics is not None}
    return measured.isdisjoint(item.subject for item in target)


def _nearer_to_last(item: Regression, tested: Tested, first: Tested, last: Tested) -> bool:
    """Whether an error is closer to the bad end's than to the good end's. What has no number is no evidence."""
    values = []
    for end in (first, tested, last):
        assert end.record
        found = next((row for row in end.record.configurations if row.id == item.subject), None)
        measured = values_of(found.metrics) if found is not None and found.metrics is not None else {}
        if item.what not in measured:
            return False
        values.append(scaled(item.what, measured[item.what]))
    good, middle, bad = values
    return abs(middle - bad) < abs(middle - good)


def _pinned(root: Path, asked: Bisection) -> Bisection:
    """Suite and seed as matrix.yaml has them now: commits that change its defaults are asked the same question."""
    settings, request = load(root), asked.request
    suite, seed = request.suite or settings.default_suite, settings.seed if request.seed is None else request.seed
    return replace(asked, request=replace(request, suite=suite, seed=seed))


def _ends(root: Path, asked: Bisection) -> tuple[str, str]:
    ends = []
    for name in (asked.good, asked.bad):
        sha = resolve_commit(root, name)
        if sha is None:
            raise UserError(f"{name!r} is no commit", where=str(root))
        ends.append(sha)
    good, bad = ends
    if good == bad or git(root, "merge-base", "--is-ancestor", good, bad).returncode != 0:
        raise UserError(
            f"{asked.good} is not an earlier commit of {asked.bad}", next_step="GOOD comes first, BAD later"
        )
    return good, bad


def _key(good: str, bad: str, asked: Bisection) -> str:
    """The same for the same question, so that its runs are found again."""
    request = asked.request
    parts = [request.host, request.suite, list(request.filters), request.seed, request.schedule, request.beside]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return f"{good[:12]}-{bad[:12]}-{digest[:8]}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("this bisection is under way in another process", where=str(folder)) from None
        yield


@contextmanager
def _worktree(root: Path, tree: Path, commit: str) -> Iterator[Path]:
    """A worktree; one that a killed bisection left behind is made anew."""
    git(root, "worktree", "remove", "--force", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)
    git(root, "worktree", "prune")
    git_text(root, "worktree", "add", "--quiet", "--detach", str(tree), commit, seconds=CHECKOUT_SECONDS)
    try:
        yield tree
    finally:
        git(root, "worktree", "remove", "--force", "--force", str(tree))
