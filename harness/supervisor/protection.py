"""Protected paths: a change of theirs runs on this host only once somebody has approved it.

The host remembers the contents it has seen approved, by fingerprint, so that a branch with earlier approved contents
runs too. The first run on a host sets what is approved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.supervisor.repository import Repository
from harness.supervisor.rundir import HostError, read_json, write_json

MOST_NAMED = 10


def check(repository: Repository, folder: Path, sha: str, paths: Sequence[str], approve: bool) -> None:
    """Raises HostError when what `paths` hold at `sha` was never approved, naming the files; `approve` approves it."""
    if not paths:
        return
    approved = folder / "approved"
    approved.mkdir(parents=True, exist_ok=True)
    mine = approved / f"{repository.fingerprint(sha, paths)}.json"
    if mine.exists():
        return
    # Per set of paths: a setting that protects more must not take the wider contents for approved ones.
    last = [entry for entry in map(read_json, approved.glob("*.json")) if entry["paths"] == list(paths)]
    if last and not approve:
        newest = max(last, key=lambda entry: int(entry["order"]))
        names = repository.changed(newest["sha"], sha, paths) if repository.has(newest["sha"]) else list(paths)
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise HostError(
            f"protected files differ from what was approved: {', '.join(map(repr, names[:MOST_NAMED]))}{more}",
            "look at the change, then run with --approve-protected",
            usage=True,
        )
    write_json(mine, {"sha": sha, "paths": list(paths), "order": len(last) + 1})
