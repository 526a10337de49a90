"""What the stages ask of a machine. Two do it: EmulatorHost (emulator_host.py) on this one, and RemoteHost (remote.py)
for all kinds of host that have a supervisor, which differ in their way to it alone: a row of ways.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fmha.harness.contract.machine import Gpu, Machine

if TYPE_CHECKING:
    from fmha.harness.config import Limits
    from fmha.harness.contract.protocol import BuildResult, Cell, Event, Job, Variant


@dataclass(frozen=True, slots=True)
class HostProvenance:
    """Provenance of a host. A version is None when the distribution is not installed there."""

    name: str
    kind: str
    machine: Machine
    versions: Mapping[str, str | None]
    gpu: Gpu | None = None
    mma_sums: Literal["silicon"] | None = None  # of the emulator where they are not its own
    gpus: tuple[Gpu, ...] = ()  # all of them, where a run has several; `gpu` is the first
    isolation: str | None = None  # what keeps the commit's code from the machine, or why nothing does
    own_harness: bool = False  # elsewhere: the harness that ran there is the judged commit's
    own_harness_enclosed: bool = False  # and it ran in a sandbox as a whole
    hosts: tuple[HostProvenance, ...] = ()  # each, where several shared a run; the rest is then of the first


@dataclass(frozen=True, slots=True)
class Order:
    """All that will be asked of a host in one run: enough to plan and carry it out where the client is not."""

    sha: str
    branch: str | None
    label: str  # for people
    request: Mapping[str, object]  # what chooses the configurations, by the names of the pipeline's Request
    limits: Limits
    matrix: str  # the text of matrix.yaml
    matrix_sha256: str
    approve_protected: bool
    priority: str = "normal"  # among the runs of one account: high, normal or low
    alike: bool = False  # where nobody else judges: the default branch has the same harness
    beside: str | None = None  # a commit whose builds are to be timed beside this one's
    spare: Sequence[str] = ()  # commits whose runs the host is to keep: those of baselines
    workers: int | None = None  # how many configurations run at once; None: the host's word
    costs: Mapping[str, float] = field(default_factory=dict)  # seconds that configurations have taken before, by id


class Host(Protocol):
    """A machine that builds variants and runs jobs. Failures of its machinery are InfrastructureErrors."""

    @property
    def device(self) -> str:
        """What `Job.device` names on this host."""

    @property
    def exact(self) -> bool:
        """Whether the host runs commits only, never a working tree."""

    @property
    def run_id(self) -> str | None:
        """The run's name on a host that keeps it without us; None elsewhere, and before `begin`."""

    def begin(self, order: Order, progress: Callable[[str], None], tell: Callable[[str], None]) -> None:
        """Hears the whole order before its first part. An exact host gets the commit and starts; `tell` hears what is
        published before it is."""

    def facts(self) -> HostProvenance:
        """What the host is. Complete once a run has begun there."""

    def durations(self) -> Mapping[str, float]:
        """Seconds of the stages that the host has measured itself, by name."""

    def span(self) -> tuple[datetime, datetime] | None:
        """When the run began and ended, on a host that keeps it without us; None elsewhere."""

    def judge_apart(self, judge: str, tree: Path) -> None:
        """The kernel's side comes from the checkout `tree` from now on, and on an exact host the judge from the commit
        `judge`."""

    def variant_for(self, configuration: Cell) -> Variant | str:
        """The kernel that runs a configuration, or the reason why none does."""

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        """One result a variant; a variant that does not build has `error` set and takes no other down."""

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        """The job's events as they happen. Closing the generator ends every process of the job.

        A configuration that crashes or exceeds a limit has an `error` event; the others go on.
        """

    def finish(self) -> None:
        """Hears that nothing more is asked. Raises InfrastructureError when what was reported does not count."""
