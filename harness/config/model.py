"""matrix.yaml as the rest of the harness sees it: validated, expanded, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.config.hosts import HostSettings
from harness.worker.protocol import Configuration


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of one gate, defined in docs/gates.md: a least value for `cosine`, greatest values for the others."""

    cosine: float
    relative_l2: float
    max_error: float
    lse_error: float
    row_max_error: float
    row_sum_error: float


@dataclass(frozen=True, slots=True)
class Guard:
    """The proven path: configurations of `head_dim` run first, `fallback` when a selection has none of them."""

    head_dim: int
    fallback: Configuration
    thresholds: Thresholds


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. Silence is the time a configuration may go without any word from its worker."""

    build_seconds: float
    silence_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class Matrix:
    """All of matrix.yaml. Suites are never empty; their configurations have unique ids, those of the guard first."""

    default_suite: str
    seed: int
    suites: Mapping[str, tuple[Configuration, ...]]
    thresholds: Thresholds
    guard: Guard
    limits: Limits
    hosts: Mapping[str, HostSettings]
    sha256: str

    def is_guard(self, configuration: Configuration) -> bool:
        return configuration.head_dim == self.guard.head_dim

    def thresholds_for(self, configuration: Configuration) -> Thresholds:
        return self.guard.thresholds if self.is_guard(configuration) else self.thresholds
