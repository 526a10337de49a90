"""Charts as SVG geometry: scales, ticks and points. The template draws; colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 12, 42


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a chart; `bad` ones are red."""

    x: float
    y: float
    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Geometry in a box of `width` by `height` units. `path` joins the dots where that means something."""

    title: str
    width: int
    height: int
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    path: str = ""
    rule: float | None = None  # x or y of a limit
    rule_text: str = ""
    rule_is_vertical: bool = False
    roof: str = ""
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM
    named_ends: bool = False  # the x ticks are words below the first and the last dot

    def anchor(self, first: bool, last: bool) -> str:
        """Of an x tick's text: inwards at the ends where they are words, which would meet the y axis or the edge."""
        return ("start" if first else "end" if last else "middle") if self.named_ends else "middle"


class LogScale:
    """Positive values onto a range of units, decades as ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, least: float = 1e-300) -> None:
        usable = [value for value in values if math.isfinite(value) and value > least] or [1.0]
        self.low, self.high = math.floor(math.log10(min(usable))), math.ceil(math.log10(max(usable)))
        self.high = max(self.high, self.low + 1)
        self._least, self._start, self._end = least, start, end

    def at(self, value: float) -> float:
        """Values below the scale lie on its edge, as do those that are not finite on the other."""
        level = self.high if not math.isfinite(value) else math.log10(max(value, self._least, 10.0**self.low))
        share = (min(level, self.high) - self.low) / (self.high - self.low)
        return round(self._start + share * (self._end - self._start), 2)

    def ticks(self) -> tuple[Tick, ...]:
        """Powers of ten, six at most."""
        decades = range(self.low, self.high + 1, max(1, (self.high - self.low) // 6))
        return tuple(Tick(self.at(10.0**decade), f"1e{decade}") for decade in decades)


def distribution(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], limit: float | None) -> Chart:
    """One row of dots a name, an error each, on a logarithmic axis; the limit as a rule."""
    values = [value for _, points in rows for _, value in points]
    height = TOP + BOTTOM + 30 * len(rows)
    least = min((value for value in values if value > 0), default=1e-9)
    scale = LogScale([*values, *([limit] if limit else [])], LEFT, WIDTH - RIGHT, least / 2)
    dots = []
    for place, (_, points) in enumerate(rows):
        for number, (name, value) in enumerate(sorted(points, key=lambda point: point[1])):
            y = TOP + 30 * place + 15 + (number % 5 - 2) * 4  # spread, so that equal errors stay countable
            dots.append(Dot(scale.at(value), y, f"{name} {value:.2e}", limit is not None and not value <= limit))
    return Chart(
        title,
        WIDTH,
        height,
        scale.ticks(),
        tuple(Tick(TOP + 30 * place + 15, name) for place, (name, _) in enumerate(rows)),
        tuple(dots),
        rule=scale.at(limit) if limit else None,
        rule_text="limit",
        rule_is_vertical=True,
        bottom=height - BOTTOM,
    )


def history(title: str, points: Sequence[tuple[str, float]], limit: float | None) -> Chart:
    """Errors over runs, the oldest left."""
    scale = LogScale([value for _, value in points] + ([limit] if limit else []), HEIGHT - BOTTOM, TOP, least=1e-12)
    step = (WIDTH - RIGHT - LEFT) / max(len(points) - 1, 1)
    dots = [
        Dot(
            round(LEFT + step * at, 2), scale.at(value), f"{name} {value:.2e}", limit is not None and not value <= limit
        )
        for at, (name, value) in enumerate(points)
    ]
    labels = {0: points[0][0], len(points) - 1: points[-1][0]} if points else {}
    return Chart(
        title,
        WIDTH,
        HEIGHT,
        tuple(Tick(dots[at].x, text) for at, text in labels.items()),
        scale.ticks(),
        tuple(dots),
        named_ends=True,
        path=" ".join(f"{'L' if at else 'M'}{dot.x} {dot.y}" for at, dot in enumerate(dots)),
        rule=scale.at(limit) if limit else None,
        rule_text="limit",
    )


def roofline(title: str, points: Sequence[tuple[str, float, float]], bandwidth: float, rate: float) -> Chart:
    """Operations a second over operations a byte, under the roof that was measured in the same run."""
    ridge = rate / bandwidth
    xs = [intensity for _, intensity, _ in points] + [ridge / 10, ridge * 10]
    horizontal = LogScale(xs, LEFT, WIDTH - RIGHT)
    low, high = 10.0**horizontal.low, 10.0**horizontal.high
    vertical = LogScale([*(speed for _, _, speed in points), rate, bandwidth * low], HEIGHT - BOTTOM, TOP)
    corners = [(low, bandwidth * low), (ridge, rate), (high, rate)]
    roof = " ".join(f"{'L' if at else 'M'}{horizontal.at(x)} {vertical.at(y)}" for at, (x, y) in enumerate(corners))
    dots = tuple(
        Dot(horizontal.at(x), vertical.at(y), f"{name} {y / 1e12:.1f} TFLOP/s at {x:.0f} FLOP/byte")
        for name, x, y in points
    )
    return Chart(title, WIDTH, HEIGHT, horizontal.ticks(), vertical.ticks(), dots, roof=roof)
