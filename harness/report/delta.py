"""What changed between two runs, as maps of head_dim x T x s_k: one a figure, the worst first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.config.filters import KEYS
from fmha.harness.evidence.story import Pair, axes_of, name_of, paired
from fmha.harness.evidence.views import error_of
from fmha.harness.judge.comparison.comparison import Comparison, band_for, counters_of, same_inputs
from fmha.harness.judge.comparison.noise import scaled, values_of
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import RED, Status

MOST_COLUMNS = 8  # of s_k one by one; more are put together by powers of two
MOST_STRIPS = 4
STEPS = (1.5, 5.0)  # factors at which a change for the worse is drawn one colour stronger
_GRID = ("hd", "t", "sk")


class Look(StrEnum):
    """What a cell is drawn as, the worst first."""

    WRONG = "wrong"  # it fails, or is gone
    WORSE3 = "worse3"
    WORSE2 = "worse2"
    WORSE1 = "worse1"
    WITHHELD = "withheld"  # it was kept from running by what failed before it
    BETTER = "better"
    NOISE = "noise"  # another value that means nothing
    SAME = "same"


_ORDER = list(Look)
_BAD = frozenset({Look.WRONG, Look.WORSE3, Look.WORSE2, Look.WORSE1})


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure of one configuration in both runs. `size` is what it grew by, as a factor."""

    id: str
    look: Look
    size: float
    text: str  # of the cell
    before: str
    after: str
    noise: str = ""

    @property
    def bad(self) -> bool:
        """Whether it is for the worse."""
        return self.look in _BAD

    @property
    def rank(self) -> tuple[int, float]:
        """By which changes are ordered, the worst first."""
        return _ORDER.index(self.look), -self.size


@dataclass(frozen=True, slots=True)
class Cell:
    """The worst change of those that share head_dim, T and s_k."""

    change: FigureChange
    share: str  # `2/3` where only some of them are worse
    words: str  # for a reader who does not see it


@dataclass(frozen=True, slots=True)
class Grid:
    """A row a T, a column an s_k or a range of them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """How many are worse for each value of another axis: value, worse, all, and which step of colour that share is."""

    name: str
    parts: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class FigureMap:
    """A figure whose values are not all as before. `worse` and `better` count configurations; `span` are factors."""

    name: str
    worse: int
    better: int
    total: int
    worst: FigureChange
    grids: tuple[Grid, ...]
    plain: str  # the head_dims that have no grid, as all of theirs is as before
    strips: tuple[Strip, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Maps of what changed, the worst first, the names of what did not, and all changes by configuration."""

    worse: tuple[FigureMap, ...]
    others: tuple[FigureMap, ...]  # better, or within the noise
    same: tuple[str, ...]
    by_id: Mapping[str, Mapping[str, FigureChange]]


def changes(comparison: Comparison, base: RunRecord, new: RunRecord) -> Changes:
    """Every figure of every configuration of both runs."""
    pairs = paired(comparison, base, new)
    found: dict[str, list[FigureChange]] = {"status": [_status(name, *pair) for name, pair in pairs.items()]}
    worse = {(item.subject, item.what) for item in comparison.regressions}
    for name, (a, b) in pairs.items():
        if b is not None:
            for figure, change in _figures(name, a, b, base, new, comparison, worse):
                found.setdefault(figure, []).append(change)
    by_id: dict[str, dict[str, FigureChange]] = {}
    for figure, items in found.items():
        for item in items:
            by_id.setdefault(item.id, {})[figure] = item
    moved = {figure: items for figure, items in found.items() if any(item.look is not Look.SAME for item in items)}
    maps = sorted((_map(figure, items, pairs) for figure, items in moved.items()), key=_gravity)
    same = tuple(_named(figure) for figure in found if figure not in moved)
    bad = tuple(item for item in maps if item.worse)
    return Changes(bad, tuple(item for item in maps if not item.worse), same, by_id)


def _gravity(item: FigureMap) -> tuple[int, float, int]:
    place = 0 if item.name == "status" else 2 if item.name == "bits" else 1
    return place, -item.worst.size if item.worse else 0.0, -item.worse


def _named(figure: str) -> str:
    return {"status": "status", "hash": "bits", "seconds": "time"}.get(figure, name_of(figure))


def _status(name: str, a: ConfigurationRecord, b: ConfigurationRecord | None) -> FigureChange:
    after = b.status if b else None
    if after is None:
        return FigureChange(name, Look.WRONG, math.inf, "gone", a.status, "not in the run")
    if a.status is Status.PASS and (after is Status.INFRA_ERROR or (b and b.withheld)):
        return FigureChange(name, Look.WITHHELD, 1.0, "not run", a.status, after)
    if a.status is Status.PASS and after is Status.NOT_RUN:
        return FigureChange(name, Look.WRONG, math.inf, "not run", a.status, after)
    hazards = sorted({item.rule for item in b.findings if b} - {item.rule for item in a.findings}) if b else []
    if after in RED and a.status not in RED:
        return FigureChange(name, Look.WRONG, math.inf, after, a.status, after)
    if hazards:
        return FigureChange(name, Look.WORSE3, math.inf, "warning", a.status, ", ".join(hazards))
    if a.status in RED and after not in RED:
        return FigureChange(name, Look.BETTER, 1.0, after, a.status, after)
    return FigureChange(name, Look.SAME, 1.0, "", a.status, after)


def _figures(
    name: str,
    a: ConfigurationRecord,
    b: ConfigurationRecord,
    base: RunRecord,
    new: RunRecord,
    comparison: Comparison,
    worse: set[tuple[str, str]],
) -> Iterator[tuple[str, FigureChange]]:
    if a.metrics and b.metrics:
        yield from _metrics(name, a, b, base, new, worse)
        if same_inputs(base, new):
            same = a.metrics.output_hash == b.metrics.output_hash
            look = Look.SAME if same else Look.WORSE1 if (name, "output_hash") in worse else Look.NOISE
            words = (a.metrics.output_hash[:8], b.metrics.output_hash[:8])
            yield "hash", FigureChange(name, look, 1.0, "" if same else "other", *words)
    if same_inputs(base, new) and a.variant == b.variant:
        before, after = counters_of(a), counters_of(b)
        for counter, value in before.items():
            if (count := after.get(counter)) is not None:
                yield counter, _counted(name, value, count, (name, counter) in worse)
    if judged := comparison.speeds.get(name):
        factor = judged.new_seconds / judged.base_seconds
        word = {"SLOWER": _worse(factor), "FASTER": Look.BETTER, "SAME": Look.SAME}.get(judged.verdict, Look.NOISE)
        times = [f"{seconds * 1e6:.2f} us" for seconds in (judged.base_seconds, judged.new_seconds)]
        yield "seconds", FigureChange(name, word, factor, _percent(factor), times[0], times[1], judged.verdict)


def _metrics(
    name: str,
    a: ConfigurationRecord,
    b: ConfigurationRecord,
    base: RunRecord,
    new: RunRecord,
    worse: set[tuple[str, str]],
) -> Iterator[tuple[str, FigureChange]]:
    assert a.metrics
    assert b.metrics
    before, after = values_of(a.metrics), values_of(b.metrics)
    for metric in METRICS:
        if metric not in before or metric not in after:
            continue
        x, y = (error_of(metric, values[metric]) for values in (before, after))
        band = band_for(base, name, metric, before[metric], same_inputs(base, new))
        factor = y / x if x > 0 else 1.0 if y == x else math.inf
        factor = factor if math.isfinite(y) else math.inf
        if (name, metric) in worse:
            look = _worse(factor)
        elif before[metric] == after[metric]:
            look = Look.SAME
        else:
            lowest = 2 * band.centre - band.limit(1)
            look = Look.BETTER if scaled(metric, after[metric]) < lowest else Look.NOISE
        top = math.exp(band.limit(1)) - METRICS[metric].floor
        low = max(math.exp(2 * band.centre - band.limit(1)) - METRICS[metric].floor, 0.0)
        noise = f"{low:.1e} to {top:.1e}" + (f", {band.count} seeds" if band.count else ", not measured")
        text = "" if look is Look.SAME else _factor(factor)
        yield metric, FigureChange(name, look, factor, text, f"{x:.2e}", f"{y:.2e}", noise)


def _counted(name: str, before: int, after: int, worse: bool) -> FigureChange:
    factor = after / before if before else 1.0 if after == 0 else math.inf
    look = _worse(factor) if worse else Look.SAME if before == after else Look.NOISE if after > before else Look.BETTER
    return FigureChange(name, look, factor, "" if before == after else _percent(factor), f"{before:,}", f"{after:,}")


def _worse(factor: float) -> Look:
    return (Look.WORSE1, Look.WORSE2, Look.WORSE3)[sum(factor >= step for step in STEPS)]


def _factor(factor: float) -> str:
    if not math.isfinite(factor):
        return "new"
    if factor >= 1e6:
        return f"×{factor:.0e}".replace("e+0", "e")
    return f"×{factor:.0f}" if factor >= 9.95 else f"×{factor:.2g}"


def _percent(factor: float) -> str:
    if not math.isfinite(factor):
        return "new"
    share = 100 * (factor - 1)
    return _factor(factor) if factor >= 3 else f"{share:+.0f}%" if abs(share) >= 1 else f"{share:+.1g}%"


def _map(figure: str, items: Sequence[FigureChange], pairs: Mapping[str, Pair]) -> FigureMap:
    axes = {item.id: axes_of(pairs[item.id][0].parameters.model_dump()) for item in items}
    on_grid = [item for item in items if set(_GRID) <= axes[item.id].keys()]
    moved = {axes[item.id]["hd"] for item in on_grid if item.look is not Look.SAME}
    plain = sorted({int(axes[item.id]["hd"]) for item in on_grid} - moved)
    return FigureMap(
        _named(figure),
        sum(item.bad for item in items),
        sum(item.look is Look.BETTER for item in items),
        len(items),
        min(items, key=attrgetter("rank")),
        tuple(_grids([item for item in on_grid if axes[item.id]["hd"] in moved], axes)),
        ", ".join(map(str, plain)),
        tuple(_strips(items, axes)),
    )


def _grids(items: Sequence[FigureChange], axes: Mapping[str, Mapping[str, int | str]]) -> Iterator[Grid]:
    def of(item: FigureChange, key: str) -> int:
        return int(axes[item.id][key])

    column = columns_of(of(item, "sk") for item in items)
    columns = tuple(dict.fromkeys(column(value) for value in sorted({of(item, "sk") for item in items})))
    ts = sorted({of(item, "t") for item in items})
    for head_dim in sorted({of(item, "hd") for item in items}):
        places: dict[tuple[int, str], list[FigureChange]] = {}
        for item in items:
            if of(item, "hd") == head_dim:
                places.setdefault((of(item, "t"), column(of(item, "sk"))), []).append(item)
        rows = tuple(
            (str(t), tuple(_cell(places.get((t, name)), head_dim, t, name) for name in columns))
            for t in ts
            if any(at == t for at, _ in places)
        )
        yield Grid(f"head_dim {head_dim}", columns, rows)


def columns_of(values: Iterable[int]) -> Callable[[int], str]:
    """The column of an s_k: itself, or where there are many the power of two from which on it counts, as `256+`."""
    if len(set(values)) <= MOST_COLUMNS:
        return str

    def ranged(value: int) -> str:
        return "0+" if value < 64 else f"{min(1 << (value.bit_length() - 1), 1024)}+"

    return ranged


def _cell(items: Sequence[FigureChange] | None, head_dim: int, t: int, column: str) -> Cell | None:
    if not items:
        return None
    worst = min(items, key=attrgetter("rank"))
    bad = sum(item.bad for item in items)
    share = f"{bad}/{len(items)}" if 0 < bad < len(items) else ""
    told = worst.text or "as before"
    words = f"head_dim {head_dim}, T {t}, s_k {column}: {told}" + (f" {share}" if share else "")
    words += f", {bad} of {len(items)} worse" if bad else ""
    return Cell(worst, share, words)


def _strips(items: Sequence[FigureChange], axes: Mapping[str, Mapping[str, int | str]]) -> Iterator[Strip]:
    """The axes beside the grid's whose values are worse to the most different shares; the mask's always."""
    if not any(item.bad for item in items):
        return
    found: list[tuple[float, Strip]] = []
    for key in dict.fromkeys(key for item in items for key in axes[item.id]):
        counts: dict[int | str, list[int]] = {}
        for item in items:
            if key in axes[item.id]:
                counts.setdefault(axes[item.id][key], []).append(item.bad)
        if key in _GRID or not 1 < len(counts) <= 12:
            continue
        shares = [sum(those) / len(those) for those in counts.values()]
        ordered = sorted(counts.items(), key=lambda part: (isinstance(part[0], str), part[0]))
        parts = tuple(
            (str(value), sum(those), len(those), math.ceil(3 * sum(those) / len(those))) for value, those in ordered
        )
        found.append((math.inf if key == "mask" else max(shares) - min(shares), Strip(_label(key), parts)))
    found.sort(key=lambda item: -item[0])
    yield from (strip for _, strip in found[:MOST_STRIPS])


def _label(key: str) -> str:
    return KEYS.get(key, key).replace("_", " ")
