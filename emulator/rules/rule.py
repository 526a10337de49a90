"""What is said about a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """`section` of the PTX ISA 9.1. `lenient`: reported under that profile too. `ends`: the launch."""

    section: str
    meaning: str
    remedy: str
    severity: Severity = "error"
    lenient: bool = True
    ends: bool = False


def fault(section: str, meaning: str, remedy: str) -> Rule:
    return Rule(section, meaning, remedy, ends=True)
