"""From records to the page: what the template shows, computed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.evidence import story
from fmha.harness.evidence.views import error_of
from fmha.harness.judge.comparison import speed
from fmha.harness.judge.comparison.comparison import Comparison, Regression, sizes_of
from fmha.harness.judge.comparison.missed import missed
from fmha.harness.judge.comparison.noise import values_of
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status
from fmha.harness.report import charts, delta, details, heat
from fmha.harness.report.charts import Chart
from fmha.harness.stages.report import Cause, cause_of, coverage_totals, verdict_line
from fmha.harness.text import shown

MOST_POINTS = 60  # of a history
Points = Sequence[tuple[str, float]]
MOST_FINDINGS = 40
LINES_AROUND = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run and what it is shown with. `limit` gives a configuration's gate for a metric, as an error; `damage` says
    why a baseline that there is could not be read. `history` gives a configuration's 1 - cosine in the archived runs of
    the run's host, each with its commit, the oldest first."""

    record: RunRecord
    file: str
    history: Callable[[str], Points]
    baseline: RunRecord | None
    comparison: Comparison | None
    limit: heat.Limit
    damage: str = ""
    other: str = ""  # what the earlier run is, where it is no baseline but was asked for


@dataclass(frozen=True, slots=True)
class RunHazard:
    """One rule at one place, with the configurations it was found in and the lines around the place."""

    finding: FindingRecord
    place: str
    configurations: tuple[str, ...]
    lines: tuple[tuple[int, str, bool], ...]


def render(evidence: Evidence) -> str:
    """The page. Everything from the record is escaped; nothing is loaded and nothing runs."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fmha.harness.report"),
        autoescape=True,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2").render(_fields(evidence))


def _fields(evidence: Evidence) -> dict[str, Any]:
    record = evidence.record
    items = record.configurations
    return _changes(evidence) | {
        "record": record,
        "file": evidence.file,
        "verdict": _headline(evidence),
        "word": record.headword if _worse(evidence.comparison) == {} else "REGRESSED",
        "biased": [f"{figure.group}: {figure.text}" for figure in missed(record)],
        "counts": [(status, record.verdict.counts.get(status, 0)) for status in Status],
        "baseline": evidence.baseline,
        "comparison": evidence.comparison,
        "damage": evidence.damage,
        "worse": _worse(evidence.comparison),
        "groups": heat.groups(items, evidence.limit),
        "steps": range(heat.STEPS),
        "metrics": heat.NAMES,
        "rows": [_row(item) for item in items],
        "wrong": _wrong(items),
        "distributions": list(_distributions(items, evidence)),
        "rooflines": list(_rooflines(items)),
        "speeds": list(_speeds(items)),
        "hazards": _hazards(record)[:MOST_FINDINGS],
        "hazard_count": len(_hazards(record)),
        "histories": list(_histories(evidence)),
        "coverage": list(coverage_totals(record)),
        "provenance": list(_provenance(evidence)),
    }


def _changes(evidence: Evidence) -> dict[str, Any]:
    """What changed against the earlier run; where there is none, nothing."""
    base, comparison, record = evidence.baseline, evidence.comparison, evidence.record
    if base is None or comparison is None:
        return {"lead": "", "other": ""}
    groups = story.tell(comparison, base, record)
    changes = delta.changes(comparison, base, record)
    shown = details.details(changes.by_id, base, record, evidence.limit)
    bad = sum(any(change.bad for change in figures.values()) for figures in changes.by_id.values())
    return {
        "lead": story.sentence(groups, comparison.compared, comparison.unasked),
        "other": evidence.other,
        "told": groups,
        "changes": changes,
        "details": shown,
        "more_details": bad - len(shown),
        "linked": {item.id: item.anchor for item in shown},
        "resources_changed": list(_resources(base, record)),
    }


def _resources(base: RunRecord, new: RunRecord) -> Iterator[tuple[str, str, str, str, str]]:
    """What a variant uses that is not as before: variant, figure, before, now and the look of it."""
    before = {variant.name: variant for variant in base.variants}
    for variant in new.variants:
        a = before.get(variant.name)
        if a is None:
            continue
        old, now = sizes_of(a), sizes_of(variant)
        for name, value in now.items():
            if name in old and old[name] != value:
                look = "worse2" if value > old[name] else "better"
                yield variant.name, name.replace("_", " "), str(old[name]), str(value), look


def _headline(evidence: Evidence) -> str:
    """The verdict; of a run that regress has not seen, what the baseline that is there now says of it comes first."""
    words, worse = verdict_line(evidence.record), _worse(evidence.comparison)
    if (evidence.record.regress and not evidence.other) or not worse or evidence.baseline is None:
        return words
    counts = ", ".join(f"{len(items)} {kind}" for kind, items in worse.items())
    against = evidence.other or f"commit {evidence.baseline.commit.sha[:12]}"
    return f"REGRESSED against {against}: {counts}; the run by itself: {words}"


def _wrong(items: Sequence[ConfigurationRecord]) -> list[tuple[Status, tuple[str, ...], list[str]]]:
    """What did not pass: status, reasons and the configurations that share both."""
    found: dict[tuple[Status, tuple[str, ...]], list[str]] = {}
    for item in items:
        if item.status is not Status.PASS:
            found.setdefault((item.status, tuple(item.reasons)), []).append(item.id)
    return [(status, reasons, ids) for (status, reasons), ids in found.items()]


def _worse(comparison: Comparison | None) -> dict[str, list[Regression]]:
    """Regressions by kind, the gravest first."""
    found: dict[str, list[Regression]] = {}
    for item in comparison.regressions if comparison else ():
        found.setdefault(item.kind, []).append(item)
    return found


def _row(item: ConfigurationRecord) -> tuple[str, Status, list[str], int, str]:
    numbers = ["-"] * len(METRICS)
    if item.metrics:
        values = values_of(item.metrics)
        numbers = [heat.shown(error_of(name, values[name])) if name in values else "-" for name in METRICS]
    return item.id, item.status, numbers, len(item.findings), f"{item.seconds:.2f}"


def _distributions(items: Sequence[ConfigurationRecord], evidence: Evidence) -> Iterator[Chart]:
    for metric, name in heat.NAMES.items():
        rows: dict[str, list[tuple[str, float]]] = {}
        limits = []
        for item in items:
            if item.metrics and metric in (values := values_of(item.metrics)):
                error = error_of(metric, values[metric])
                rows.setdefault(item.parameters.family, []).append((item.id, error))
                limits.append(evidence.limit(item, metric))
        known = [limit for limit in limits if limit is not None]
        if rows:
            named = sorted(rows.items(), key=lambda row: (len(row[0]), row))
            yield charts.distribution(name, named, min(known) if known else None)


@dataclass(frozen=True, slots=True)
class Speed:
    """One configuration's time, and how it stands beside the other build's, if that was timed."""

    id: str
    time: str
    share: str  # of the roof
    clock: str
    judged: speed.JudgedSpeed | None


def _speeds(items: Sequence[ConfigurationRecord]) -> Iterator[Speed]:
    for item in items:
        timing = item.timing
        if timing is None:
            continue
        seconds = statistics.median(timing.seconds)
        least = []
        if timing.bytes_moved and timing.bytes_per_second:
            least.append(timing.bytes_moved / timing.bytes_per_second)
        if timing.operations and timing.operations_per_second:
            least.append(timing.operations / timing.operations_per_second)
        share = f"{max(least) / seconds:.0%}" if least else "-"
        clock = f"{statistics.median(timing.clock_mhz):.0f} MHz" if timing.clock_mhz else "-"
        judged = None
        if timing.beside:
            judged = speed.judge(
                timing.beside_seconds, timing.seconds, timing.beside_clock_mhz, timing.clock_mhz, seed=0
            )
        yield Speed(item.id, f"{seconds * 1e6:.2f} us", share, clock, judged)


def _rooflines(items: Sequence[ConfigurationRecord]) -> Iterator[Chart]:
    by_roof: dict[tuple[float, float], list[tuple[str, float, float]]] = {}
    for item in items:
        timing = item.timing
        if timing and timing.bytes_moved and timing.operations and timing.bytes_per_second:
            if timing.operations_per_second is None:
                continue
            roof = (timing.bytes_per_second, timing.operations_per_second)
            rate = timing.operations / statistics.median(timing.seconds)
            by_roof.setdefault(roof, []).append((item.id, timing.operations / timing.bytes_moved, rate))
    for (bandwidth, rate), points in by_roof.items():
        measured = f"{bandwidth / 1e12:.2f} TB/s copied, {rate / 1e12:.0f} TFLOP/s bf16, measured in the same run"
        title = f"Roof: {measured}; FLOP/s over FLOP a byte"
        yield charts.roofline(title, points, bandwidth, rate)


def _hazards(record: RunRecord) -> list[RunHazard]:
    """One a rule and place, errors first."""
    found: dict[Cause, tuple[FindingRecord, list[str]]] = {}
    for item in record.configurations:
        for finding in item.findings:
            found.setdefault(cause_of(finding), (finding, []))[1].append(item.id)
    hazards = [
        RunHazard(finding, place, tuple(dict.fromkeys(ids)), tuple(_excerpt(record, place)))
        for (*_, place), (finding, ids) in found.items()
    ]
    return sorted(hazards, key=lambda hazard: hazard.finding.severity)


def _excerpt(record: RunRecord, place: str) -> Iterator[tuple[int, str, bool]]:
    """Number and text of the lines around a place; true for the line itself."""
    file, _, number = place.rpartition(":")
    if file in record.sources and number.isdigit():
        here = int(number)
        for line in range(here - LINES_AROUND, here + LINES_AROUND + 1):
            text = record.sources[file].get(str(line))
            if text is not None:
                yield line, text, line == here


def _histories(evidence: Evidence) -> Iterator[Chart]:
    """The worst cosine of every head_dim, or kernel, over the archived runs of this host, the oldest left."""
    items = [item for item in evidence.record.configurations if item.metrics]
    for family in sorted({item.parameters.family for item in items}, key=lambda name: (len(name), name)):
        here = [item for item in items if item.parameters.family == family]
        worst = max(here, key=lambda item: error_of("cosine", item.metrics.cosine) if item.metrics else 0.0)
        points = [(sha[:7], error) for sha, error in evidence.history(worst.id)[-MOST_POINTS:]]
        if len(points) > 1:
            yield charts.history(
                f"{worst.id}: 1 - cosine over {len(points)} runs", points, evidence.limit(worst, "cosine")
            )


def _provenance(evidence: Evidence) -> Iterator[tuple[str, str]]:
    record = evidence.record
    commit, host, selection = record.commit, record.host, record.selection
    yield "commit", f"none: the kernels of fmha {commit.installed}" if commit.installed else commit.sha
    yield "branch", commit.branch or "detached"
    files = ", ".join(commit.dirty_files[:5]) + (" ..." if commit.dirty_count > 5 else "")
    yield "tree", f"{commit.dirty_count} files differ: {files}" if commit.dirty else "as committed"
    sums = f", mma_sums {host.mma_sums}" if host.mma_sums else ""
    yield "host", f"{host.name} ({host.kind}{sums})"
    if host.gpu:
        yield "GPU", f"{host.gpu.name}, driver {host.gpu.driver}, {host.gpu.uuid}"
    yield "machine", f"{host.machine.cpu}, {host.machine.cores} cores, {host.machine.system}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in host.versions.items() if version)
    yield "suite", selection.suite + (f" --filter {selection.filter}" if selection.filter else "")
    yield "seed, schedule", f"{selection.seed}, {selection.schedule}"
    for variant in record.variants[:1]:
        yield "compiler", variant.nvcc
        yield "kernel sources", f"sha256 {variant.source_hash}"
    yield "matrix.yaml", f"sha256 {selection.matrix_sha256}"
    yield "started, finished", f"{record.started:%Y-%m-%d %H:%M:%S} - {record.finished:%H:%M:%S} UTC"
    yield "stages", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in record.durations.items())
    yield "file", evidence.file
    yield "checksum", record.checksum or "none: schema version 1"
