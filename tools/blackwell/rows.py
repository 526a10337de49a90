"""The rows of rows.yaml, and how far a rate is from what was published."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import yaml

HALVES: Final = ("fit", "predict")


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    where: str
    machine: str  # the timing model's name for it
    power: str
    timed: str
    outside_us: float  # of what was timed, beyond a replay of a graph
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    source: Source
    half: str
    name: str
    published: tuple[float, float]  # TFLOP/s, the least and the most
    how: Mapping[str, Any]  # for whoever models it

    @property
    def flop(self) -> float:
        if "size" in self.how:
            return 2.0 * math.prod(int(n) for n in self.how["size"])
        batch, tokens = int(self.how["batch"]), int(self.how["tokens"])
        return 4.0 * 2048 * batch * tokens**2  # heads times head_dim are 2048

    def rate(self, seconds: float) -> float:
        """TFLOP/s as they would have been timed."""
        return self.flop / (seconds + self.source.outside_us * 1e-6) * 1e-12

    def off(self, rate: float) -> float:
        """The relative error to the nearer end of what was published, 0 within it."""
        low, high = self.published
        return rate / low - 1 if rate < low else rate / high - 1 if rate > high else 0.0


@dataclass(frozen=True, slots=True)
class Told:
    row: Row
    rate: float
    bound: str
    forced: int = 0  # waits that the model could not follow

    @property
    def error(self) -> float:
        return self.row.off(self.rate)


def rows() -> tuple[Row, ...]:
    document = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8"))
    sources = {name: Source(name, **said) for name, said in document["sources"].items()}
    return tuple(_row(sources, dict(said)) for said in document["rows"])


def _row(sources: Mapping[str, Source], said: dict[str, Any]) -> Row:
    source, half, name, published = (said.pop(key) for key in ("source", "half", "name", "published"))
    values = published if isinstance(published, list) else [published]
    return Row(sources[source], half, name, (min(values), max(values)), said)


def in_order(told: Sequence[Told]) -> tuple[int, int]:
    """Of the pairs of one source whose published intervals are apart: how many are modelled in their order, and how
    many there are. Of products, those are pairs of one size; of attention, of any."""
    right = pairs = 0
    for a, b in combinations(told, 2):
        if a.row.source is not b.row.source or a.row.how.get("size") != b.row.how.get("size"):
            continue
        low, high = sorted((a, b), key=lambda t: t.row.published)
        if low.row.published[1] < high.row.published[0]:
            pairs += 1
            right += low.rate < high.rate
    return right, pairs


def table(half: str, told: Iterable[Told]) -> str:
    """The rows of a half, and what they come to."""
    told = [t for t in told if t.row.half == half]
    lines = [f"## {half}", "", "| source | row | machine | published | modelled | error | bound |", "|" + "---|" * 7]
    for t in told:
        low, high = (f"{x:.0f}" for x in t.row.published)
        published = low if low == high else f"{low} to {high}"
        words = (t.row.source.name, t.row.name, t.row.source.machine, published, f"{t.rate:.0f}", f"{t.error:+.0%}")
        bound = f"{t.bound}; {t.forced} waits not followed" if t.forced else t.bound
        lines.append("| " + " | ".join((*words, bound)) + " |")
    errors = [abs(t.error) for t in told]
    right, pairs = in_order(told)
    if errors:
        mean, worst = sum(errors) / len(errors), max(errors)
        said = (
            f"{half}: {len(errors)} rows, mean error {mean:.1%}, worst {worst:.0%}; {right} of {pairs} pairs in order"
        )
        lines += ["", said]
    return "\n".join(lines)
