"""Which commits were accepted as baselines, by whom and why: those that are there now, and those in git's history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.archive import BASELINES
from fmha.harness.errors import InfrastructureError
from fmha.harness.git import git

MOST = 50  # of the history, the newest
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Baseline:
    """An accepted baseline: of which commit, by whom, when and why."""

    name: str
    sha: str
    accepted: str
    by: str
    why: str


def baselines(results: Path) -> list[Baseline]:
    """The newest first, each once."""
    folder = results / BASELINES
    texts = [(path.stem, path.read_text(encoding="utf-8", errors="replace")) for path in sorted(folder.glob("*.json"))]
    found = {item for name, text in [*texts, *_earlier(folder)] for item in _read(name, text)}
    return sorted(found, key=lambda item: (item.accepted, item.name), reverse=True)


def _read(name: str, text: str) -> Iterator[Baseline]:
    try:
        data = json.loads(text)
        given = data["acceptance"]
        yield Baseline(name, str(data["commit"]["sha"]), str(given["accepted"]), str(given["by"]), str(given["why"]))
    except (ValueError, KeyError, TypeError):
        return  # fmha results verify names what is damaged


def _earlier(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and content of versions that git has."""
    if not folder.is_dir():
        return
    try:
        said = git(folder, "log", "--raw", "--no-abbrev", "--format=", f"-{MOST}", "--", ".", seconds=SECONDS)
        for line in dict.fromkeys(said.stdout.splitlines()):
            fields, _, path = line.partition("\t")
            blob = fields.split(" ")[3] if fields.startswith(":") else ""
            if path.endswith(".json") and blob.strip("0"):
                yield Path(path).stem, git(folder, "cat-file", "blob", blob, seconds=SECONDS).stdout
    except InfrastructureError:
        return
