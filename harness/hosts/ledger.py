"""What this checkout has asked of which host, kept in `.fmha/remote`: a run's name is then enough to attach to it, and
the host's word is not needed for what the run was to be."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness import account
from fmha.harness.hosts.base import Order


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Where a run is. What was asked is empty for runs of versions that kept the host alone.

    `judge` is the commit that was asked to judge, empty for the run's own, None where a version did not keep it.
    """

    host: str
    sha: str = ""
    request: Mapping[str, Any] | None = None
    matrix_sha256: str = ""
    judge: str | None = None


def note(root: Path, run: str, host: str, order: Order, judge: str | None) -> None:
    """Keeps it if that is possible: a full disk here must not stop a run there."""
    words = {
        "host": host,
        "sha": order.sha,
        "request": dict(order.request),
        "matrix_sha256": order.matrix_sha256,
        "judge": judge or "",
    }
    with contextlib.suppress(OSError):
        folder = account.in_checkout(root, "remote")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / run).write_text(json.dumps(words), encoding="utf-8")


def entry(root: Path, run: str) -> LedgerEntry | None:
    """Of a run that was started from this checkout."""
    if "/" in run or run.startswith("."):
        return None
    try:
        text = account.no_link(account.in_checkout(root, "remote") / run).read_text(encoding="utf-8")
        return (
            LedgerEntry(**json.loads(text))
            if text.startswith("{")
            else LedgerEntry(text)
            if text.isprintable()
            else None
        )
    except (OSError, ValueError, TypeError):
        return None


def runs(root: Path) -> list[str]:
    """The names of the runs that were started from this checkout, the newest first."""
    try:
        return sorted((path.name for path in (account.in_checkout(root, "remote")).iterdir()), reverse=True)
    except OSError:
        return []
