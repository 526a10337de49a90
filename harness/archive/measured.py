"""What configurations have cost before: a guess for the order of a run, so the records are read without being checked.

Loads nothing of the archive: a run starts with this.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECENT_RUNS = 3  # of a host, and its baseline: more say little more, and each takes time
_MEASURED = ("pass", "fail", "hazard")


def costs(folder: Path, host: str) -> dict[str, float]:
    """Seconds by configuration, from the newest of the host's records in `folder` that has it, or from its baseline."""
    found: dict[str, float] = {}
    for path in (*_recent(folder, host), folder / "baselines" / f"{host}.json"):
        for name, seconds in _seconds(path):
            found.setdefault(name, seconds)
    return found


def _recent(folder: Path, host: str) -> list[Path]:
    name = re.compile(rf"\d{{8}}T\d{{6}}Z-[0-9a-f-]+-{re.escape(host)}(\.\d+)?\.json(\.gz)?")
    try:
        return sorted((path for path in folder.iterdir() if name.fullmatch(path.name)), reverse=True)[:RECENT_RUNS]
    except OSError:
        return []


def _seconds(path: Path) -> Iterator[tuple[str, float]]:
    """What a record says; nothing of what is none."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        items: Any = json.loads(data)["configurations"]
        for item in items:
            seconds = float(item["seconds"])
            if item["status"] in _MEASURED and 0 < seconds < math.inf:
                yield str(item["id"]), seconds
    except (OSError, EOFError, ValueError, LookupError, TypeError, RecursionError):
        return
