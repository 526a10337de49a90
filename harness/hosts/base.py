"""What the stages ask of a machine. One module a kind of host implements it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.config import Limits
from harness.worker.protocol import BuildResult, Configuration, Event, Job, Variant


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores` are those this process may use."""

    cpu: str
    cores: int
    system: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Provenance of a host. A version is None when the distribution is not installed there."""

    name: str
    kind: str
    machine: Machine
    versions: Mapping[str, str | None]


class Host(Protocol):
    """A machine that builds variants and runs jobs. Failures of its machinery are InfrastructureErrors."""

    @property
    def device(self) -> str:
        """What `Job.device` names on this host."""

    def facts(self) -> HostFacts: ...

    def variant_for(self, configuration: Configuration) -> Variant | str:
        """The kernel that runs a configuration, or the reason why none does."""

    def build(self, variants: Sequence[Variant], limits: Limits, progress: Callable[[str], None]) -> list[BuildResult]:
        """One result a variant; a variant that does not build has `error` set and takes no other down."""

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        """The job's events as they happen. Closing the generator ends every process of the job.

        A configuration that crashes or exceeds a limit has an `error` event; the others go on.
        """
