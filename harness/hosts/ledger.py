"""Which host a run was started on, kept in `.fmha/remote` of the checkout: its name is then enough to attach to it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def note(root: Path, run: str, host: str) -> None:
    """Keeps it if that is possible: a full disk here must not stop a run there."""
    with contextlib.suppress(OSError):
        folder = root / ".fmha" / "remote"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / run).write_text(host, encoding="utf-8")


def host_of(root: Path, run: str) -> str | None:
    """The host of a run that was started from this checkout."""
    if "/" in run or run.startswith("."):
        return None
    try:
        return (root / ".fmha" / "remote" / run).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
