"""Archive: all that is known about a run, as one record in one file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from fmha.harness.archive import record as model
from fmha.harness.contract.lines import Lines
from fmha.harness.contract.protocol import BuildResult, Timed
from fmha.harness.errors import ExitCode
from fmha.harness.hosts import HostProvenance
from fmha.harness.judge.identity import Identity
from fmha.harness.judge.limits import Biases
from fmha.harness.judge.pooled import pooled
from fmha.harness.judge.status import Status, exit_code
from fmha.harness.stages.apart import JudgeApart
from fmha.harness.stages.coverage import RunCoverage, collect
from fmha.harness.stages.outcome import Outcome
from fmha.harness.stages.plan import Plan
from fmha.harness.stages.preflight import GitFacts

MOST_DIRTY_FILES = 100
LINES_AROUND = 3  # of a finding's source line, on each side

_PLACE = re.compile(r"([^:\0]{1,1000}):(\d{1,9})")
_SOURCES = frozenset({".cu", ".cuh", ".h", ".hpp", ".ptx", ".inc"})

_WORDS: Mapping[ExitCode, Literal["PASS", "FAIL", "INFRASTRUCTURE", "INCOMPLETE"]] = {
    ExitCode.PASS: "PASS",
    ExitCode.GATE_FAILED: "FAIL",
    ExitCode.USAGE: "FAIL",  # an adapter's mistake
    ExitCode.INFRASTRUCTURE: "INFRASTRUCTURE",
    ExitCode.INCOMPLETE: "INCOMPLETE",
}


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Everything about a run but its outcomes."""

    git: GitFacts
    host: HostProvenance
    plan: Plan
    seed: int
    schedule: str
    matrix_sha256: str
    judge: Identity
    apart: JudgeApart | None
    alike: str | None  # a commit of the default branch whose harness is the one that judged, file by file
    builds: Mapping[str, BuildResult]
    durations: Mapping[str, float]
    started: datetime
    finished: datetime
    elsewhere: model.Elsewhere | None = None
    drawn: int | None = None  # the second seed of the inputs
    biases: Biases | None = None  # what is held of all configurations together


def make_record(run: Circumstances, outcomes: Sequence[Outcome]) -> model.RunRecord:
    """The record of a run. `outcomes` has at least one; the record keeps the plan's order."""
    outcomes, covered = collect(outcomes)
    order = {step.configuration.id: place for place, step in enumerate(run.plan.steps)}
    ordered = sorted(outcomes, key=lambda outcome: order[outcome.id])
    limits = [dict(gates) for gates in dict.fromkeys(tuple(outcome.limits.items()) for outcome in ordered)]
    together = pooled(ordered, run.biases)
    return model.RunRecord(
        started=run.started.replace(microsecond=0),
        finished=run.finished.replace(microsecond=0),
        commit=_commit(run.git),
        host=_host(run.host, own=run.apart is None and run.alike is None),
        selection=model.Selection(
            suite=run.plan.suite,
            suites=list(run.plan.suites),
            filter=str(run.plan.filter),
            random=dict(run.plan.random),
            one_a_variant=run.plan.one_a_variant,
            seed=run.seed,
            drawn=run.drawn,
            schedule=run.schedule,
            matrix_sha256=run.matrix_sha256,
        ),
        elsewhere=run.elsewhere,
        variants=[_variant(run.builds[name]) for variant in run.plan.variants if (name := variant.name) in run.builds],
        durations={stage: round(seconds, 6) for stage, seconds in run.durations.items()},
        configurations=[_configuration(outcome, limits.index(dict(outcome.limits))) for outcome in ordered],
        sources=excerpts(run.git.root, outcomes),
        judge=_judge(run.judge, run.apart),
        limits=limits,
        verdict=_verdict(
            outcomes,
            failed=(run.apart is not None and run.apart.refused) or any(figure.missed for figure in together),
        ),
        coverage=_coverage(covered),
        pooled=list(together),
    )


def _host(facts: HostProvenance, *, own: bool) -> model.HostFacts:
    enclosed = facts.own_harness_enclosed
    return model.HostFacts(
        name=facts.name,
        kind=facts.kind,
        machine=facts.machine,
        gpu=facts.gpu,
        gpus=list(facts.gpus),
        versions=dict(facts.versions),
        mma_sums=facts.mma_sums,
        isolation=facts.isolation,
        # What says nothing of isolation is of before there was any, and is enclosed as a whole.
        own_harness_outside=facts.own_harness and own and facts.isolation is not None and not enclosed,
        own_harness_enclosed=facts.own_harness and own and enclosed,
        hosts=[_host(each, own=own) for each in facts.hosts],
    )


def _coverage(covered: RunCoverage) -> model.Coverage | None:
    if not covered.ptx:
        return None
    ptx, source = ({name: _covered(lines) for name, lines in part.items()} for part in (covered.ptx, covered.source))
    return model.Coverage(ptx=ptx, source=source)


def _covered(lines: Lines) -> model.Covered:
    return model.Covered(lines=len(lines.all), executed=len(lines.executed), missing=lines.missing)


def excerpts(root: Path, outcomes: Sequence[Outcome]) -> dict[str, dict[str, str]]:
    """The lines around every place that a finding names, by file below `root` and line number.

    Only of kernel sources: which file it is says the host, and a record is for others to read.
    """
    lines: dict[str, set[int]] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            for key in ("source", "other_source"):
                if found := _PLACE.fullmatch(str(finding.where.get(key, ""))):
                    around = range(int(found[2]) - LINES_AROUND, int(found[2]) + LINES_AROUND + 1)
                    lines.setdefault(found[1], set()).update(around)
    result = {}
    for name, numbers in sorted(lines.items()):
        if Path(name).suffix not in _SOURCES or any(part.startswith(".") for part in Path(name).parts):
            continue
        path = Path(os.path.realpath(root / name))
        if path.is_relative_to(root.resolve()) and os.path.isfile(path):
            text = path.read_text(encoding="utf-8", errors="replace").splitlines()
            result[name] = {str(n): text[n - 1] for n in sorted(numbers) if 1 <= n <= len(text)}
    return result


def _commit(git: GitFacts) -> model.Commit:
    return model.Commit(
        sha=git.commit,
        installed=git.installed,
        branch=git.branch,
        dirty=bool(git.dirty_files),
        dirty_files=list(git.dirty_files[:MOST_DIRTY_FILES]),
        dirty_count=len(git.dirty_files),
    )


def _judge(judge: Identity, apart: JudgeApart | None) -> model.Judge:
    told = (
        {
            "commit": apart.commit,
            "changed": list(apart.changed),
            "beside": list(apart.beside),
            "accepted": apart.accepted,
        }
        if apart
        else {}
    )
    return model.Judge(digest=judge.digest, files=dict(judge.files), harness=judge.harness, **told)


def _variant(result: BuildResult) -> model.VariantRecord:
    variant = result.variant
    return model.VariantRecord(
        name=variant.name,
        arch=variant.arch,
        source=variant.source,
        entry=variant.entry,
        head_dim=variant.head_dim,
        defines=dict(variant.defines),
        source_hash=result.source_hash,
        nvcc=result.nvcc,
        flags=list(result.flags),
        resources=result.resources,
        combine_resources=result.combine_resources,
        p_path=variant.p_path,
        shared_dynamic=variant.shape.shared_bytes,
        seconds=result.seconds,
        processor_seconds=result.processor_seconds,
        special_registers=list(result.special_registers),
        cached=result.cached,
        error=result.error,
    )


def _configuration(outcome: Outcome, limits: int) -> model.ConfigurationRecord:
    step = outcome.step
    return model.ConfigurationRecord(
        id=outcome.id,
        parameters=model.Parameters(**step.configuration.parameters),
        guard=step.guard,
        selected=step.selected,
        suites=list(step.suites),
        variant=step.variant.name if step.variant else None,
        status=outcome.status,
        withheld=outcome.withheld,
        reasons=list(outcome.reasons),
        failed_checks=list(outcome.failed_checks),
        metrics=outcome.measurement,
        drawn=outcome.drawn,
        met=list(outcome.met),
        findings=list(outcome.findings),
        stats=dict(outcome.stats),
        seconds=outcome.seconds,
        timing=_timing(outcome.timing) if outcome.timing else None,
        limits=limits,
        place=outcome.place or None,
        hashes=dict(outcome.hashes),
    )


def _timing(timed: Timed) -> model.Timing:
    fields, most = asdict(timed), timed.ceilings
    del fields["ceilings"]
    return model.Timing(
        **(fields | {"beside": timed.beside or None}),
        bytes_moved=None,
        operations=None,
        bytes_per_second=most.bytes_per_second if most else None,
        operations_per_second=most.operations_per_second if most else None,
        load_clock_mhz=most.clock_mhz if most else None,
        load_watts=most.watts if most else None,
        throttled=list(most.throttled) if most else [],
    )


def _verdict(outcomes: Sequence[Outcome], *, failed: bool) -> model.Verdict:
    """`failed` for what no single configuration says: a gate of the whole run, or that the commit changed its own
    judge, of which nothing has been shown until somebody accepts the change."""
    statuses = [outcome.status for outcome in outcomes]
    code = ExitCode.GATE_FAILED if failed else exit_code(statuses)
    counts = Counter(statuses)
    return model.Verdict(
        word=_WORDS[code],
        exit_code=code,
        passed=counts[Status.PASS],
        total=len(statuses),
        counts={status: counts[status] for status in Status if counts[status]},
    )
