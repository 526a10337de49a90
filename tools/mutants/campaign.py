"""Many mutants: a process each, as many at once as there are cores. A later run goes on from the outcomes kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from fmha.harness.config import Matrix
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import OURS
from fmha.harness.judge.identity import CORE, sources
from fmha.harness.worker.compilers.sources import hash_sources
from fmha.harness.worker.process import die_with_parent
from tools.mutants.examine import Examination, Kill, Suite, by_variant, compile_ptx, copy_kernel
from tools.mutants.library import Mutant

Status = Literal["killed", "survived", "same-code"]

_FORK = multiprocessing.get_context("fork")  # the harness is imported once


# What the kernels of an architecture are made of: a change of the other one's says nothing of them.
SOURCES = {
    "sm_100a": ("kernel/common", "kernel/include", "kernel/sm100"),
    "sm_90a": ("kernel/common", "kernel/include", "kernel/sm90"),
}


# No mutant sends these: whoever ends the tool's processes has noticed nothing.
FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL})


class CampaignError(Exception):
    """The kernels themselves do not pass: nothing can be said about mistakes in them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A mutant on one architecture."""

    mutant: Mutant
    arch: str

    @property
    def title(self) -> str:
        return f"{self.mutant.name} on {self.arch}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What every case goes through: the default run of its architecture, then each suite of `others`, these only for
    survivors unless `every`. `seconds` of processor time end a configuration. `seen` has, by name and architecture of
    a case, the configuration that has noticed it before and is tried first."""

    repository: Path
    matrix: Matrix
    default: Mapping[str, Suite]
    others: tuple[Suite, ...]
    every: bool
    seconds: float
    jobs: int
    seen: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def key(self, case: Case) -> str:
        """Equal where what a suite said of the case still holds, if it has the same configurations."""
        (usual, *natures), *_ = self.matrix.kernels[OURS].held
        gates = (usual, self.matrix.guard, *natures, self.matrix.seed)
        facts = (case.mutant.digest, case.arch, hash_sources(self.repository, SOURCES[case.arch]), repr(gates))
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def silence(self, suite: Suite, ran: bool = True) -> str:
        """Equal where what a suite did not notice is not noticed now. Limits on bias and the emulator's core are not
        part of `key`: a kill without the one, or by an earlier other, holds. Where no code differed, none `ran`."""
        if not ran:
            return suite.digest
        core = sources(self.repository)[CORE]
        return hashlib.sha256(f"{suite.digest} {self.matrix.biases!r} {core}".encode()).hexdigest()[:16]

    def suites(self, arch: str) -> tuple[Suite, ...]:
        """The default run first."""
        return (self.default[arch], *self.others)

    def settles(self, case: Case, outcome: Outcome) -> bool:
        """Whether an earlier outcome says all that a run would: a kill by a configuration that is still there does, and
        silence of the same configurations."""
        default, *others = self.suites(case.arch)
        needed = [default] if outcome.suites.get(default.name) and not self.every else [default, *others]
        return all(self._holds(suite, outcome) for suite in needed)

    def _holds(self, suite: Suite, outcome: Outcome) -> bool:
        kill = outcome.suites.get(suite.name)
        if kill is None:
            return outcome.silent.get(suite.name) == self.silence(suite, outcome.status != "same-code")
        return kill.configuration in {configuration.id for configuration in suite.configurations}


@dataclass(slots=True)
class Outcome:
    """What each suite that ran said: None where it noticed nothing. `arch` reads other code than the clean kernel's
    unless the status is same-code."""

    status: Status
    suites: dict[str, Kill | None] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)  # the digests of suites that noticed nothing

    def as_json(self) -> dict[str, Any]:
        suites = {name: kill.as_json() if kill else None for name, kill in self.suites.items()}
        return {"status": self.status, "suites": suites, "silent": self.silent}

    @staticmethod
    def read(data: Mapping[str, Any]) -> Outcome:
        suites = {
            n: Kill(k["kind"], tuple(k["by"]), k["configuration"]) if k else None for n, k in data["suites"].items()
        }
        return Outcome(data["status"], suites, data["silent"])


Told = Callable[[Case, Outcome], None]


def clean_builds(plan: Plan, arches: Sequence[str], folder: Path) -> dict[str, Path]:
    """The PTX of every variant that the suites use, by name, built once for a state of the sources. CampaignError."""
    folder = folder / hash_sources(plan.repository)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    variants = _variants(plan, arches)
    with ThreadPoolExecutor(plan.jobs) as pool:
        list(pool.map(lambda variant: _clean_build(plan.repository, variant, folder), variants))
    return {variant.name: folder / f"{variant.name}.ptx" for variant in variants}


def _clean_build(repository: Path, variant: Variant, folder: Path) -> None:
    target = folder / f"{variant.name}.ptx"
    if not target.exists():
        partial = folder / f"{variant.name}.{socket.gethostname()}-{os.getpid()}.partial"  # others may build it, too
        compile_ptx(repository, variant, partial)
        partial.rename(target)


def _variants(plan: Plan, arches: Sequence[str]) -> list[Variant]:
    return [
        variant
        for arch in arches
        for variant in by_variant([c for suite in plan.suites(arch) for c in suite.configurations], arch)
    ]


def check_clean(plan: Plan, arches: Sequence[str]) -> None:
    """Every suite on the kernels as they are; CampaignError where one is red. Never taken from an earlier run: it also
    shows that emulator and harness are whole, without which every mutant would seem to be noticed."""
    cases = [Case(Mutant("the kernel itself", "nothing", "launch", ()), arch) for arch in arches]
    red: list[str] = []

    def told(case: Case, outcome: Outcome) -> None:
        red.extend(f"{case.arch}, {name}: {kill}" for name, kill in outcome.suites.items() if kill)

    run_cases(cases, replace(plan, every=True), {}, told)
    if red:
        raise CampaignError("the kernels themselves do not pass: " + "; ".join(red))


def run_cases(cases: Sequence[Case], plan: Plan, clean: Mapping[str, Path], told: Told) -> None:
    """Tells the outcome of each case as it ends; `clean` as Examination has it."""
    waiting = list(reversed(cases))
    running: dict[Connection, _Running] = {}
    try:
        while waiting or running:
            while waiting and len(running) < plan.jobs:
                one = _Running(waiting.pop(), plan, clean)
                running[one.pipe] = one
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                if (outcome := running[pipe].hear()) is not None:
                    told(running.pop(pipe).case, outcome)
    finally:
        for one in running.values():
            one.end()


class _Running:
    """The process of one case, and what it has said."""

    def __init__(self, case: Case, plan: Plan, clean: Mapping[str, Path]) -> None:
        self.case = case
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self._folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        self._outcome = Outcome("survived")
        self._plan = plan
        self._suite, self._configuration = plan.default[case.arch], ""
        self._error = ""
        self._process: BaseProcess = _FORK.Process(
            target=_examine, args=(os.getpid(), case, plan, clean, self._folder, theirs)
        )
        self._process.start()
        theirs.close()

    def hear(self) -> Outcome | None:
        """Takes one message; the outcome once the process has ended."""
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            return self._ended()
        if kind == "suite":
            self._suite, self._configuration = value, ""
        elif kind == "configuration":
            self._configuration = value
        elif kind == "kill":
            self._outcome.suites[self._suite.name] = value
            if value is None:
                self._outcome.silent[self._suite.name] = self._plan.silence(self._suite)
        elif kind == "status":
            self._outcome.status = value
        else:
            self._error = value
        return None

    def end(self) -> None:
        if self._process.pid and self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> Outcome:
        self._process.join()
        ended = self._process.exitcode or 0
        if ended > 0:
            raise RuntimeError(f"{self.case.title}: {self._error or f'the process ends with {ended}'}")
        if -ended in FROM_OUTSIDE:
            raise RuntimeError(f"{self.case.title}: ended from outside, by {signal.Signals(-ended).name}")
        if ended < 0:  # by a signal, in the midst of a configuration
            kind: Literal["timeout", "crash"] = "timeout" if ended == -signal.SIGPROF else "crash"
            said = "it takes too long" if kind == "timeout" else signal.Signals(-ended).name
            self._outcome.suites[self._suite.name] = Kill(kind, (said,), self._configuration)
            self._outcome.status = "killed"
        if self._outcome.status == "same-code":
            plan, arch = self._plan, self.case.arch
            self._outcome.silent = {suite.name: plan.silence(suite, ran=False) for suite in plan.suites(arch)}
        self.end()
        return self._outcome


def _examine(parent: int, case: Case, plan: Plan, clean: Mapping[str, Path], folder: Path, pipe: Connection) -> None:
    """In the process of its own. Ends with 0 when it has said all, with 1 for a fault that is ours."""
    die_with_parent(parent)
    for stop in FROM_OUTSIDE - {signal.SIGKILL}:  # what the parent does about them is its own affair
        signal.signal(stop, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # the worker's log
    try:
        _say_all(case, plan, clean, folder, pipe)
        ended = 0
    except Exception:  # of the tool, not of the mutant
        pipe.send(("error", traceback.format_exc()))
        ended = 1
    pipe.close()
    os._exit(ended)  # nothing of the parent's is to be ended here


def _say_all(case: Case, plan: Plan, clean: Mapping[str, Path], folder: Path, pipe: Connection) -> None:
    copy_kernel(plan.repository, folder, case.mutant.sources(plan.repository / "kernel"))
    bench = Examination(
        folder, case.arch, plan.matrix, clean, plan.seconds, lambda name: pipe.send(("configuration", name))
    )
    killed = False
    for suite in plan.suites(case.arch):
        pipe.send(("suite", suite))
        kill = bench.run(suite, plan.seen.get((case.mutant.name, case.arch), ""))
        pipe.send(("kill", kill))
        killed = killed or kill is not None
        if kill is not None and suite is plan.default[case.arch] and not plan.every:
            break
    pipe.send(("status", "killed" if killed else "survived" if bench.differs else "same-code"))


class Kept:
    """Outcomes of earlier runs, with a line each in the files of a folder; the last one of a key counts. Each part of
    the cases has a file of its own to add to: machines that share the folder cannot append to one."""

    def __init__(self, folder: Path, part: str = "") -> None:
        self._path = folder / (f"outcomes.{part.replace('/', '-of-')}.jsonl" if part else "outcomes.jsonl")
        self._known: dict[str, Outcome] = {}
        for path in sorted(folder.glob("outcomes*.jsonl"), key=lambda path: path.stat().st_mtime):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    data = json.loads(line)
                    self._known[data["key"]] = Outcome.read(data)
                except (ValueError, KeyError):
                    continue  # the line of a run that was cut off

    def get(self, key: str) -> Outcome | None:
        return self._known.get(key)

    def add(self, key: str, case: Case, outcome: Outcome) -> None:
        self._known[key] = outcome
        line = {"key": key, "name": case.mutant.name, "arch": case.arch, **outcome.as_json()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def cases_of(mutants: Sequence[Mutant], arches: Sequence[str]) -> list[Case]:
    return [Case(mutant, arch) for mutant in mutants for arch in mutant.arches if arch in arches]


def part_of(cases: Sequence[Case], part: str) -> list[Case]:
    """The K-th of N parts, for `part` K/N: every N-th case, since neighbours take as long. ValueError for another."""
    number, slash, count = part.partition("/")
    if not slash or not number.isdigit() or not count.isdigit() or not 1 <= int(number) <= int(count):
        raise ValueError(f"{part!r} is no part: 1/4 is the first of four")
    return list(cases[int(number) - 1 :: int(count)])


def run(cases: Sequence[Case], plan: Plan, folder: Path, told: Told, part: str = "") -> Iterator[tuple[Case, Outcome]]:
    """Every case with its outcome, in order; those that `folder` knows are not run again. CampaignError."""
    kept = Kept(folder, part)
    keys = {case.title: plan.key(case) for case in cases}
    known = {title: kept.get(key) for title, key in keys.items()}
    # What is argued equivalent is likely to go through everything, and comes last.
    new = [case for case in cases if (outcome := known[case.title]) is None or not plan.settles(case, outcome)]
    new.sort(key=lambda case: case.arch in case.mutant.equivalent)
    if new:
        arches = sorted({case.arch for case in new})
        clean = clean_builds(plan, arches, folder)
        check_clean(plan, arches)

        def keep(case: Case, outcome: Outcome) -> None:
            kept.add(keys[case.title], case, outcome)
            told(case, outcome)

        run_cases(new, plan, clean, keep)
    for case in cases:
        outcome = kept.get(keys[case.title])
        assert outcome is not None
        yield case, outcome
