"""The rows of rows.yaml, and how far a rate is from what was published."""

from __future__ import annotations

import functools
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
    """Who published a row, of which machine."""

    name: str
    where: str
    machine: str  # the timing model's name for it
    power: str
    timed: str
    outside_us: float  # of what was timed, beyond a replay of a graph
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A published rate."""

    source: Source
    half: str
    name: str
    published: tuple[float, float]  # TFLOP/s, the least and the most
    how: Mapping[str, Any]  # for whoever models it

    @property
    def flop(self) -> float:
        """Floating-point operations of one run."""
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
class ToldRow:
    """A row beside its modelled rate."""

    row: Row
    rate: float
    bound: str
    forced: int = 0  # waits that the model could not follow

    @property
    def error(self) -> float:
        """How far the model is off; 0 within what was published."""
        return self.row.off(self.rate)


@functools.cache
def rows() -> tuple[Row, ...]:
    """The rows of rows.yaml."""
    document = yaml.safe_load(Path(__file__).with_name("rows.yaml").read_text(encoding="utf-8"))
    sources = {name: Source(name, **said) for name, said in document["sources"].items()}
    return tuple(_row(sources, dict(said)) for said in document["rows"])


def _row(sources: Mapping[str, Source], said: dict[str, Any]) -> Row:
    source, half, name, published = (said.pop(key) for key in ("source", "half", "name", "published"))
    values = published if isinstance(published, list) else [published]
    return Row(sources[source], half, name, (min(values), max(values)), said)


@dataclass(frozen=True, slots=True)
class PairsInOrder:
    """Of pairs of one source: how many are modelled in their order, of how many; and ties, which are neither."""

    right: int
    pairs: int
    ties: int

    def __str__(self) -> str:
        return f"{self.right} of {self.pairs} pairs in order, {self.ties} ties"


def noise(source: str) -> float:
    """How far two values that a source has published of one row are apart, at most, as a part of the lower: 0 where it
    has published each row once."""
    published = (row.published for row in rows() if row.source.name == source)
    return max((high / low - 1 for low, high in published), default=0.0)


def in_order(told: Sequence[ToldRow]) -> PairsInOrder:
    """Of products, pairs of one size; of attention, of any. Two rows whose published values are no farther apart than
    two that the same source has published of one row are a tie: measured again they may be in the other order."""
    right = pairs = ties = 0
    for a, b in combinations(told, 2):
        source = a.row.source.name
        if source != b.row.source.name or a.row.how.get("size") != b.row.how.get("size"):
            continue
        low, high = sorted((a, b), key=lambda t: t.row.published)
        if high.row.published[0] / low.row.published[1] - 1 <= noise(source):
            ties += 1
        else:
            pairs += 1
            right += low.rate < high.rate
    return PairsInOrder(right, pairs, ties)


def table(half: str, told: Iterable[ToldRow]) -> str:
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
    if errors:
        mean, worst = sum(errors) / len(errors), max(errors)
        lines += ["", f"{half}: {len(errors)} rows, mean error {mean:.1%}, worst {worst:.0%}; {in_order(told)}"]
    return "\n".join(lines)
