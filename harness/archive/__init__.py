"""The archive: one JSON file a run, versioned, checksummed, written atomically; and an index over the files.

Its modules are loaded when they are first used: a run starts before it has a record.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fmha.harness.archive.folder import BASELINES, baseline_commits, prepare

if TYPE_CHECKING:
    from fmha.harness.archive.find_run import Found, find
    from fmha.harness.archive.index import Index
    from fmha.harness.archive.measured import costs
    from fmha.harness.archive.record import RunRecord
    from fmha.harness.archive.record_files import dumps, read, replace, schema, write

__all__ = [
    "BASELINES",
    "Found",
    "Index",
    "RunRecord",
    "baseline_commits",
    "costs",
    "dumps",
    "find",
    "prepare",
    "read",
    "replace",
    "schema",
    "write",
]

_HOMES = {
    "measured": ("costs",),
    "record_files": ("dumps", "read", "replace", "schema", "write"),
    "find_run": ("Found", "find"),
    "index": ("Index",),
    "record": ("RunRecord",),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
