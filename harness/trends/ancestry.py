"""Commits in the order in which they came from each other, with their subjects and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.errors import InfrastructureError
from fmha.harness.git import git

SECONDS = 120
_FIELDS = "%H%x1f%P%x1f%cI%x1f%an%x1f%s%x1f%D"


@dataclass(frozen=True, slots=True)
class ListedCommit:
    """`known` when it is in this clone; otherwise nothing but its name is known. `parents` are the nearest ancestors
    that are listed, too."""

    sha: str
    subject: str
    author: str
    when: str  # ISO 8601
    tags: tuple[str, ...]
    known: bool


def ordered(root: Path, first_run: Mapping[str, str]) -> list[ListedCommit]:
    """The commits, ancestors first. Those that are not in the clone come before them by the time of their first run,
    which `first_run` has by commit, as is all there is where nothing is a clone."""
    known = _log(root, sorted(first_run))
    strangers = sorted((when, sha) for sha, when in first_run.items() if sha not in known)
    return [ListedCommit(sha, "", "", when, (), False) for when, sha in strangers] + list(known.values())


def _log(root: Path, shas: Sequence[str]) -> dict[str, ListedCommit]:
    try:
        check = "--batch-check=%(objecttype) %(objectname)"
        asked = git(root, "cat-file", check, text="\n".join(shas), seconds=SECONDS)
    except InfrastructureError:
        return {}
    present = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("commit ")]
    if not present:
        return {}
    wanted = frozenset(present)
    said = git(
        root, "log", "--stdin", "--topo-order", "--reverse", "--decorate=full", f"--format={_FIELDS}",
        text="\n".join(present), seconds=SECONDS,
    )  # fmt: skip
    found = {}
    for line in said.stdout.splitlines():
        sha, _, when, author, subject, names = (*line.split("\x1f"), "", "", "", "", "")[:6]
        if sha in wanted:
            tags = tuple(
                part.strip().removeprefix("tag: refs/tags/") for part in names.split(",") if "tag: refs/tags/" in part
            )
            found[sha] = ListedCommit(sha, subject, author, when, tags, True)
    return found
