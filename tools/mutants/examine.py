"""One mistake on one architecture: variants built as they are needed, until something notices. In a process of its own.

What a suite says is what `make run` would: every configuration on the run's inputs and on those of a drawn seed, and a
few of each kernel under drawn schedules.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from fmha.harness.config import Matrix
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, Job, Variant
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.gate import HAZARDS, judge
from fmha.harness.judge.metrics import Measurement
from fmha.harness.judge.schedules import MET, compare_outputs, drawn_schedules
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.planner.sides import side_of
from tools.mutants.mutant_builds import BuildFailedError, BuiltMutant, built, code, lines_of
from tools.mutants.mutant_order import by_variant

Kind = Literal["build", "gate", "hazard", "written", "timeout", "crash", "refused"]
Kernels = Mapping[Variant, Sequence[Configuration]]
Order = Callable[[Kernels, Callable[[Variant], int]], Kernels]

NOTHING: Final[Mapping[str, frozenset[int] | None]] = MappingProxyType({})
SCHEDULES: Final = ("realistic",)  # what `make run` has, besides those that it draws
ENDLESS: Final = frozenset({"deadlock", "livelock", "instruction-limit"})


@dataclass(frozen=True, slots=True)
class Kill:
    """What noticed a mutant: the failed gates and broken rules, the configuration, and the drawn schedule or inputs
    under which it did; nothing for the run's own."""

    kind: Kind
    by: tuple[str, ...]
    configuration: str
    under: str = ""

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        drawn = {"under": self.under} if self.under else {}
        return {"kind": self.kind, "by": list(self.by), "configuration": self.configuration, **drawn}

    @staticmethod
    def read(data: Mapping[str, Any]) -> Kill:
        """From what `as_json` gave."""
        return Kill(data["kind"], tuple(data["by"]), data["configuration"], data.get("under", ""))


@dataclass(frozen=True, slots=True)
class Suite:
    """Configurations under one name, as `make run` would run them: where `drawn` is a seed that it drew, on the inputs
    of that seed as well and under the schedules that follow from it."""

    name: str
    configurations: tuple[Configuration, ...]
    drawn: int | None = None

    @property
    def digest(self) -> str:
        """What an outcome depends on of the suite: its configurations, and what is drawn."""
        facts = [*(c.id for c in self.configurations)]
        facts += [] if self.drawn is None else [f"drawn {self.drawn} {dict(MET)}"]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    def met(self, arch: str) -> Mapping[str, tuple[str, ...]]:
        """The schedules that its configurations meet besides, by id."""
        if self.drawn is None:
            return {}
        kernels = by_variant(self.configurations, arch)
        return drawn_schedules(self.drawn, [(v.name, c.id) for v, mine in kernels.items() for c in mine])


class MutantExamination:
    """A tree of sources, of which `changed` are other files than those of `clean`, each with the lines of the functions
    that differ if nothing else does. Where `clean` is None, these kernels themselves. Builds are kept in `kept`."""

    def __init__(
        self,
        root: Path,
        arch: str,
        matrix: Matrix,
        kept: Path,
        seconds: float = 60.0,
        clean: Path | None = None,
        changed: Mapping[str, frozenset[int] | None] = NOTHING,
        told: Callable[[str, str], None] = lambda configuration, under: None,
    ) -> None:
        self._root = root
        self._arch = arch
        self._matrix = matrix
        self._kept = kept
        self._seconds = seconds  # of this process a configuration
        self._clean = clean
        self._changed = changed
        self._told = told  # which configuration runs, and under what
        self._builds: dict[str, BuildResult | None] = {}
        own_side = any(file.startswith("kernel_side/") for file in changed)
        self._kernel_side = str(root) if own_side else ""  # whose code chooses kernels and launches them
        self.differs = False  # whether any kernel that was built is another than the clean one

    def first(self, suite: Suite, order: Order = lambda kernels, bytes_of: kernels) -> Kill | None:
        """What notices first."""
        return next(self.kills(suite, order), None)

    def kills(self, suite: Suite, order: Order = lambda kernels, bytes_of: kernels) -> Iterator[Kill]:
        """Everything that notices: kernel by kernel, in `order`, what is met on the run's inputs; then what is met on
        those that it drew. A kernel whose code is the clean one's is not run."""
        kernels = order(self._chosen(suite.configurations), self._bytes)
        met = suite.met(self._arch)
        for variant, configurations in kernels.items():
            try:
                build = self._build(variant)
            except BuildFailedError as error:
                self.differs = True
                self._builds[variant.name] = None
                yield Kill("build", (str(error).strip(),), configurations[0].id)
                continue
            for configuration in configurations if build else ():
                yield from self._noticed(build, configuration, self._matrix.seed, ())
                if schedules := met.get(configuration.id):
                    yield from self._noticed(build, configuration, self._matrix.seed, schedules)
        if suite.drawn is None:
            return
        for variant, configurations in kernels.items():
            if build := self._build(variant):
                for configuration in configurations:
                    yield from self._noticed(build, configuration, suite.drawn, ())

    def _chosen(self, configurations: Sequence[Configuration]) -> dict[Variant, list[Configuration]]:
        with closing(side_of(self._kernel_side)) as side:
            return by_variant(configurations, self._arch, side.variant_for)

    def _bytes(self, variant: Variant) -> int:
        """Of the clean kernel's PTX."""
        return built(self._kept, self._clean or self._root, variant).ptx.stat().st_size

    def _build(self, variant: Variant) -> BuildResult | None:
        if variant.name not in self._builds:
            self._builds[variant.name] = self._built(variant)
        return self._builds[variant.name]

    def _built(self, variant: Variant) -> BuildResult | None:
        self.differs |= bool(self._kernel_side)
        if self._clean is None or self._kernel_side:
            return built(self._kept, self._root, variant).result(variant)
        before = built(self._kept, self._clean, variant)
        if not self._may_differ(before):
            return None
        mine = built(self._kept, self._root, variant)
        if code(mine.ptx) == code(before.ptx):
            return None
        self.differs = True
        return mine.result(variant)

    def _may_differ(self, clean: BuiltMutant) -> bool:
        """False where a kernel reads none of the changed files, or has no code of the functions that are changed."""
        there = lines_of(clean.ptx)
        return any(
            file in clean.reads and (lines is None or lines & there.get(file, frozenset()))
            for file, lines in self._changed.items()
        )

    def _noticed(
        self, build: BuildResult | None, configuration: Configuration, seed: int, schedules: tuple[str, ...]
    ) -> Iterator[Kill]:
        """What one configuration says on the inputs of `seed`, or under `schedules`. The profiling timer's signal ends
        this process when it takes too much of its time: whoever waits for it knows."""
        assert build is not None
        under = "" if seed == self._matrix.seed else f"seed {seed}"
        also = {configuration.id: ",".join(schedules)} if schedules else {}
        job = Job("emulator", (build,), (configuration,), seed, SCHEDULES, also=also, kernel_side=self._kernel_side)
        events: list[Event] = []
        self._told(configuration.id, ",".join(schedules) or under)
        signal.setitimer(signal.ITIMER_PROF, self._seconds * (1 + len(schedules)))
        try:
            run_job(job, _device, events.append)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        for event in events:
            yield from self._judged(event, under)

    def _judged(self, event: Event, under: str) -> Iterator[Kill]:
        if event.event == "error" and event.status != "not-run":
            kinds: dict[str, Kind] = {"crash": "crash", "fail": "written"}
            yield Kill(kinds.get(event.status, "refused"), (event.message or event.status,), event.config, under)
        elif event.event == "result":
            assert event.measurement is not None
            if kill := self._missed(event.config, event.measurement, event.findings, under):
                yield kill
            for met in event.met:
                bits = [(under or SCHEDULES[0], event.measurement.output_hash)]
                other = compare_outputs([*bits, (met.schedule, met.measurement.output_hash)])
                if kill := self._missed(event.config, met.measurement, met.findings + other, met.schedule):
                    yield kill

    def _missed(
        self, name: str, measurement: Measurement, findings: tuple[FindingRecord, ...], under: str
    ) -> Kill | None:
        thresholds = self._matrix.thresholds_for(parse_id(name))
        judgement = judge(measurement, findings, thresholds, biases=self._matrix.biases)
        gates = tuple(check.name for check in judgement.failed_checks if check.name != HAZARDS)
        rules = tuple(sorted({finding.rule for finding in findings if finding.severity == "error"}))
        if rules:
            return Kill("timeout" if ENDLESS.intersection(rules) else "hazard", rules, name, under)
        return Kill("gate", gates, name, under) if gates else None


def _device(seed: int, schedule: str) -> EmulatorDevice:
    return EmulatorDevice(seed, schedule, threads=1)  # mutants run side by side


def lay_out(repository: Path, root: Path, changed: Mapping[str, str]) -> None:
    """kernel/ of the repository below `root`, and its harness where that is changed, with `changed` in place of the
    files of these names."""
    folders = ["kernel", *(("fmha", "harness") if any(name.startswith("harness/") for name in changed) else ())]
    for folder in folders:
        shutil.copytree(repository / folder, root / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in changed.items():
        (root / name).write_text(text, encoding="utf-8")


def copy_kernel(repository: Path, root: Path, changed: Mapping[str, str]) -> None:
    """The same of kernel/ alone, with names below it."""
    lay_out(repository, root, {f"kernel/{name}": text for name, text in changed.items()})
