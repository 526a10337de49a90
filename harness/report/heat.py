"""Heat maps: T by s_k for every head_dim, one a metric, with the worst cell named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.evidence.views import error_of
from fmha.harness.judge.comparison.noise import values_of
from fmha.harness.judge.configuration import DEFAULTS
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status

STEPS = 7  # of colour
NAMES = {name: metric.words for name, metric in METRICS.items()}
_AXES = ("head_dim", "t", "s_k")

Limit = Callable[[ConfigurationRecord, str], float | None]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """What one square shows. `step` is a colour, the larger the worse; None where there is no number."""

    id: str
    text: str
    step: int | None
    status: Status
    worst: bool


@dataclass(frozen=True, slots=True)
class HeatGrid:
    """A column an s_k; a row a T of one head_dim, or a head_dim where there is one T. None where nothing was run."""

    title: str
    corner: str
    columns: tuple[int, ...]
    rows: tuple[tuple[int, tuple[HeatCell | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One metric over the configurations that differ in head_dim, T and s_k only."""

    metric: str
    name: str
    grids: tuple[HeatGrid, ...]
    worst_id: str
    worst_text: str
    limit_text: str


@dataclass(frozen=True, slots=True)
class HeatGroup:
    """Configurations with the same features, e.g. a mask, and their maps."""

    title: str
    maps: tuple[HeatMap, ...]  # none when nothing was measured
    count: int


def groups(items: Sequence[ConfigurationRecord], limit: Limit) -> tuple[HeatGroup, ...]:
    """The maps of a run. Features that a single configuration has make no map."""
    by_features: dict[str, list[ConfigurationRecord]] = {}
    for item in items:
        by_features.setdefault(features(item), []).append(item)
    return tuple(
        HeatGroup(title or "plain", _maps(members, limit), len(members))
        for title, members in by_features.items()
        if len(members) > 1 or len(by_features) == 1
    )


def features(item: ConfigurationRecord) -> str:
    """Every axis but head_dim, T and s_k that is not at its plain value, in words."""
    words = []
    for name, value in item.parameters.model_dump().items():
        if name in _AXES or value in (DEFAULTS.get(name), None, "", [], {}) or value is False:
            continue
        if (name, value) != ("mask", "window"):  # the window's width says it
            words.append(str(value) if name == "mask" else f"{name.replace('_', ' ')} {value}")
    return ", ".join(words)


def shown(value: float) -> str:
    """Two digits, in few characters."""
    return f"{value:.1e}".replace("e-0", "e-") if math.isfinite(value) else str(value)


def _maps(items: Sequence[ConfigurationRecord], limit: Limit) -> tuple[HeatMap, ...]:
    items = [item for item in items if item.parameters.kernel is None]
    if not any(item.metrics for item in items):
        return ()
    return tuple(_map(metric, items, limit) for metric in METRICS)


def _map(metric: str, items: Sequence[ConfigurationRecord], limit: Limit) -> HeatMap:
    errors = {item.id: _error(item, metric) for item in items}
    measured = {name: error for name, error in errors.items() if error is not None}
    worst = max(measured, key=lambda name: _badness(measured[name])) if measured else ""
    limits = {item.id: limit(item, metric) for item in items}
    cells = {item.id: _cell(item, metric, errors, limits[item.id], item.id == worst) for item in items}
    limit_text = shown(found) if worst and (found := limits[worst]) is not None else ""
    worst_text = shown(measured[worst]) if worst else ""
    return HeatMap(metric, NAMES[metric], tuple(_grids(items, cells)), worst, worst_text, limit_text)


def _grids(items: Sequence[ConfigurationRecord], cells: dict[str, HeatCell]) -> Iterable[HeatGrid]:
    sizes = {item.id: _sizes(item) for item in items}
    ts = {t for _, t, _ in sizes.values()}
    if len(ts) == 1:
        places = [(head_dim, s_k, cells[name]) for name, (head_dim, _, s_k) in sizes.items()]
        yield _grid(f"T {ts.pop()}: head_dim by s_k", "head_dim \\ s_k", places)
        return
    for head_dim in sorted({of for of, _, _ in sizes.values()}):
        places = [(t, s_k, cells[name]) for name, (of, t, s_k) in sizes.items() if of == head_dim]
        yield _grid(f"head_dim {head_dim}: T by s_k", "T \\ s_k", places)


def _sizes(item: ConfigurationRecord) -> tuple[int, int, int]:
    """head_dim, T and s_k, which a configuration of attention always has."""
    sizes = item.parameters
    head_dim, t, s_k = (int(value or 0) for value in (sizes.head_dim, sizes.t, sizes.s_k))
    return head_dim, t, s_k


def _grid(title: str, corner: str, places: Sequence[tuple[int, int, HeatCell]]) -> HeatGrid:
    columns = tuple(sorted({column for _, column, _ in places}))
    at = {(row, column): cell for row, column, cell in places}
    rows = sorted({row for row, _, _ in places})
    return HeatGrid(
        title, corner, columns, tuple((row, tuple(at.get((row, column)) for column in columns)) for row in rows)
    )


def _cell(
    item: ConfigurationRecord, metric: str, errors: dict[str, float | None], limit: float | None, worst: bool
) -> HeatCell:
    error = errors[item.id]
    if error is None:
        return HeatCell(item.id, item.status, None, item.status, False)
    known = [value for value in errors.values() if value is not None and math.isfinite(value)]
    return HeatCell(item.id, shown(error), _step(error, limit or max(known, default=0.0)), item.status, worst)


def _step(error: float, top: float) -> int:
    """Which part of the way to `top`, the limit or else the largest error, this is."""
    if not math.isfinite(error):
        return STEPS - 1
    return min(STEPS - 1, max(0, int(error / top * STEPS))) if top > 0 else 0


def _error(item: ConfigurationRecord, metric: str) -> float | None:
    return error_of(metric, values_of(item.metrics)[metric]) if item.metrics else None


def _badness(error: float) -> float:
    return error if math.isfinite(error) else math.inf
