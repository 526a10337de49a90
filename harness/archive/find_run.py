"""Finds the run that a user means: by file, name, commit, host, or as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fmha.harness.archive import signature
from fmha.harness.archive.folder import BASELINES
from fmha.harness.archive.index import Index, RunRow
from fmha.harness.archive.record import RunRecord
from fmha.harness.archive.record_files import read
from fmha.harness.errors import UserError
from fmha.harness.git import resolve_commit

NAMES_OF_RUNS = "a file, the name of a run or its start, a commit, [COMMIT]@[HOST][:SCHEDULE], latest or baseline:NAME"


@dataclass(frozen=True, slots=True)
class Found:
    """A record and the file it is in."""

    path: Path
    record: RunRecord


def find(wanted: str, results: Path, root: Path) -> Found:
    """The run that `wanted` names, in the archive `results` of the checkout `root`. Raises UserError.

    One of NAMES_OF_RUNS. A commit stands for its newest run, `@HOST` for the newest run there, `@:SCHEDULE` for the
    newest under that schedule.
    """
    if wanted.startswith("baseline:"):
        return _baseline(wanted.removeprefix("baseline:"), results)
    if wanted.endswith((".json", ".json.gz")) or ("/" in wanted and Path(wanted).is_file()):
        path = Path(wanted) if Path(wanted).exists() or not (results / wanted).exists() else results / wanted
        return Found(path, read(path))
    with Index(results) as index:
        row = _named(wanted, index.runs()) or _of_commit(wanted, index, root)
    if row is not None:
        return Found(results / row.name, read(results / row.name))
    damaged = _unread(wanted, results)
    if damaged is None:
        raise UserError(f"no run is known as {wanted!r}", where=str(results), next_step=f"name {NAMES_OF_RUNS}")
    return Found(damaged, read(damaged))


def _baseline(name: str, results: Path) -> Found:
    folder = results / BASELINES
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(item.stem for item in folder.glob("*.json"))) or "none"
        raise UserError(f"no baseline is named {name!r}", where=str(folder), next_step=f"there is {known}")
    signature.check(path)
    return Found(path, read(path))


def _named(wanted: str, rows: list[RunRow]) -> RunRow | None:
    """By the name of its file or a start of it that no other run shares."""
    exact = [row for row in rows if row.name.split(".json")[0] == wanted]
    matching = exact or [row for row in rows if len(wanted) >= 8 and row.name.startswith(wanted)]
    if len(matching) > 1:
        names = ", ".join(row.name.split(".json")[0] for row in matching[:3])
        raise UserError(f"{wanted!r} is the start of {len(matching)} runs", next_step=f"add to it: {names}")
    return matching[0] if matching else None


def _unread(wanted: str, results: Path) -> Path | None:
    """The one file that goes by this name though the index has no run of it: reading it says what is wrong with it."""
    files = [path for path in results.glob("*.json*") if path.name.startswith(wanted)] if len(wanted) >= 8 else []
    return files[0] if len(files) == 1 else None


def _of_commit(wanted: str, index: Index, root: Path) -> RunRow | None:
    commit, _, place = wanted.partition("@") if not wanted.startswith("HEAD@{") else (wanted, "", "")
    host, _, schedule = place.partition(":")
    sha = None
    if commit and commit != "latest":
        sha = resolve_commit(root, commit)
        if sha is None:
            return None
    rows = index.runs(sha=sha, host=host or None, schedule=schedule or None)
    if not rows:
        what = f"of commit {commit}" if sha else "archived"
        where = (f" on {host}" if host else "") + (f" under schedule {schedule}" if schedule else "")
        raise UserError(f"no run {what}{where} yet", next_step="fmha results ls lists the runs there are")
    return rows[0]
