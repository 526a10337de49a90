"""Older versions of a run record, brought to the current one in memory. One step a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmha.harness.archive.record import SCHEMA_VERSION

Document = dict[str, Any]


def upgraded(document: Document) -> Document:
    """The document as SCHEMA_VERSION would have it. One of an unknown version is returned as it is."""
    while (step := _STEPS.get(document.get("schema_version"))) is not None:
        document = step(document)
    return document


def _from_1(document: Document) -> Document:
    """Version 2 added defaults only: GPU, timings, source lines, acceptance, checksum."""
    return document | {"schema_version": 2}


def _from_2(document: Document) -> Document:
    """Version 3 added by what a run was judged, its judge and limits: of an older run nothing is known of either."""
    return document | {"schema_version": 3}


def _from_3(document: Document) -> Document:
    """Version 4 says when a run was asked for elsewhere: of an older one that is not known, and taken for not so."""
    return document | {"schema_version": 4}


def _from_4(document: Document) -> Document:
    """Version 5 added what has a direction, of each configuration and pooled: of an older run neither is known."""
    return document | {"schema_version": 5}


def _from_5(document: Document) -> Document:
    """Version 6 says what kept the commit's code apart, and by which rest of the harness its judge was carried out: of
    an older run neither is known."""
    return document | {"schema_version": 6}


def _from_6(document: Document) -> Document:
    """Version 7 says which suites were asked for, which of them have a configuration, and why one was withheld. Of an
    older run the last is known by its reason."""
    items = [item | {"withheld": _withheld(item)} for item in document["configurations"]]
    return document | {"schema_version": 7, "configurations": items}


def _withheld(item: Document) -> str | None:
    if item["status"] != "not-run" or not item["reasons"]:
        return None
    reason = str(item["reasons"][0])
    return "guard" if reason.startswith("guard: ") else "stopped" if reason == "interrupted" else None


_STEPS: dict[Any, Callable[[Document], Document]] = {
    1: _from_1,
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
    6: _from_6,
}
assert set(_STEPS) == set(range(1, SCHEMA_VERSION))
