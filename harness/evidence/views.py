"""Plain data of runs and comparisons, as `--json` prints them and tables show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fmha.harness.archive import Found
from fmha.harness.archive.index import NumbersRow, RunRow
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.judge.comparison.comparison import Comparison, same_inputs
from fmha.harness.judge.comparison.noise import values_of
from fmha.harness.judge.comparison.speed import SpeedVerdict
from fmha.harness.judge.metrics import METRICS


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration in two runs; None where a run does not have it."""

    id: str
    a: ConfigurationRecord | None
    b: ConfigurationRecord | None

    def factor(self, metric: str) -> float | None:
        """By what factor the error is larger in b; None where a metric or its error in a is missing."""
        if not (self.a and self.b and self.a.metrics and self.b.metrics):
            return None
        values = [values_of(metrics) for metrics in (self.a.metrics, self.b.metrics)]
        if any(metric not in found for found in values):
            return None
        before, after = (error_of(metric, found[metric]) for found in values)
        return after / before if before > 0 else (1.0 if after == before else None)

    @property
    def same_bits(self) -> bool | None:
        """Whether both wrote the same outputs; None where one was not measured."""
        if not (self.a and self.b and self.a.metrics and self.b.metrics):
            return None
        return self.a.metrics.output_hash == self.b.metrics.output_hash


def error_of(metric: str, value: float) -> float:
    """The error of which smaller is better."""
    return METRICS[metric].error(value)


def pairs(a: Found, b: Found) -> Iterator[Pair]:
    """Every configuration of either run, in the order of a, then b."""
    first = {item.id: item for item in a.record.configurations}
    second = {item.id: item for item in b.record.configurations}
    for name in dict.fromkeys([*first, *second]):
        yield Pair(name, first.get(name), second.get(name))


def run_fields(found: Found) -> dict[str, Any]:
    """What identifies a run."""
    record = found.record
    return {
        "file": str(found.path),
        "started": record.started.isoformat(),
        "commit": record.commit.sha,
        "dirty": record.commit.dirty,
        "host": record.host.name,
        "kind": record.host.kind,
        "gpu": record.host.gpu.name if record.host.gpu else None,
        "suite": record.selection.suite,
        "filter": record.selection.filter,
        "seed": record.selection.seed,
        "schedule": record.selection.schedule,
        "verdict": record.verdict.word,
    }


def comparison_fields(a: Found, b: Found, comparison: Comparison) -> dict[str, Any]:
    """A comparison in full."""
    return {
        "a": run_fields(a),
        "b": run_fields(b),
        "same_inputs": same_inputs(a.record, b.record),
        "configurations": [
            {
                "id": pair.id,
                "status": {"a": pair.a.status if pair.a else None, "b": pair.b.status if pair.b else None},
                "metrics": {
                    metric: {
                        "a": values_of(pair.a.metrics).get(metric) if pair.a and pair.a.metrics else None,
                        "b": values_of(pair.b.metrics).get(metric) if pair.b and pair.b.metrics else None,
                        "factor": pair.factor(metric),
                    }
                    for metric in METRICS
                },
                "same_bits": pair.same_bits,
            }
            for pair in pairs(a, b)
        ],
        "speeds": speed_fields(comparison),
        "regressions": regression_fields(comparison),
        "notes": list(comparison.notes),
    }


def speed_fields(comparison: Comparison) -> list[dict[str, Any]]:
    """One object a configuration that was timed beside the earlier commit; seconds, MHz, shares."""
    return [{"id": name, **asdict(judged)} for name, judged in comparison.speeds.items()]


def speed_lines(comparison: Comparison) -> Iterator[str]:
    """How many configurations have which verdict, then each that is not SAME."""
    if not comparison.speeds:
        return
    counts = Counter(judged.verdict for judged in comparison.speeds.values())
    yield "speed: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in SpeedVerdict if counts[verdict])
    for name, judged in comparison.speeds.items():
        if judged.verdict is not SpeedVerdict.SAME:
            yield f"speed {name}: {judged}"


def regression_fields(comparison: Comparison) -> list[dict[str, Any]]:
    """Regressions as JSON has them."""
    return [asdict(item) for item in comparison.regressions]


def row_fields(row: RunRow) -> dict[str, Any]:
    """A run of the index."""
    return asdict(row) | {"started": row.started.isoformat()}


def history_fields(row: NumbersRow) -> dict[str, Any]:
    """One point of a history."""
    said = {"status": row.status, "hazards": row.hazards, "hash": row.hash, "lenient": row.lenient}
    return {"run": row_fields(row.run), **said, "metrics": dict(row.metrics)}
