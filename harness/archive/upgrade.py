"""Older versions of a run record, brought to the current one in memory.

A version that only added what has a default needs nothing here: of an older run it is not known. So were 2 (GPU,
timings, source lines, acceptance, checksum), 3 (by what a run was judged), 4 (that it was asked for elsewhere), 5 (what
has a direction) and 6 (what kept the commit's code apart, and the rest of the judge's harness).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmha.harness.archive.record import SCHEMA_VERSION

Document = dict[str, Any]


def upgraded(document: Document) -> Document:
    """The document as SCHEMA_VERSION would have it. One of an unknown version is returned as it is."""
    while document.get("schema_version") in range(1, SCHEMA_VERSION):
        version = int(document["schema_version"])
        step = _STEPS.get(version)
        document = (step(document) if step else document) | {"schema_version": version + 1}
    return document


def _from_6(document: Document) -> Document:
    """Version 7 says which suites were asked for, which of them have a configuration, and why one was withheld. Of an
    older run the last is known by its reason."""
    items = [item | {"withheld": _withheld(item)} for item in document["configurations"]]
    return document | {"configurations": items}


def _withheld(item: Document) -> str | None:
    if item["status"] != "not-run" or not item["reasons"]:
        return None
    reason = str(item["reasons"][0])
    return "guard" if reason.startswith("guard: ") else "stopped" if reason == "interrupted" else None


_STEPS: dict[int, Callable[[Document], Document]] = {6: _from_6}
