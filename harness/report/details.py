"""One configuration whose figures changed: what it is, both values, what is allowed, and how to repeat it."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

from fmha.emulator.rules import RULES
from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.evidence.run_limits import Limit
from fmha.harness.evidence.story import name_of
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.metrics import METRICS
from fmha.harness.report.delta import FigureChange, Look

MOST_DETAILS = 60
MOST_FINDINGS = 3  # of a configuration

_NAMES = {"hash": "bits", "seconds": "time"}


@dataclass(frozen=True, slots=True)
class ConfigurationHazard:
    """A finding with both places of it and what to do."""

    title: str
    message: str
    places: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A figure in a table, what became of it, and its limit."""

    name: str
    change: FigureChange
    limit: str


@dataclass(frozen=True, slots=True)
class Detail:
    """`anchor` is what a link names it by."""

    id: str
    anchor: str
    words: str
    look: Look
    inputs: str
    rows: tuple[ReportRow, ...]
    reasons: tuple[str, ...]
    hazards: tuple[ConfigurationHazard, ...]
    command: str


def details(
    by_id: Mapping[str, Mapping[str, FigureChange]], base: RunRecord, new: RunRecord, limit: Limit
) -> tuple[Detail, ...]:
    """The configurations that got worse, the worst first, at most MOST_DETAILS."""
    worst = {name: min(figures.values(), key=attrgetter("rank")) for name, figures in by_id.items()}
    bad = sorted((item for item in worst.values() if item.bad), key=attrgetter("rank", "id"))
    after = {item.id: item for item in new.configurations}
    before = {item.id: item for item in base.configurations}
    return tuple(
        _detail(by_id[item.id], item, after.get(item.id, before[item.id]), new, limit) for item in bad[:MOST_DETAILS]
    )


def anchor_of(name: str) -> str:
    """A name that a link can have and that stays, whatever a record calls a configuration."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:120]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def command_of(item: ConfigurationRecord, record: RunRecord) -> str:
    """What repeats a configuration as it was run."""
    selection, host = record.selection, record.host
    words = ["fmha", "run-matrix", "--case", item.id, "--seed", str(selection.seed)]
    words += [] if selection.drawn is None else ["--drawn", str(selection.drawn)]
    words += ["--schedule", selection.schedule] + ([] if host.name == "emulator" else ["--host", host.name])
    return shlex.join(words)


def _detail(
    figures: Mapping[str, FigureChange], worst: FigureChange, item: ConfigurationRecord, record: RunRecord, limit: Limit
) -> Detail:
    moved = {name: change for name, change in figures.items() if change.look is not Look.SAME}
    ordered = sorted(moved.items(), key=lambda part: part[1].rank)
    rows = tuple(
        ReportRow(_NAMES.get(name, name_of(name)), change, _limit(name, item, limit)) for name, change in ordered
    )
    words = ", ".join(f"{row.name} {row.change.text}" for row in rows if row.change.bad)
    selection = record.selection
    variant = item.variant or "none"
    inputs = f"seed {selection.seed}, schedule {selection.schedule}, on {record.host.name}, variant {variant}"
    return Detail(
        item.id,
        anchor_of(item.id),
        words,
        worst.look,
        inputs,
        rows,
        tuple(item.reasons),
        tuple(_hazards(item)),
        command_of(item, record),
    )


def _limit(name: str, item: ConfigurationRecord, limit: Limit) -> str:
    found = limit(item, name) if name in METRICS else None
    return "-" if found is None else f"{found:.1e}"


def _hazards(item: ConfigurationRecord) -> Iterator[ConfigurationHazard]:
    for finding in sorted(item.findings, key=lambda found: found.severity)[:MOST_FINDINGS]:
        rule = RULES.get(finding.rule)
        yield ConfigurationHazard(
            f"{finding.severity} {finding.rule}", finding.message, tuple(_places(finding)), rule.remedy if rule else ""
        )


def _places(finding: FindingRecord) -> Iterator[str]:
    """This access, then the other one, as far as the machine knows them."""
    where = finding.where
    for prefix, word in (("", "this access"), ("other_", "the other")):
        parts = [str(where[prefix + key]) for key in ("source", "ptx") if where.get(prefix + key)]
        if line := where.get(f"{prefix}ptx_line"):
            parts.append(f"PTX line {line}")
        if parts:
            yield f"{word}: {', '.join(parts)}"
