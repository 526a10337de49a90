"""What suites said of a case, and the folder that keeps it from one run to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tools.mutants.examine import Kill
from tools.mutants.library import Mutant

Status = Literal["killed", "survived", "same-code", "open"]  # the last is never kept


@dataclass(frozen=True, slots=True)
class MutantCase:
    """A mutant on one architecture."""

    mutant: Mutant
    arch: str

    @property
    def title(self) -> str:
        """The mutant and its architecture, in words."""
        return f"{self.mutant.name} on {self.arch}"


@dataclass(slots=True)
class CaseOutcome:
    """What each suite that ran said: None where it noticed nothing. `arch` reads other code than the clean kernel's
    unless the status is same-code. `seconds` of processor time it took, nvcc's among them."""

    status: Status
    suites: dict[str, Kill | None] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)  # the digests of suites that noticed nothing
    killers: dict[str, list[str]] = field(default_factory=dict)  # where all were asked for, by suite
    seconds: float = field(default=0.0, compare=False)

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        suites = {name: kill.as_json() if kill else None for name, kill in self.suites.items()}
        whole = {"killers": self.killers} if self.killers else {}
        seconds = round(self.seconds, 1)
        return {"status": self.status, "suites": suites, "silent": self.silent, **whole, "seconds": seconds}

    @staticmethod
    def read(data: Mapping[str, Any]) -> CaseOutcome:
        """From what `as_json` gave."""
        suites = {name: Kill.read(kill) if kill else None for name, kill in data["suites"].items()}
        killers, seconds = data.get("killers", {}), data.get("seconds", 0.0)
        return CaseOutcome(data["status"], suites, data["silent"], killers, seconds)


class Kept:
    """Outcomes of earlier runs, with a line each in the files of a folder; the last one of a key counts, and one of
    these for more than one of `before`. Each part of the cases has a file of its own to add to: machines that share the
    folder cannot append to one."""

    def __init__(self, folder: Path, part: str = "", before: Mapping[str, CaseOutcome] = MappingProxyType({})) -> None:
        self._path = folder / (f"outcomes.{part.replace('/', '-of-')}.jsonl" if part else "outcomes.jsonl")
        self._known = dict(before)
        for path in sorted(folder.glob("outcomes*.jsonl"), key=lambda path: path.stat().st_mtime):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    data = json.loads(line)
                    self._known[data["key"]] = CaseOutcome.read(data)
                except (ValueError, KeyError):
                    continue  # the line of a run that was cut off

    def get(self, key: str) -> CaseOutcome | None:
        """The outcome of that key; None for one that is not known."""
        return self._known.get(key)

    def add(self, key: str, case: MutantCase, outcome: CaseOutcome) -> None:
        """Keeps an outcome at once, so that a campaign that is ended goes on from there."""
        self._known[key] = outcome
        line = {"key": key, "name": case.mutant.name, "arch": case.arch, **outcome.as_json()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
