"""Protected paths: a change of theirs runs on this host only once somebody has approved it.

What is approved is a commit with the paths that its matrix.yaml protects. Another commit runs when what it has at the
protected paths is what an approved one has there. The paths are its own and those of the commit approved last: a
commit cannot take the protection off itself, since leaving out a path that was protected wants approval as well.
The first run on a host sets what is approved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fmha.harness.supervisor.repository import Repository
from fmha.harness.supervisor.rundir import HostError, read_json, write_json

MOST_NAMED = 10


def check(repository: Repository, folder: Path, sha: str, paths: Sequence[str], approve: bool) -> None:
    """Raises HostError when what `paths` hold at `sha` was never approved, naming the files; `approve` approves it."""
    approved = folder / "approved"
    approved.mkdir(parents=True, exist_ok=True)
    known = sorted(map(read_json, approved.glob("*.json")), key=lambda entry: int(entry["order"]), reverse=True)
    last = known[0]["paths"] if known else []
    wanted = sorted({*paths, *last})
    if not wanted or any(_covers(repository, entry, sha, paths, wanted) for entry in known):
        return
    if known and not approve:
        raise HostError(_difference(repository, known[0], sha, paths, wanted), _STEP, usage=True)
    repository.approve(sha)
    order = int(known[0]["order"]) + 1 if known else 1
    write_json(approved / f"{order:06}-{sha}.json", {"sha": sha, "paths": list(paths), "order": order})


_STEP = "look at the change, then run with --approve-protected"


def _covers(
    repository: Repository, entry: dict[str, Any], sha: str, paths: Sequence[str], wanted: Sequence[str]
) -> bool:
    """Whether an approved commit protects nothing more, and has the same at `wanted`."""
    if not set(entry["paths"]) <= set(paths):
        return False
    if entry["sha"] == sha:
        return True
    return _changed(repository, entry, sha, wanted) == []


def _difference(
    repository: Repository, entry: dict[str, Any], sha: str, paths: Sequence[str], wanted: Sequence[str]
) -> str:
    said = []
    if gone := sorted(set(entry["paths"]) - set(paths)):
        said.append(f"{', '.join(map(repr, gone))} would not be protected any more")
    names = _changed(repository, entry, sha, wanted)
    if names or names is None:
        names = names or list(wanted)
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        said.append(f"protected files differ from what was approved: {', '.join(map(repr, names[:MOST_NAMED]))}{more}")
    return "; ".join(said)


def _changed(repository: Repository, entry: dict[str, Any], sha: str, wanted: Sequence[str]) -> list[str] | None:
    """Names at `wanted` that differ from an approved commit's; None when the host has lost that."""
    try:
        return repository.changed(entry["sha"], sha, wanted)
    except HostError:
        return None
