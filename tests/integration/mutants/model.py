"""A mutant of the kernel: how it is made, built, run and judged."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config import Matrix
from harness.stages.gate import HAZARDS, judge
from harness.status import Status
from harness.worker.__main__ import run_job
from harness.worker.build import flags
from harness.worker.devices.factory import device_factory
from harness.worker.nvcc import find_nvcc
from harness.worker.protocol import BuildResult, Configuration, Event, Job, Variant
from harness.worker.variants import variant_for


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old` by `new` in one of the kernel's sources, where `old` occurs exactly once: no edit is ever void."""

    file: str  # under kernel
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Edits the sources under `root`."""
        path = root / "kernel" / self.file
        text = path.read_text(encoding="utf-8")
        found = text.count(self.old)
        assert found == 1, f"found {found} times in {self.file}, not once: {self.old!r}"
        assert self.new != self.old, f"changes nothing in {self.file}: {self.old!r}"
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run: a configuration, and when the emulator lets asynchronous work complete."""

    configuration: Configuration
    schedule: str = "realistic"

    def __str__(self) -> str:
        return self.configuration.id + ("" if self.schedule == "realistic" else f", {self.schedule}")


# Where the mistakes are made.
SETUP = "sm100/fmha_fwd.cu"
LOAD = "sm100/load.cuh"
MMA = "sm100/mma.cuh"
ROLE = "sm100/softmax_role.cuh"
MAP = "sm100/shared_map.cuh"
TRAITS = "sm100/traits.cuh"
DESCRIPTORS = "sm100/descriptors.cuh"
TCGEN05 = "sm100/ptx/tcgen05.cuh"
SOFTMAX = "common/softmax.cuh"
OUTPUT = "common/row_output.cuh"
WORK = "common/work.cuh"
COMBINE = "common/combine.cuh"

# The normal inputs of a trial hardly ever let the anchor move otherwise. On its own it is no mistake (survivors.py).
EVERY_MAXIMUM = Edit(SOFTMAX, "kRescaleThreshold = 8.0f", "kRescaleThreshold = 0.0f")

THREE_TILES = Trial(Configuration(64, 32, 384))  # the ring comes round to its first two slots


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake in the kernel. `caught_by` names hazard rules and gates that `trial` reports, others aside."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    caught_by: frozenset[str]
    trial: Trial


def mutant(name: str, breaks: str, *edits: Edit, by: str, trial: Trial = THREE_TILES) -> Mutant:
    """A mutant that is caught by each of the rules and gates in `by`, words with spaces between."""
    return Mutant(name, breaks, edits, frozenset(by.split()), trial)


def drop(file: str, text: str, before: str = "") -> Edit:
    """Takes `text` out of `file`, where `before` follows it."""
    return Edit(file, text + before, before)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The status of one trial, and the hazard rules and gates that stand against it."""

    status: Status
    against: frozenset[str]


def copy_kernel(repository: Path, root: Path, edits: Sequence[Edit] = ()) -> None:
    """Copies kernel/ to `root`, which has none yet, and edits the copy."""
    shutil.copytree(repository / "kernel", root / "kernel")
    for edit in edits:
        edit.apply(root)


def _compile(root: Path, variant: Variant) -> BuildResult:
    """The PTX, as the harness makes it, once for all trials; no cubin, since the emulator is the judge."""
    ptx = root / f"{variant.name}.ptx"
    if not ptx.exists():
        command = [find_nvcc().path, *flags(variant), "-ptx", "-o", ptx, variant.source]
        ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    return BuildResult(variant, str(ptx), "", None, "", "", (), 0.0, cached=False)


def examine(root: Path, matrix: Matrix, trial: Trial) -> Verdict:
    """Compiles the kernel under `root`, runs the trial by the worker's own code in this process, and gates it."""
    configuration = trial.configuration
    variant = variant_for(configuration)
    assert isinstance(variant, Variant), variant
    build = _compile(root, variant)
    job = Job("emulator", (build,), (configuration,), matrix.seed, (trial.schedule,))
    events: list[Event] = []
    run_job(job, device_factory(job.device), events.append)
    _, event, _ = events  # between started and done
    if event.measurement is None:
        return Verdict(Status(event.status), frozenset())
    judgement = judge(event.measurement, event.findings, matrix.thresholds_for(configuration))
    gates = {check.name for check in judgement.failed_checks} - {HAZARDS}
    rules = {finding.rule for finding in event.findings if finding.severity == "error"}
    return Verdict(judgement.status, frozenset(gates | rules))
