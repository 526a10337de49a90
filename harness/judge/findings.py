"""A hazard, as the judge counts it, workers and hosts say it, and a record holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

# What a device may say of an instruction: `source` is the kernel's own line, `calls` are the lines from the
# instruction's outwards, where calls were inlined.
_PLACE: Final[Mapping[str, type]] = {"source": str, "calls": list, "ptx_line": int, "ptx": str}
# What a device may say in `where`: of the instruction, of the earlier access it conflicts with, and of both. Lists are
# of texts. The judge adds `schedule`.
WHERE: Final[Mapping[str, type]] = {
    **_PLACE,
    **{f"other_{name}": kind for name, kind in _PLACE.items()},
    "cta": int,
    "warp": int,
    "count": int,
    "details": list,
}


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """A hazard as the device reported it."""

    rule: str
    severity: Literal["error", "warning"]
    message: str
    where: dict[str, Any] = field(default_factory=dict)  # fields of WHERE
