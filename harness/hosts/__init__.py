"""Hosts by name."""

from __future__ import annotations

from pathlib import Path

from harness.config import HostSettings, Matrix
from harness.errors import UserError
from harness.hosts.base import Host, HostFacts, Machine, Order
from harness.hosts.emulator import EmulatorHost

__all__ = ["Host", "HostFacts", "Machine", "Order", "open_host", "settings_for"]


def settings_for(name: str, matrix: Matrix) -> HostSettings:
    """The settings of the host of that name in matrix.yaml. Raises UserError when there is none."""
    settings = matrix.hosts.get(name)
    if settings is None:
        raise UserError(f"no host is named {name!r}", next_step=f"matrix.yaml has {', '.join(matrix.hosts)}")
    return settings


def open_host(name: str, matrix: Matrix, root: Path) -> Host:
    """The host of that name in matrix.yaml. Raises UserError when there is none."""
    settings = settings_for(name, matrix)
    if settings.remote is not None:
        from harness.hosts.remote import RemoteHost  # what reaches other machines is loaded when it is needed

        return RemoteHost(settings, root)
    return EmulatorHost(settings, root)
