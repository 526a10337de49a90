"""matrix.yaml: the one place that decides what is run and what it must reach.

Its modules are loaded when they are first used: a connection is begun before the rest of the client is there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fmha.harness.config.loader import MATRIX_FILE, interpret, load

if TYPE_CHECKING:
    from fmha.harness.config.filters import Filter, parse_filter
    from fmha.harness.config.matrix_model import ALL, Guard, Limits, Matrix
    from fmha.harness.config.settings import SCHEDULES, HostSettings, RemoteSettings, SecretSource

__all__ = [
    "ALL",
    "MATRIX_FILE",
    "SCHEDULES",
    "Filter",
    "Guard",
    "HostSettings",
    "Limits",
    "Matrix",
    "RemoteSettings",
    "SecretSource",
    "interpret",
    "load",
    "parse_filter",
]

_HOMES = {
    "filters": ("Filter", "parse_filter"),
    "matrix_model": ("ALL", "Guard", "Limits", "Matrix"),
    "settings": ("SCHEDULES", "HostSettings", "RemoteSettings", "SecretSource"),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
