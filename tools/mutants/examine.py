"""One mistake on one architecture: its variants built, suites run until something notices. In a process of its own."""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from fmha.harness.config import Matrix
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, Job, Variant
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.gate import HAZARDS, judge
from fmha.harness.kernel_side.recipe import flags
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.devices.emulator import EmulatorDevice

Kind = Literal["build", "gate", "hazard", "timeout", "crash", "refused"]

SCHEDULES: Final = ("realistic",)  # what `make run` has
ENDLESS: Final = frozenset({"deadlock", "livelock", "instruction-limit"})
BUILD_SECONDS: Final = 300.0
_DEBUG = re.compile(r"^\s*(\.loc|\.file)\b.*$|//.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kill:
    """What noticed a mutant first: the failed gates and broken rules, and the configuration."""

    kind: Kind
    by: tuple[str, ...]
    configuration: str

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "by": list(self.by), "configuration": self.configuration}


@dataclass(frozen=True, slots=True)
class Suite:
    """Configurations under one name, as `make run` would run them."""

    name: str
    configurations: tuple[Configuration, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(c.id for c in self.configurations).encode()).hexdigest()[:16]


class BuildFailedError(Exception):
    """nvcc refuses a variant; its first words about it."""


class _NoticedError(Exception):
    def __init__(self, kill: Kill) -> None:
        super().__init__(str(kill))
        self.kill = kill


def compile_ptx(root: Path, variant: Variant, target: Path) -> BuildResult:
    """The PTX of the sources under `root`, as the harness makes it; no cubin, since the emulator is the judge.
    BuildFailedError."""
    command = [str(find_nvcc().path), *flags(variant), "-ptx", "-o", str(target), variant.source]
    try:
        ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise BuildFailedError("nvcc does not end") from None
    if ran.returncode != 0:
        said = (
            [line for line in ran.stderr.splitlines() if "error" in line] or ran.stderr.splitlines() or ["nvcc fails"]
        )
        raise BuildFailedError(said[0])
    return BuildResult(variant, str(target), "", None, "", "", (), 0.0, cached=False)


def code(ptx: Path) -> str:
    """PTX without comments, places and debug sections: what of it is executed."""
    return re.sub(r"\s+", " ", _DEBUG.sub("", ptx.read_text(encoding="utf-8").partition("\t.section")[0]))


def by_variant(configurations: Sequence[Configuration], arch: str) -> dict[Variant, list[Configuration]]:
    """The configurations that `arch` has kernels for, by kernel, in the order of first use."""
    found: dict[Variant, list[Configuration]] = {}
    for configuration in configurations:
        variant = variant_for(configuration, arch)
        if isinstance(variant, Variant):
            found.setdefault(variant, []).append(configuration)
    return found


class Examination:
    """A tree of sources with its builds. `clean` has the PTX of the kernels as they are, by the variant's name; empty
    for these kernels themselves."""

    def __init__(
        self,
        root: Path,
        arch: str,
        matrix: Matrix,
        clean: Mapping[str, Path],
        seconds: float,
        told: Callable[[str], None] = lambda configuration: None,
    ) -> None:
        self._root = root
        self._arch = arch
        self._matrix = matrix
        self._clean = clean
        self._seconds = seconds  # of this process a configuration
        self._told = told  # which configuration runs
        self._builds: dict[str, BuildResult | None] = {}
        self.differs = False  # whether any kernel that was built is another than the clean one

    def run(self, suite: Suite, seen: str = "") -> Kill | None:
        """What notices first, variant by variant, the configuration named `seen` before all others; a variant whose
        code is the clean one's is not run."""
        ordered = sorted(suite.configurations, key=lambda configuration: configuration.id != seen)
        for variant, configurations in by_variant(ordered, self._arch).items():
            try:
                build = self._build(variant)
            except BuildFailedError as error:
                self.differs = True
                return Kill("build", (str(error).strip(),), configurations[0].id)
            if build is None:
                continue
            job = Job("emulator", (build,), tuple(configurations), self._matrix.seed, SCHEDULES)
            try:
                run_job(job, _device, self._look)
            except _NoticedError as noticed:
                return noticed.kill
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
        return None

    def _build(self, variant: Variant) -> BuildResult | None:
        if variant.name not in self._builds:
            target = self._root / f"{variant.name}.ptx"
            built = compile_ptx(self._root, variant, target)
            same = variant.name in self._clean and code(target) == code(self._clean[variant.name])
            self.differs |= not same
            self._builds[variant.name] = None if same else built
        return self._builds[variant.name]

    def _look(self, event: Event) -> None:
        """Raises _NoticedError at the first configuration that is not green. The profiling timer's signal ends this
        process when one takes too much of its time: whoever waits for it knows."""
        if event.event == "started":
            self._told(event.config)
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
        elif event.event == "error" and event.status != "not-run":
            kind: Kind = "crash" if event.status == "crash" else "refused"
            raise _NoticedError(Kill(kind, (event.message or event.status,), event.config))
        elif event.event == "result":
            self._judge(event)

    def _judge(self, event: Event) -> None:
        assert event.measurement is not None
        thresholds = self._matrix.thresholds_for(parse_id(event.config))
        judgement = judge(event.measurement, event.findings, thresholds, biases=self._matrix.biases)
        gates = [check.name for check in judgement.failed_checks if check.name != HAZARDS]
        rules = sorted({finding.rule for finding in event.findings if finding.severity == "error"})
        if ENDLESS.intersection(rules):
            raise _NoticedError(Kill("timeout", tuple(rules), event.config))
        if rules:
            raise _NoticedError(Kill("hazard", tuple(rules), event.config))
        if gates:
            raise _NoticedError(Kill("gate", tuple(gates), event.config))


def _device(seed: int, schedule: str) -> EmulatorDevice:
    return EmulatorDevice(seed, schedule, threads=1)  # mutants run side by side


def copy_kernel(repository: Path, root: Path, changed: Mapping[str, str]) -> None:
    """kernel/ of the repository under `root`, with `changed` in place of the files of these names."""
    shutil.copytree(repository / "kernel", root / "kernel")
    for name, text in changed.items():
        (root / "kernel" / name).write_text(text, encoding="utf-8")
