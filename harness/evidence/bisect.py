"""Bisect: the commit that made a regression, found by git bisect in a worktree of its own.

Every tested commit is an archived run in the bisection's folder, `.fmha/bisect/<key>/runs`. An interrupted bisection
goes on because git is asked anew and the runs that are there answer at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fmha.harness import archive
from fmha.harness.archive import Index, RunRecord
from fmha.harness.config import load
from fmha.harness.config.filters import NothingSelectedError
from fmha.harness.errors import UserError
from fmha.harness.evidence import baseline
from fmha.harness.evidence.comparison import Comparison, Kind, Regression, compare
from fmha.harness.evidence.noise import scaled, values_of
from fmha.harness.git import git, git_failure, git_text, resolve_commit
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import INTERRUPTED, Request, execute
from fmha.harness.status import Status

CHECKOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Bisection:
    """What is asked: the newest good and a later bad commit, and a run of the pipeline. `kind` None: the gravest."""

    good: str
    bad: str
    request: Request
    kind: Kind | None = None


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
    folder = root / ".fmha" / "bisect" / _key(good, bad, asked)
    with _locked(folder), _worktree(root, folder / "tree", good) as tree:
        search = _Search(root, folder, tree, asked, observer)
        return search.run(good, bad)


class _Search:
    """One bisection under way in its worktree."""

    def __init__(self, root: Path, folder: Path, tree: Path, asked: Bisection, observer: Observer) -> None:
        self._root = root
        self._runs = folder / "runs"
        self._tree = tree
        self._asked = asked
        self._observer = observer
        self._known: dict[str, Tested] = {}

    def run(self, good: str, bad: str) -> Culprit:
        first, last = self._test(good), self._test(bad)
        target = self._target(first, last)
        self._observer.note(f"looking for: {target[0]}")
        git(self._tree, "bisect", "reset", seconds=CHECKOUT_SECONDS)
        git_text(self._tree, "checkout", "--quiet", "--detach", good, seconds=CHECKOUT_SECONDS)
        said = git_text(self._tree, "bisect", "start", bad, good, seconds=CHECKOUT_SECONDS)
        while not (found := _finished(said)):
            sha = git_text(self._tree, "rev-parse", "HEAD")
            tested = self._test(sha)
            word = self._judge(tested, first, last, target)
            self._observer.note(f"{sha[:12]} {word}{f': {tested.reason}' if tested.reason else ''}")
            step = git(self._tree, "bisect", word, seconds=CHECKOUT_SECONDS)
            said = step.stdout
            if step.returncode != 0 and not _finished(said):
                raise git_failure(step)
        git(self._tree, "bisect", "reset", good, seconds=CHECKOUT_SECONDS)
        return self._culprit(found, first, target)

    def _target(self, first: Tested, last: Tested) -> tuple[Regression, ...]:
        """The regressions of the gravest kind, or of the kind that was asked for, between the ends."""
        for tested, name in ((first, "GOOD"), (last, "BAD")):
            if tested.record is None:
                raise UserError(f"{name}, {tested.sha[:12]}, cannot be tested: {tested.reason}")
        found = self._compare(first, last).regressions
        if self._asked.kind:
            found = tuple(item for item in found if item.kind is self._asked.kind)
        if not found:
            kind = f" of kind {self._asked.kind}" if self._asked.kind else ""
            raise UserError(
                f"{last.sha[:12]} has no regression{kind} against {first.sha[:12]}",
                next_step="widen the filter or name other commits",
            )
        return tuple(item for item in found if item.kind is found[0].kind)

    def _judge(self, tested: Tested, first: Tested, last: Tested, target: Sequence[Regression]) -> str:
        if tested.record is None:
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
        return compare(self._with_noise(first.record), other.record)

    def _with_noise(self, record: RunRecord) -> RunRecord:
        path = baseline.path_of(baseline.name_of(record), self._root / "results")
        if not path.is_file():
            return record
        return record.model_copy(update={"acceptance": archive.read(path).acceptance})

    def _test(self, sha: str) -> Tested:
        """Run a commit, unless that was done before."""
        if sha not in self._known:
            self._known[sha] = self._archived(sha) or self._executed(sha)
        return self._known[sha]

    def _archived(self, sha: str) -> Tested | None:
        with Index(self._runs) as index:
            rows = index.runs(sha=sha)
        for row in rows:
            record = archive.read(self._runs / row.name)
            if not any(item.reasons == [INTERRUPTED] for item in record.configurations):
                return _tested(sha, record, self._runs / row.name)
        return None

    def _executed(self, sha: str) -> Tested:
        self._observer.stage("bisect", f"{sha[:12]} {git_text(self._root, 'show', '-s', '--format=%s', sha)}")
        if git_text(self._tree, "rev-parse", "HEAD") != sha:
            git_text(self._tree, "checkout", "--quiet", "--detach", sha, seconds=CHECKOUT_SECONDS)
        try:
            found = self._run(self._asked.request.filters)
        except NothingSelectedError:  # all that was asked for is gone: what there is besides says so
            found = self._run(())
        except UserError as error:  # the commit's own matrix.yaml is wrong, or has nothing of what is asked
            return Tested(sha, None, None, error.what.splitlines()[0])
        return _tested(sha, *found)

    def _run(self, filters: Sequence[str]) -> tuple[RunRecord, Path | None]:
        asked, results = self._asked.request, self._runs.resolve()
        request = Request(self._tree, asked.host, asked.suite, filters, asked.seed, asked.schedule, results)
        found: list[tuple[RunRecord, Path | None]] = []
        execute(request, self._observer, lambda record, path: found.append((record, path)))
        return found[0]

    def _culprit(self, found: Sequence[str], first: Tested, target: Sequence[Regression]) -> Culprit:
        sha = found[-1]
        after = self._test(sha)
        before = self._before(sha, first)
        worse = self._compare(before, after).regressions if before.record and after.record else ()
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
            tested = self._test(ancestor)
            if tested.record is not None:
                return tested
        return first


def _tested(sha: str, record: RunRecord, path: Path | None) -> Tested:
    """A run is an answer unless something did not build."""
    for item in record.configurations:
        if item.status is Status.BUILD_ERROR:
            return Tested(sha, None, None, f"does not build: {item.reasons[0].splitlines()[0]}")
    return Tested(sha, record, path)


def _nearer_to_last(item: Regression, tested: Tested, first: Tested, last: Tested) -> bool:
    """Whether an error is closer to the bad end's than to the good end's. What has no number is no evidence."""
    values = []
    for end in (first, tested, last):
        assert end.record
        found = next((row for row in end.record.configurations if row.id == item.subject), None)
        if found is None or found.metrics is None:
            return False
        values.append(scaled(item.what, values_of(found.metrics)[item.what]))
    good, middle, bad = values
    return abs(middle - bad) < abs(middle - good)


def _finished(said: str) -> tuple[str, ...]:
    """The first bad commit, or the ones that it may be, the last of them the known bad one; empty while it goes on."""
    lines = said.splitlines()
    if lines and lines[0].endswith(" is the first bad commit"):
        return (lines[0].split()[0],)
    if lines and lines[0].startswith("There are only 'skip'ped commits left to test."):
        return tuple(line for line in lines[1:] if len(line) >= 40 and " " not in line)
    return ()


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
    parts = [request.host, request.suite, list(request.filters), request.seed, request.schedule]
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
    """A worktree with the checkout's build cache; one that a killed bisection left behind is made anew."""
    git(root, "worktree", "remove", "--force", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)
    git(root, "worktree", "prune")
    git_text(root, "worktree", "add", "--quiet", "--detach", str(tree), commit, seconds=CHECKOUT_SECONDS)
    try:
        cache = root / ".fmha" / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        (tree / ".fmha").mkdir()
        (tree / ".fmha" / "cache").symlink_to(cache)
        yield tree
    finally:
        git(root, "worktree", "remove", "--force", "--force", str(tree))
