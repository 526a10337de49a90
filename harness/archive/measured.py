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
    """Seconds by configuration, from the newest of the host's records in `folder` that has it, or from its baseline.
    Of a record that several hosts share, what ran on this one."""
    found: dict[str, float] = {}
    for path in (*_recent(folder, host), folder / "baselines" / f"{host}.json"):
        for name, seconds in _seconds(path, host):
            found.setdefault(name, seconds)
    return found


def _recent(folder: Path, host: str) -> list[Path]:
    # A file name has `_` for the `+` between hosts that share a run. Whose record it is says the record.
    own = rf"([A-Za-z0-9._-]+_)?{re.escape(host)}(_[A-Za-z0-9._-]+)?"
    name = re.compile(rf"\d{{8}}T\d{{6}}Z-[0-9a-f-]+-{own}(\.\d+)?\.json(\.gz)?")
    try:
        return sorted((path for path in folder.iterdir() if name.fullmatch(path.name)), reverse=True)[:RECENT_RUNS]
    except OSError:
        return []


def _seconds(path: Path, host: str) -> Iterator[tuple[str, float]]:
    """What a record says of the host; nothing of what is no record."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        record: Any = json.loads(data)
        hosts = record["host"]["name"].split("+")
        if host not in hosts:
            return
        for item in record["configurations"]:
            seconds = float(item["seconds"])
            here = len(hosts) == 1 or item["place"].split("/")[0] == host
            if here and item["status"] in _MEASURED and 0 < seconds < math.inf:
                yield str(item["id"]), seconds
    except (OSError, EOFError, ValueError, LookupError, TypeError, RecursionError):
        return
