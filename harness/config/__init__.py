"""matrix.yaml: the one place that decides what is run and what it must reach."""

from fmha.harness.config.filters import Filter, parse_filter
from fmha.harness.config.hosts import HostSettings, RemoteSettings, SecretSource
from fmha.harness.config.loader import MATRIX_FILE, interpret, load
from fmha.harness.config.model import ALL, Guard, Limits, Matrix
from fmha.harness.config.section import SCHEDULES

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
