"""The checkout that a command about hosts stands in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fmha.harness.config import HostSettings, Matrix, load
from fmha.harness.config.settings import SUPERVISED, either
from fmha.harness.errors import UserError
from fmha.harness.hosts import settings_for
from fmha.harness.stages.preflight import git_root


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout with its matrix.yaml."""

    root: Path
    matrix: Matrix

    def on(self, host: HostSettings) -> RunPlace:
        """A host with a supervisor, seen from this checkout. Raises UserError for other hosts."""
        if host.remote is None:
            raise UserError(f"host {host.name!r} keeps no runs", next_step=f"name a host of kind {either(SUPERVISED)}")
        return RunPlace(self.root, self.matrix, host)

    def named(self, name: str) -> RunPlace:
        """The host of that name. UserError for none."""
        return self.on(settings_for(name, self.matrix))

    def places(self) -> list[RunPlace]:
        """Every host with a supervisor."""
        return [self.on(host) for host in self.matrix.hosts.values() if host.remote is not None]


@dataclass(frozen=True, slots=True)
class RunPlace:
    """A host with a supervisor, seen from a checkout."""

    root: Path
    matrix: Matrix
    host: HostSettings


def find_checkout(directory: Path) -> Checkout:
    """Raises UserError outside a checkout, ConfigError for a wrong matrix.yaml."""
    root = git_root(directory)
    return Checkout(root, load(root))
