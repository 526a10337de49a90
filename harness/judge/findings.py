"""A hazard, as the judge counts it and a record holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """A hazard as the device reported it."""

    rule: str
    severity: Literal["error", "warning"]
    message: str
    where: dict[str, Any] = field(default_factory=dict)
