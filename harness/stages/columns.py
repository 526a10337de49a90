"""The columns of a table of configurations: what identifies one, its metrics with a heading, and what it took."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from fmha.harness.judge.metrics import HEADINGS, METRICS

if TYPE_CHECKING:
    from fmha.harness.archive.record import ConfigurationRecord

TIME: Final = "us"  # of a launch on a GPU, where the run has such times


def shown_value(metric: str, value: float | None) -> str:
    """A metric as tables show it: a cosine by the digits that differ, an error by its size."""
    return "-" if value is None else format(value, ".8f" if METRICS[metric].least else ".1e")


def value_of(metric: str, item: ConfigurationRecord) -> str:
    """A metric of a configuration, as tables show it."""
    return shown_value(metric, getattr(item.metrics, metric) if item.metrics else None)


def cells(item: ConfigurationRecord) -> tuple[str, ...]:
    """One row under COLUMNS."""
    return tuple(cell(item) for cell in _CELLS.values())


def microseconds(item: ConfigurationRecord) -> str:
    """The median of a launch, under TIME."""
    return f"{statistics.median(item.timing.seconds) * 1e6:.2f}" if item.timing else "-"


def _hazards(item: ConfigurationRecord) -> str:
    if item.metrics is None and not item.findings and not item.stats:
        return "-"
    errors = sum(finding.severity == "error" for finding in item.findings)
    warnings = len(item.findings) - errors
    return f"{errors}+{warnings}w" if warnings else str(errors)


def _instructions(item: ConfigurationRecord) -> str:
    count = item.stats.get("warp_instructions")
    return str(count) if isinstance(count, int) else "-"


def _seconds(item: ConfigurationRecord) -> str:
    return f"{item.seconds:.2f}" if item.seconds else "-"


_CELLS: Final[Mapping[str, Callable[[ConfigurationRecord], str]]] = {
    "configuration": lambda item: item.id,
    "status": lambda item: item.status,
    **{heading: partial(value_of, metric) for metric, heading in HEADINGS.items()},
    "hazards": _hazards,
    "warp-instr": _instructions,
    "seconds": _seconds,
}
COLUMNS: Final = tuple(_CELLS)
# What gives way on a narrow terminal, the least telling first: errors before cosines.
DISPENSABLE: Final = (
    "warp-instr",
    *(heading for metric, heading in HEADINGS.items() if not METRICS[metric].least),
    "seconds",
    "hazards",
    *(heading for metric, heading in HEADINGS.items() if METRICS[metric].least),
)
