"""Hosts by name."""

from __future__ import annotations

from pathlib import Path

from harness.config import Matrix
from harness.errors import UserError
from harness.hosts.base import Host, HostFacts, Machine
from harness.hosts.emulator import EmulatorHost

__all__ = ["Host", "HostFacts", "Machine", "open_host"]


def open_host(name: str, matrix: Matrix, root: Path) -> Host:
    """The host of that name in matrix.yaml. Raises UserError when there is none."""
    settings = matrix.hosts.get(name)
    if settings is None:
        raise UserError(f"no host is named {name!r}", next_step=f"matrix.yaml has {', '.join(matrix.hosts)}")
    return EmulatorHost(settings, root)
