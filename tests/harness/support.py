"""What the tests of the harness share: a small matrix.yaml, and a host whose answers the test writes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fmha.harness.config import Limits
from fmha.harness.contract.protocol import (
    BuildResult,
    Configuration,
    Drawn,
    Event,
    FindingRecord,
    Job,
    LaunchShape,
    Met,
    Resources,
    Variant,
)
from fmha.harness.hosts import HostProvenance, Machine, Order
from fmha.harness.stages.outcome import Outcome
from tests.figures import limits, measurement

GOOD = measurement(relative_l2=1e-3, max_error=1e-3)
RACE = FindingRecord("tmem-race", "error", "tcgen05.ld during the MMA that writes it", {"ptx_line": 12})

MATRIX = f"""\
default_suite: small
seed: 7
suites:
  small:
    axes:
      head_dim: [128, 64]
      t: [1, 32]
      s_k: [128]
  wide:
    extra:
      - {{head_dim: 128, t: 1, s_k: 128}}
gates:
  default: {limits(cosine=0.9999, relative_l2=4e-3, max_error=5e-3)}
  guard: {{cosine: 0.999996}}
guard:
  head_dim: 64
  fallback: {{t: 32, s_k: 256}}
limits: {{build_seconds: 60, configuration_silence_seconds: 10, configuration_total_seconds: 20}}
hosts:
  emulator: {{kind: emulator, schedule: realistic}}
"""


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def event(configuration: Configuration, **changes: object) -> Event:
    """A result that passes every gate, with changes."""
    return replace(Event("result", configuration.id, GOOD, stats={"warp_instructions": 5}, seconds=0.5), **changes)


@dataclass
class ScriptedHost:
    """A host for which all configurations pass, but for what `script` says, by configuration id.

    An exception in the script is raised in place of the event; `unbuildable` and `unknown` are head_dims.
    """

    script: dict[str, Callable[[Configuration], Event] | BaseException | None] = field(default_factory=dict)
    unbuildable: Sequence[int] = ()
    unknown: Sequence[int] = ()
    ran: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    closed: int = 0
    device: str = "emulator"
    exact: bool = False
    run_id: str | None = None

    def begin(self, order: Order, progress: Callable[[str], None], tell: Callable[[str], None]) -> None: ...

    def judge_apart(self, judge: str, tree: Path) -> None: ...

    def durations(self) -> dict[str, float]:
        return {}

    def span(self) -> None: ...

    def finish(self) -> None: ...

    def facts(self) -> HostProvenance:
        return HostProvenance("emulator", "emulator", Machine("a CPU", 2, "Linux"), {"python": "3.11", "torch": None})

    def variant_for(self, configuration: Configuration) -> Variant | str:
        head_dim = configuration.head_dim
        if head_dim in self.unknown:
            return f"no kernel for head_dim {head_dim} yet"
        shape = LaunchShape(128, 128, 4, 192, 1024)
        name = f"hd{head_dim}"
        return Variant(name, "sm_100a", "kernel/a.cu", f"entry_{name}", head_dim, "tmem", shape, (("A", "1"),))

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        return [self._built(variant) for variant in variants]

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        self.jobs.append(job)
        try:
            for configuration in job.configurations:
                self.ran.append(configuration.id)
                yield Event("started", configuration.id)
                scripted = self.script.get(configuration.id, event)
                if isinstance(scripted, BaseException):
                    raise scripted
                if scripted:
                    yield self._with_noise(scripted(configuration), job)
            yield Event("done")
        finally:
            self.closed += 1

    def _with_noise(self, event: Event, job: Job) -> Event:
        if event.measurement is None:
            return event
        noise = event.noise or tuple(Drawn(seed, GOOD, ()) for seed in job.noise_seeds)
        same = replace(GOOD, output_hash=event.measurement.output_hash)
        schedules = filter(None, job.also.get(event.config, "").split(","))
        met = event.met or tuple(Met(name, same) for name in schedules)
        return replace(event, noise=noise, met=met)

    def _built(self, variant: Variant) -> BuildResult:
        error = "a.cu(3): error: no such thing" if variant.head_dim in self.unbuildable else None
        resources = None if error else Resources(128, 0, 0, 0, 1024)
        return BuildResult(variant, "", "", resources, "ab" * 32, "nvcc 13.0", ("-O3",), 1.0, False, error)


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.outcomes: list[Outcome] = []

    def stage(self, name: str, detail: str) -> None:
        self.stages.append(name)

    def note(self, text: str) -> None: ...
    def tell(self, text: str) -> None: ...

    def started(self, configuration: str) -> None: ...

    def finished(self, outcome: Outcome, done: int, total: int) -> None:
        self.outcomes.append(outcome)
