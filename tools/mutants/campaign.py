"""Many mutants: a process each, as many at once as there are cores. A later run goes on from the outcomes kept."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from fmha.harness.config import Matrix
from fmha.harness.judge.configuration import OURS, parse_id
from fmha.harness.judge.identity import CORE, sources
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.compilers.sources import hash_sources
from fmha.harness.worker.processes.groups import die_with_parent
from tools.mutants.examine import Kill, MutantExamination, Order, Suite, lay_out
from tools.mutants.kept_verdicts import CaseOutcome, Kept, MutantCase
from tools.mutants.learn import known, learn
from tools.mutants.library import Mutant
from tools.mutants.mutant_builds import SOURCES, build_all
from tools.mutants.mutant_order import SLOW, Hints, KernelFacts, by_variant, changed_functions, changed_lines, ordered

_FORK = multiprocessing.get_context("fork")  # the harness is imported once

# No mutant sends these: whoever ends the tool's processes has noticed nothing.
FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL})
KERNEL_SIDE = "harness/kernel_side"
# Of fewer cases that nothing has noticed before, the order is not worth a look at what executes which line.
WORTH_LEARNING = 20
ITSELF = Mutant("the kernel itself", "nothing", "launch", ())


class CampaignError(Exception):
    """The kernels themselves do not pass: nothing can be said about mistakes in them."""


class _OpenError(Exception):
    """A case has had its time."""


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """What every case goes through: the default run of its architecture, then each suite of `others`, these only for
    survivors unless `every`; all of a suite if `whole`, where it ends with the first that notices otherwise. `seconds`
    of processor time end a configuration. `hints` say what is tried first; `kept` is a folder of builds."""

    repository: Path
    matrix: Matrix
    default: Mapping[str, Suite]
    others: tuple[Suite, ...]
    kept: Path
    every: bool = False
    whole: bool = False
    seconds: float = 60.0
    within: float = math.inf  # seconds of processor time that a case has; one that needs more stays open
    jobs: int = 1
    hints: Hints = field(default_factory=Hints)
    facts: Mapping[str, KernelFacts] = field(default_factory=dict)  # by architecture
    recorded: Mapping[str, CaseOutcome] = field(default_factory=dict)  # by key: what need not be run again

    def key(self, case: MutantCase) -> str:
        """Equal where what a suite said of the case still holds, if it has the same configurations."""
        (usual, *natures), *_ = self.matrix.kernels[OURS].held
        gates = (usual, self.matrix.guard, *natures, self.matrix.seed)
        read = (*SOURCES[case.arch], *(_kernel_side(self.repository) if case.mutant.of_kernel_side else ()))
        facts = (case.mutant.digest, case.arch, hash_sources(self.repository, read), repr(gates))
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

    def settles(self, case: MutantCase, outcome: CaseOutcome) -> bool:
        """Whether an earlier outcome says all that a run would: a kill by a configuration that is still there does, and
        silence of the same configurations."""
        default, *others = self.suites(case.arch)
        needed = [default] if outcome.suites.get(default.name) and not self.every else [default, *others]
        return all(self._holds(suite, outcome) for suite in needed)

    def _holds(self, suite: Suite, outcome: CaseOutcome) -> bool:
        kill = outcome.suites.get(suite.name)
        if kill is None:
            return outcome.silent.get(suite.name) == self.silence(suite, outcome.status != "same-code")
        if self.whole and suite.name not in outcome.killers:
            return False
        return kill.configuration in {configuration.id for configuration in suite.configurations}

    def order(self, case: MutantCase) -> Order:
        """In which a suite's configurations meet the case."""
        changed = changed_lines(case.mutant, self.repository)
        facts, killer = (
            self.facts.get(case.arch, KernelFacts()),
            self.hints.killer.get((case.mutant.name, case.arch), ""),
        )
        near = self.hints.near(case.arch, changed)
        return lambda kernels, bytes_of: ordered(kernels, changed, facts, killer, near, bytes_of)


def _kernel_side(repository: Path) -> list[str]:
    """Its sources alone: what Python has compiled of them lies in the same folder, and is other from run to run."""
    return sorted(path.relative_to(repository).as_posix() for path in (repository / KERNEL_SIDE).rglob("*.py"))


Told = Callable[[MutantCase, CaseOutcome], None]
Met = tuple[str, str, str]  # an architecture, a configuration, and the drawn seed or schedule, if under one


class _Clean:
    """What the kernels themselves have said under what noticed mutants. A configuration that is red for them says
    nothing about mistakes: CampaignError."""

    def __init__(self, plan: CampaignPlan) -> None:
        self._plan = plan
        self._passed: set[Met] = set()

    def unknown(self, case: MutantCase, outcome: CaseOutcome) -> set[Met]:
        """What noticed the case, and was not run on the kernels themselves."""
        kills = filter(None, outcome.suites.values())
        return {(case.arch, kill.configuration, kill.under) for kill in kills} - self._passed

    def start(self, arch: str, configuration: str, under: str) -> _Running:
        drawn = self._plan.default[arch].drawn if under else None
        alone = Suite("alone", (parse_id(configuration),), drawn)
        return _Running(MutantCase(ITSELF, arch), replace(self._plan, within=math.inf), (alone,))

    def heard(self, facts: Met, outcome: CaseOutcome) -> None:
        if (found := outcome.suites["alone"]) is not None:
            raise CampaignError(f"the kernels themselves do not pass: {facts[0]}: {found}")
        self._passed.add(facts)


def run_cases(cases: Sequence[MutantCase], plan: CampaignPlan, told: Told) -> None:
    """Tells the outcome of each case once the kernels themselves have passed what noticed it; they are run beside the
    cases that wait. CampaignError."""
    find_nvcc()  # once, before there are processes
    clean = _Clean(plan)
    waiting = list(reversed(cases))
    asked: list[Met] = []  # of the kernels themselves
    held: list[tuple[MutantCase, CaseOutcome]] = []  # until they have answered
    running: dict[Connection, tuple[_Running, Met | None]] = {}

    def start(case: MutantCase) -> _Running:
        return _Running(case, plan, plan.suites(case.arch))

    def settle() -> None:
        for case, outcome in held.copy():
            if not clean.unknown(case, outcome):
                held.remove((case, outcome))
                told(case, outcome)

    try:
        while waiting or asked or running:
            while (waiting or asked) and len(running) < plan.jobs:
                facts = asked.pop(0) if asked else None
                one = clean.start(*facts) if facts else start(waiting.pop())
                running[one.pipe] = one, facts
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                one, facts = running[pipe]
                if (outcome := one.hear()) is None:
                    continue
                del running[pipe]
                if facts is not None:
                    clean.heard(facts, outcome)
                else:
                    held.append((one.case, outcome))
                    under_way = {*asked, *(other for _, other in running.values() if other)}
                    asked += sorted(clean.unknown(one.case, outcome) - under_way)
                settle()
    finally:
        for one, _ in running.values():
            one.end()


class _Running:
    """The process of one case that meets `suites`, and what it has said."""

    def __init__(self, case: MutantCase, plan: CampaignPlan, suites: Sequence[Suite]) -> None:
        self.case = case
        self.pipe, theirs = _FORK.Pipe(duplex=False)
        self._folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        self._outcome = CaseOutcome("survived")
        self._plan = plan
        self._suites = suites
        self._suite, self._configuration, self._under = suites[0], "", ""
        self._error = ""
        self._process: BaseProcess = _FORK.Process(
            target=_examine, args=(os.getpid(), case, plan, suites, self._folder, theirs)
        )
        self._process.start()
        theirs.close()

    def hear(self) -> CaseOutcome | None:
        """Takes one message; the outcome once the process has ended."""
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            return self._ended()
        if kind == "suite":
            self._suite, self._configuration, self._under = value, "", ""
        elif kind == "configuration":
            self._configuration, self._under, self._outcome.seconds = value
        elif kind == "kill":
            self._noticed(value)
        elif kind == "silent":
            self._outcome.suites.setdefault(self._suite.name, None)
            if self._outcome.suites[self._suite.name] is None:
                self._outcome.silent[self._suite.name] = self._plan.silence(self._suite)
        elif kind == "ended":
            self._outcome.status, self._outcome.seconds = value
        else:
            self._error = value
        return None

    def _noticed(self, kill: Kill) -> None:
        name = self._suite.name
        self._outcome.suites[name] = self._outcome.suites.get(name) or kill
        if self._plan.whole:
            killers = self._outcome.killers.setdefault(name, [])
            killers += [kill.configuration] if kill.configuration not in killers else []

    def end(self) -> None:
        if self._process.pid and self._process.is_alive():
            self._process.kill()
        self._process.join()
        self.pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> CaseOutcome:
        self._process.join()
        ended = self._process.exitcode or 0
        if ended > 0:
            raise RuntimeError(f"{self.case.title}: {self._error or f'the process ends with {ended}'}")
        if -ended in FROM_OUTSIDE:
            raise RuntimeError(f"{self.case.title}: ended from outside, by {signal.Signals(-ended).name}")
        if ended < 0:  # by a signal, in the midst of a configuration
            kind: Literal["timeout", "crash"] = "timeout" if ended == -signal.SIGPROF else "crash"
            said = SLOW if kind == "timeout" else signal.Signals(-ended).name
            self._noticed(Kill(kind, (said,), self._configuration, self._under))
            self._outcome.status = "killed"
        if self._outcome.status == "same-code":
            self._outcome.silent = {suite.name: self._plan.silence(suite, ran=False) for suite in self._suites}
        self.end()
        return self._outcome


def _examine(
    parent: int, case: MutantCase, plan: CampaignPlan, suites: Sequence[Suite], folder: Path, pipe: Connection
) -> None:
    """In the process of its own. Ends with 0 when it has said all, with 1 for a fault that is ours."""
    die_with_parent(parent)
    for stop in FROM_OUTSIDE - {signal.SIGKILL}:  # what the parent does about them is its own affair
        signal.signal(stop, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)  # the worker's log
    try:
        _say_all(case, plan, suites, folder, pipe)
        ended = 0
    except _OpenError:
        pipe.send(("ended", ("open", _spent())))
        ended = 0
    except Exception:  # of the tool, not of the mutant
        pipe.send(("error", traceback.format_exc()))
        ended = 1
    pipe.close()
    os._exit(ended)  # nothing of the parent's is to be ended here


def _say_all(case: MutantCase, plan: CampaignPlan, suites: Sequence[Suite], folder: Path, pipe: Connection) -> None:

    def tell(name: str, under: str) -> None:
        spent = _spent()
        pipe.send(("configuration", (name, under, spent)))
        if spent > plan.within:
            raise _OpenError

    changed = case.mutant.sources(plan.repository)
    lay_out(plan.repository, folder, changed)
    bench = MutantExamination(
        folder,
        case.arch,
        plan.matrix,
        plan.kept,
        plan.seconds,
        plan.repository if changed else None,
        changed_functions(case.mutant, plan.repository),
        tell,
    )
    killed = False
    for suite in suites:
        pipe.send(("suite", suite))
        noticed = False
        for kill in bench.kills(suite, plan.order(case)):
            pipe.send(("kill", kill))
            noticed = True
            if not plan.whole:
                break
        if not noticed:
            pipe.send(("silent", None))
        killed = killed or noticed
        if noticed and suite is suites[0] and not plan.every:
            break
    pipe.send(("ended", ("killed" if killed else "survived" if bench.differs else "same-code", _spent())))


def _spent() -> float:
    """Seconds of processor time of this process and of the compilers that it has started."""
    own, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime


def cases_of(mutants: Sequence[Mutant], arches: Sequence[str]) -> list[MutantCase]:
    """Each mutant on each of its architectures that is asked for."""
    return [MutantCase(mutant, arch) for mutant in mutants for arch in mutant.arches if arch in arches]


def part_of(cases: Sequence[MutantCase], part: str) -> list[MutantCase]:
    """The K-th of N parts, for `part` K/N: every N-th case, since neighbours take as long. ValueError for another."""
    number, slash, count = part.partition("/")
    if not slash or not number.isdigit() or not count.isdigit() or not 1 <= int(number) <= int(count):
        raise ValueError(f"{part!r} is no part: 1/4 is the first of four")
    return list(cases[int(number) - 1 :: int(count)])


def kept_of(cases: Sequence[MutantCase], plan: CampaignPlan, folder: Path) -> Iterator[tuple[MutantCase, CaseOutcome]]:
    """The cases of which `folder` or the record has an outcome that still says all, with it; nothing is run."""
    kept = Kept(folder, before=plan.recorded)
    for case in cases:
        outcome = kept.get(plan.key(case))
        if outcome is not None and plan.settles(case, outcome):
            yield case, outcome


def run(
    cases: Sequence[MutantCase], plan: CampaignPlan, folder: Path, told: Told, part: str = ""
) -> Iterator[tuple[MutantCase, CaseOutcome]]:
    """Every case with its outcome, in order, but those that stayed open; what `folder` or the record knows is not run
    again. CampaignError."""
    kept = Kept(folder, part, plan.recorded)
    keys = {case.title: plan.key(case) for case in cases}
    known = {title: kept.get(key) for title, key in keys.items()}
    # What is argued equivalent is likely to go through everything, and comes last.
    new = [case for case in cases if (outcome := known[case.title]) is None or not plan.settles(case, outcome)]
    new.sort(key=lambda case: case.arch in case.mutant.equivalent)
    if new:
        arches = sorted({case.arch for case in new})
        if len(new) > WORTH_LEARNING:
            for arch in arches:
                build_all(plan.kept, plan.repository, by_variant(plan.default[arch].configurations, arch), plan.jobs)
        facts = {arch: _facts(plan, arch, new, folder) for arch in arches}

        def keep(case: MutantCase, outcome: CaseOutcome) -> None:
            if outcome.status != "open":
                kept.add(keys[case.title], case, outcome)
            told(case, outcome)

        run_cases(new, replace(plan, facts=facts), keep)
    for case in cases:
        outcome = kept.get(keys[case.title])
        if outcome is not None and plan.settles(case, outcome):
            yield case, outcome


def _facts(plan: CampaignPlan, arch: str, cases: Sequence[MutantCase], folder: Path) -> KernelFacts:
    """What the kernels as they are execute, if it is known or worth a look."""
    if (facts := known(plan.repository, plan.matrix, arch, folder)) is not None:
        return facts
    unseen = [case for case in cases if case.arch == arch and (case.mutant.name, arch) not in plan.hints.killer]
    if len(unseen) <= WORTH_LEARNING:
        return KernelFacts()
    return learn(plan.repository, plan.matrix, arch, plan.default[arch], plan.kept, folder, plan.jobs)
