"""What is said about a rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`section` of the PTX ISA 9.1. `lenient`: reported under that profile too. `ends`: the launch. `instead`: other
    remedies, each with a pattern that is looked for in the finding's message and the instructions that it names."""

    section: str
    meaning: str
    remedy: str
    severity: Severity = "error"
    lenient: bool = True
    ends: bool = False
    instead: tuple[tuple[str, str], ...] = ()

    def remedy_at(self, text: str) -> str:
        """The remedy for a finding of these instructions."""
        return next((remedy for pattern, remedy in self.instead if re.search(pattern, text)), self.remedy)


def fault(section: str, meaning: str, remedy: str, *instead: tuple[str, str]) -> Rule:
    """A rule whose breach ends the run."""
    return Rule(section, meaning, remedy, ends=True, instead=instead)


def when(pattern: str, remedy: str) -> tuple[str, str]:
    """One of `instead`."""
    return pattern, remedy
