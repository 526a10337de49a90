"""Baselines: archived runs, one for each kind of host, that later runs are held against."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fmha.harness import archive
from fmha.harness.archive import BASELINES, Index, RunRecord, signature
from fmha.harness.archive.record import Acceptance, ConfigurationRecord
from fmha.harness.errors import InterruptionError, UserError
from fmha.harness.git import git
from fmha.harness.judge.comparison.builds import alike
from fmha.harness.judge.comparison.noise import LEAST_SEEDS
from fmha.harness.judge.limits import Limit
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import RED, Status
from fmha.harness.stages.outcome import Observer, Outcome
from fmha.harness.stages.pipeline import Progress, Request, begin, carry_out, prepare

MOST_NAMED = 5  # files that differ from the commit
MOST_RUNS = 50  # the newest, that are read for how long builds took


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new baseline, the runs that its noise comes from, and how many configurations keep the last baseline's."""

    path: Path
    record: RunRecord
    runs: int
    kept: int


def name_of(record: RunRecord) -> str:
    """The baseline that a run belongs to: the kind of its host, or its GPU, e.g. `emulator` or `nvidia-b200`."""
    text = record.host.gpu.name if record.host.gpu else record.host.kind
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def path_of(name: str, results: Path) -> Path:
    """Where the baseline of this name lies."""
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
    signature.check(path)
    return archive.read(path)


def with_noise(record: RunRecord, results: Path) -> RunRecord:
    """The record with the noise that the baseline of its host has; itself where there is none, or it has its own."""
    path = path_of(name_of(record), results)
    if record.acceptance is not None or not path.is_file():
        return record
    return record.model_copy(update={"acceptance": archive.read(path).acceptance})


def of_suite(suite: str, kind: str, results: Path) -> str:
    """The name of the one baseline of this kind of host that was run of the suite. Raises UserError."""
    found = {path.stem: archive.read(path) for path in sorted((results / BASELINES).glob("*.json"))}
    mine = {name: record for name, record in found.items() if kind in (record.host.kind, record.host.name)}
    names = [name for name, record in mine.items() if record.selection.suite == suite]
    if len(names) == 1:
        return names[0]
    known = ", ".join(f"{name} of suite {record.selection.suite}" for name, record in mine.items()) or "none"
    what = "several baselines are" if names else "no baseline is"
    raise UserError(f"{what} of suite {suite} on {kind}", next_step=f"there is {known}; --baseline takes a name")


def of_host(host: str, results: Path) -> RunRecord | None:
    """The one baseline that was run on the host of this name; None when there is none or several.

    One that cannot be read is no reason to fail where another is the host's, else it may be the host's: UserError.
    """
    mine: list[RunRecord] = []
    damage: UserError | None = None
    for path in sorted((results / BASELINES).glob("*.json")):
        try:
            record = archive.read(path)
        except UserError as error:
            damage = damage or error
        else:
            mine += [record] if record.host.name == host else []
    if damage and not mine:
        raise damage
    return mine[0] if len(mine) == 1 else None


def accept(
    record: RunRecord,
    why: str,
    seeds: int,
    results: Path,
    root: Path,
    observer: Observer,
    *,
    name: str | None = None,
    allowances: Mapping[str, float] | None = None,
    key: Path | None = None,
    afresh: bool = False,
) -> Accepted:
    """Make an archived run a baseline, that of its kind of host or the one of `name`, with the noise of `seeds` seeds.

    The kernel of the checkout `root` is run under the other seeds, on every configuration that `kept_noise` does not
    have, or on all, `afresh`. `allowances` are shares by which counters may grow; `key` signs it. Raises UserError for
    a run that is no evidence, or whose kernel is not the checkout's.
    """
    _check(record, why, seeds)
    own = record.selection.seed
    others = [seed for seed in range(seeds) if seed != own][: seeds - 1]
    path = path_of(name or name_of(record), results)
    before = archive.read(path) if path.is_file() else None
    kept = {} if before is None or afresh or not _signed(path) else kept_noise(record, before, [own, *others])
    changed = [item.id for item in _measured(record) if item.id not in kept]
    observer.stage("noise", f"{seeds} seeds, {len(changed)} configurations")
    drawn = _drawn(record, changed, others, root, observer) if changed else ()
    acceptance = Acceptance(
        why=why,
        accepted=datetime.now(UTC).replace(microsecond=0),
        by=git(root, "config", "user.name").stdout.strip() or "unknown",
        replaces=before.commit.sha if before else None,
        deterministic=_deterministic(record, _archived(record, results)),
        seeds=[own, *others],
        allowances=dict(allowances or {}),
        noise=_noise(record, drawn, others) | kept,
        builds=_builds(record, results),
    )
    accepted = as_baseline(record, acceptance)
    path.parent.mkdir(parents=True, exist_ok=True)
    signature.signature_of(path).unlink(missing_ok=True)  # it was of what was there before
    archive.replace(archive.dumps(accepted).encode(), path)
    if key is not None:
        signature.sign(path, key)
    return Accepted(path, accepted, len(acceptance.seeds), len(kept))


def as_baseline(record: RunRecord, acceptance: Acceptance) -> RunRecord:
    """The record as a baseline has it. What was measured on the seed that its run drew is left out: nobody compares
    with it, and other digits each time would be three quarters of what a baseline adds to the repository."""
    items = [item.model_copy(update={"drawn": None}) for item in record.configurations]
    return record.model_copy(update={"acceptance": acceptance, "configurations": items})


def _check(record: RunRecord, why: str, seeds: int) -> None:
    if not why.strip():
        raise UserError("--why: a baseline needs its reason")
    if seeds < LEAST_SEEDS:
        raise UserError(f"--seeds: noise needs at least {LEAST_SEEDS} seeds, not {seeds}")
    if record.commit.installed:
        raise UserError("the run judged no commit", next_step="run in a checkout and accept that run")
    if record.commit.dirty:
        files, count = ", ".join(record.commit.dirty_files[:MOST_NAMED]), record.commit.dirty_count
        more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
        raise UserError(
            f"the run's tree had {count} file(s) that differ from its commit: {files}{more}",
            next_step="commit them with the bytes that builds read, or name in .gitignore what none reads; "
            "then run again and accept that run",
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


def _builds(record: RunRecord, folder: Path) -> dict[str, list[float]]:
    """Processor seconds of every variant's builds in the newest runs of the host, whatever the commit: one a run, of
    those that compiled it alike."""
    names: list[str] = []
    if folder.is_dir():
        with Index(folder) as index:
            names = [row.name for row in index.runs(host=record.host.name) if row.host == record.host.name][:MOST_RUNS]
    own = {variant.name: variant for variant in record.variants}
    found: dict[str, list[float]] = {}
    for run in [record, *(archive.read(folder / name) for name in names)]:
        if run.host.machine != record.host.machine or (run is not record and run.checksum == record.checksum):
            continue
        for variant in run.variants:
            known = own.get(variant.name)
            if variant.processor_seconds and known is not None and alike(known, variant):
                found.setdefault(variant.name, []).append(round(variant.processor_seconds, 2))
    return found


def _kernel(record: RunRecord) -> tuple[object, ...]:
    """What was run, and on what."""
    variants = {(variant.name, variant.source_hash, variant.nvcc, tuple(variant.flags)) for variant in record.variants}
    return (variants, record.selection.matrix_sha256, record.host.gpu and record.host.gpu.name)


def _signed(path: Path) -> bool:
    """Whether what it says may be taken over: its signature holds, or none is asked for."""
    try:
        signature.check(path)
    except UserError:
        return False
    return True


def _measured(record: RunRecord) -> list[ConfigurationRecord]:
    return [item for item in record.configurations if item.metrics is not None and item.status is Status.PASS]


def kept_noise(record: RunRecord, before: RunRecord, seeds: Sequence[int]) -> dict[str, dict[str, list[float]]]:
    """By configuration and metric, noise that need not be measured again.

    It is of configurations that gave in `record` the bits and figures that they gave in `before`, a baseline, under the
    same limits, where that has noise of the same `seeds`.
    """
    if before.acceptance is None or before.acceptance.seeds != seeds:
        return {}
    then = {item.id: item for item in before.configurations}
    noise = before.acceptance.noise
    return {
        item.id: noise[item.id]
        for item in _measured(record)
        if item.id in noise
        and item.metrics == then[item.id].metrics
        and _limits(record, item) == _limits(before, then[item.id])
    }


def _limits(record: RunRecord, item: ConfigurationRecord) -> dict[str, Limit] | None:
    return None if item.limits is None else record.limits[item.limits]


def _drawn(
    record: RunRecord, names: Sequence[str], seeds: Sequence[int], root: Path, observer: Observer
) -> Sequence[Outcome]:
    """What the run was of `names`, again and under other seeds as well. One worker has the kernels decoded for all of
    them: with a run a seed, starting over was most of the time."""
    selection = record.selection
    filters = (selection.filter,) if selection.filter else ()
    request = Request(
        root,
        host=record.host.name,
        filters=filters,
        seed=selection.seed,
        schedule=selection.schedule,
        cases=names,
        noise_seeds=tuple(seeds),
    )
    prepared = begin(prepare(request), observer)
    progress = Progress()
    try:
        carry_out(prepared, progress, observer)
        prepared.host.finish()
    except KeyboardInterrupt:
        raise InterruptionError("interrupted; nothing was accepted") from None
    made = {(name, item.source_hash, item.nvcc, item.flags) for name, item in progress.builds.items()}
    ran = {(item.name, item.source_hash, item.nvcc, tuple(item.flags)) for item in record.variants}
    gpu, now = record.host.gpu and record.host.gpu.name, prepared.host.facts().gpu
    same_matrix = prepared.matrix.sha256 == selection.matrix_sha256
    if not made <= ran or not same_matrix or gpu != (now.name if now else None):
        raise UserError(
            "the checkout's kernel is not the one of the run, so its noise cannot be measured",
            next_step=f"git checkout {record.commit.sha[:12]}",
        )
    return progress.outcomes


def _noise(record: RunRecord, outcomes: Sequence[Outcome], seeds: Sequence[int]) -> dict[str, dict[str, list[float]]]:
    """By configuration and metric, the run's own value and one a seed; without those that missed a gate under one."""
    found = {outcome.id: outcome for outcome in outcomes}
    noise: dict[str, dict[str, list[float]]] = {}
    for item in _measured(record):
        outcome = found.get(item.id)
        if outcome is not None and all(seed in outcome.noise for seed in seeds):
            runs = [item.metrics, *(outcome.noise[seed] for seed in seeds)]
            measured = [metric for metric in METRICS if getattr(runs[0], metric) is not None]
            noise[item.id] = {metric: [_short(metric, getattr(run, metric)) for run in runs] for metric in measured}
    return noise


def _short(metric: str, value: float) -> float:
    """As many digits as the floor of its noise needs: a baseline has a value a configuration, metric and seed."""
    return round(value, 12) if metric == "cosine" else float(f"{value:.6g}")


def _deterministic(record: RunRecord, runs: Sequence[RunRecord]) -> bool:
    """On the emulator by construction; elsewhere when another run with this seed gave the same bits."""
    repeats = [run for run in runs if run.selection.seed == record.selection.seed]
    if not repeats:
        return record.host.kind == "emulator"
    return all(_hashes(run) == _hashes(record) for run in repeats)


def _hashes(record: RunRecord) -> dict[str, str]:
    return {item.id: item.metrics.output_hash for item in record.configurations if item.metrics}
