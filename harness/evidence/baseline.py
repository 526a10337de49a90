"""Baselines: archived runs, one for each kind of host, that later runs are held against."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness import archive
from harness.archive import BASELINES, Index, RunRecord
from harness.archive.record import Acceptance
from harness.errors import InterruptionError, UserError
from harness.evidence.noise import LEAST_SEEDS, values_of
from harness.git import git
from harness.stages.outcome import Observer
from harness.stages.pipeline import Request, execute
from harness.status import RED, Status


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new baseline, and the runs that its noise comes from."""

    path: Path
    record: RunRecord
    runs: int


def name_of(record: RunRecord) -> str:
    """The baseline that a run belongs to: the kind of its host, or its GPU, e.g. `emulator` or `nvidia-b200`."""
    text = record.host.gpu.name if record.host.gpu else record.host.kind
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def path_of(name: str, results: Path) -> Path:
    return results / BASELINES / f"{name}.json"


def load(name: str, results: Path) -> RunRecord:
    """The baseline of that name. Raises UserError when there is none, or it cannot be read."""
    path = path_of(name, results)
    if not path.is_file():
        raise UserError(
            f"there is no baseline for {name}",
            where=str(path.parent),
            next_step="archive a run with fmha run-matrix, then fmha baseline accept latest --why TEXT",
        )
    return archive.read(path)


def of_host(host: str, results: Path) -> RunRecord | None:
    """The one baseline that was run on the host of this name; None when there is none or several."""
    found = [archive.read(path) for path in sorted((results / BASELINES).glob("*.json"))]
    mine = [record for record in found if record.host.name == host]
    return mine[0] if len(mine) == 1 else None


def accept(record: RunRecord, why: str, seeds: int, results: Path, root: Path, observer: Observer) -> Accepted:
    """Make an archived run the baseline of its kind of host, with the noise of at least LEAST_SEEDS seeds.

    Runs of the same kernel under other seeds are taken from the archive; those that lack are run now, in the checkout
    `root`, and kept in `.fmha/noise`. Raises UserError for a run that is no evidence, or whose kernel is not the
    checkout's when runs lack.
    """
    _check(record, why, seeds)
    observer.stage("noise", f"{seeds} seeds")
    same = [record, *_archived(record, results), *_archived(record, root / ".fmha" / "noise")]
    runs = {run.selection.seed: run for run in reversed(same)}
    for seed in range(max(runs) + 1, max(runs) + 1 + seeds - len(runs)):
        observer.note(f"seed {seed}")
        runs[seed] = _run(record, seed, root, observer)
    chosen = [runs[seed] for seed in sorted(runs, key=lambda seed: (seed != record.selection.seed, seed))][:seeds]
    name = name_of(record)
    before = archive.read(path_of(name, results)) if path_of(name, results).is_file() else None
    acceptance = Acceptance(
        why=why,
        accepted=datetime.now(UTC).replace(microsecond=0),
        by=git(root, "config", "user.name").stdout.strip() or "unknown",
        replaces=before.commit.sha if before else None,
        deterministic=_deterministic(record, same),
        seeds=[run.selection.seed for run in chosen],
        noise=_noise(record, chosen),
    )
    accepted = record.model_copy(update={"acceptance": acceptance})
    path = path_of(name, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.replace(archive.dumps(accepted).encode(), path)
    return Accepted(path, accepted, len(chosen))


def _check(record: RunRecord, why: str, seeds: int) -> None:
    if not why.strip():
        raise UserError("--why: a baseline needs its reason")
    if seeds < LEAST_SEEDS:
        raise UserError(f"--seeds: noise needs at least {LEAST_SEEDS} seeds, not {seeds}")
    if record.commit.dirty:
        raise UserError(
            f"the run's tree had {record.commit.dirty_count} file(s) that differ from its commit",
            next_step="commit, run again and accept that run",
        )
    red = [item.id for item in record.configurations if item.status in RED or item.status is Status.INFRA_ERROR]
    if red:
        raise UserError(f"the run did not pass: {red[0]}" + (f" and {len(red) - 1} more" if len(red) > 1 else ""))
    if not any(item.status is Status.PASS for item in record.configurations):
        raise UserError("nothing passed in the run")


def _archived(record: RunRecord, folder: Path) -> list[RunRecord]:
    """Runs that differ from `record` in their seed at most."""
    if not folder.is_dir():
        return []
    with Index(folder) as index:
        rows = index.runs(host=record.host.name)
    selection = record.selection
    alike = [
        row
        for row in rows
        if (row.suite, row.filter, row.schedule) == (selection.suite, selection.filter, selection.schedule)
    ]
    runs = (archive.read(folder / row.name) for row in alike)
    return [run for run in runs if _kernel(run) == _kernel(record) and run.checksum != record.checksum]


def _kernel(record: RunRecord) -> tuple[object, ...]:
    """What was run, and on what."""
    variants = {(variant.name, variant.source_hash, variant.nvcc, tuple(variant.flags)) for variant in record.variants}
    return (variants, record.selection.matrix_sha256, record.host.gpu and record.host.gpu.name)


def _run(record: RunRecord, seed: int, root: Path, observer: Observer) -> RunRecord:
    selection = record.selection
    filters = (selection.filter,) if selection.filter else ()
    folder = root / ".fmha" / "noise"
    request = Request(root, record.host.name, selection.suite, filters, seed, selection.schedule, folder)
    found: list[RunRecord] = []
    try:
        execute(request, observer, lambda run, _: found.append(run))
    except InterruptionError as error:
        raise InterruptionError("interrupted; the same command goes on where it was") from error
    if _kernel(found[0]) != _kernel(record):
        raise UserError(
            "the checkout's kernel is not the one of the run, so its noise cannot be measured",
            next_step=f"git checkout {record.commit.sha[:12]}",
        )
    return found[0]


def _noise(record: RunRecord, runs: Sequence[RunRecord]) -> dict[str, dict[str, list[float]]]:
    """By configuration and metric, one value a run; without those that did not pass in every run."""
    noise: dict[str, dict[str, list[float]]] = {}
    found = [{item.id: item for item in run.configurations} for run in runs]
    for item in record.configurations:
        rows = [by_id.get(item.id) for by_id in found]
        values = [values_of(row.metrics) for row in rows if row and row.metrics and row.status is Status.PASS]
        if len(values) == len(runs):
            noise[item.id] = {metric: [value[metric] for value in values] for metric in values[0]}
    return noise


def _deterministic(record: RunRecord, runs: Sequence[RunRecord]) -> bool:
    """On the emulator by construction; elsewhere when another run with this seed gave the same bits."""
    repeats = [run for run in runs[1:] if run.selection.seed == record.selection.seed]
    if not repeats:
        return record.host.kind == "emulator"
    return all(_hashes(run) == _hashes(record) for run in repeats)


def _hashes(record: RunRecord) -> dict[str, str]:
    return {item.id: item.metrics.output_hash for item in record.configurations if item.metrics}
