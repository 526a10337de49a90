"""Hosts by name. Importing this loads next to nothing: a connection is begun before the rest of the client is there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.harness.errors import UserError

if TYPE_CHECKING:
    from fmha.harness.config import HostSettings, Matrix
    from fmha.harness.contract.machine import Machine
    from fmha.harness.hosts.base import Host, HostProvenance, Order
    from fmha.harness.worker.planner.sides import Declares

__all__ = ["Host", "HostProvenance", "Machine", "Order", "declared_by", "open_host", "settings_for"]


_BASE = ("Host", "HostProvenance", "Machine", "Order")


def __getattr__(name: str) -> Any:
    if name not in _BASE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.base"), name)
    return value


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
        from fmha.harness.hosts.remote import RemoteHost
        from fmha.harness.judge.configuration import OURS

        return RemoteHost(settings, root, declared_by(matrix), own=OURS not in matrix.kernels)
    from fmha.harness.hosts.emulator_host import EmulatorHost

    return EmulatorHost(settings, root, declared_by(matrix))


def declared_by(matrix: Matrix) -> dict[str, Declares]:
    """The kernels of the matrix that have an adapter, ready to be built and launched."""
    made = {name: kernel.declared(name) for name, kernel in matrix.kernels.items()}
    return {name: kernel for name, kernel in made.items() if kernel is not None}
