"""Compares a run with an earlier one: what is worse, by kind; docs/use/evidence.md defines the kinds."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord, VariantRecord
from fmha.harness.judge.comparison import builds, speed
from fmha.harness.judge.comparison.judged import Difference, differences
from fmha.harness.judge.comparison.missed import missed
from fmha.harness.judge.comparison.noise import (
    LEAST_DEVIATION,
    LEAST_SEEDS,
    Band,
    band_of,
    plain_band,
    scaled,
    values_of,
)
from fmha.harness.judge.status import RED, Status

Pair = tuple[ConfigurationRecord, ConfigurationRecord]

ALLOWANCE = 0.02  # of a counter, where the baseline states none
NOT_THE_KERNELS = frozenset({"threads", "schedules"})  # the emulator's own


class Kind(StrEnum):
    """The gravest first."""

    STATUS = "status"
    HAZARD = "hazard"
    JUDGE = "judge"
    NOT_RUN = "not-run"
    NUMBERS = "numbers"
    RESOURCES = "resources"
    COUNTERS = "counters"
    SPEED = "speed"
    BUILD = "build"
    HASH = "hash"


@dataclass(frozen=True, slots=True)
class Regression:
    """One thing that got worse. `subject` is a configuration or a variant, `what` a metric, rule or size."""

    kind: Kind
    subject: str
    what: str
    before: float | str | None
    after: float | str | None
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Regressions, the gravest first, and what else differs between the runs that the reader should know."""

    regressions: tuple[Regression, ...]
    notes: tuple[str, ...]
    compared: int
    unasked: int = 0  # configurations of the earlier run that nobody asked the later one for
    guards: int = 0  # of those compared, which ran to guard a selection that has no guard of its own
    # By configuration, where it was timed beside the earlier one.
    speeds: Mapping[str, speed.JudgedSpeed] = field(default_factory=dict)


def compare(base: RunRecord, new: RunRecord, expected: Collection[str] | None = None) -> Comparison:
    """What is worse in `new`. `expected` are the ids of `base` that `new` was asked for; None stands for all.

    What is missing without a regression is told in the notes: what nobody asked for, what was not come to when the run
    was stopped, and what could not be run through no fault of the commit's.

    The noise is that of `base.acceptance`; without it plain factors take its place.
    """
    before = {item.id: item for item in base.configurations if expected is None or item.id in expected}
    after = {item.id: item for item in new.configurations}
    regressions = []
    pairs = [(item, after[name]) for name, item in before.items() if name in after]
    comparisons = sum(len(values_of(a.metrics)) for a, b in pairs if a.metrics and b.metrics)
    missing = [name for name, item in before.items() if name not in after and item.status is not Status.NOT_RUN]
    others = list(differences(base, new, pairs, missing))
    for found in others:
        if found.laxer:
            regressions.append(Regression(Kind.JUDGE, *_told(found)))
    for name, item in before.items():
        if name in missing:
            text = f"was {item.status} and is in no suite that was asked for any more"
            regressions.append(Regression(Kind.NOT_RUN, name, "configuration", item.status, None, text))
    for a, b in pairs:
        regressions += _status(a, b, new)
        regressions += _hazards(a, b)
        regressions += _numbers(a, b, base, new, comparisons)
        regressions += _counters(a, b, base, new)
        regressions += _hash(a, b, base, new)
    speeds = {b.id: judged for _, b in pairs if (judged := _speed(b, base))}
    regressions += _slower(speeds)
    regressions += _pooled(base, new)
    regressions += _resources(base, new)
    regressions += _builds(base, new)
    order = list(Kind)
    gravest = tuple(sorted(regressions, key=lambda item: order.index(item.kind)))
    unasked = len(base.configurations) - len(before)
    used = {item.variant for item in before.values() if item.variant}
    notes = (*_missing(new, pairs, unasked), *_notes(base, new, used))
    notes += tuple(f"judge {found.subject}: {found.text}" for found in others if not found.laxer)
    guards = sum(not b.selected for _, b in pairs)
    return Comparison(gravest, notes, len(pairs), unasked, guards, speeds)


def same_inputs(base: RunRecord, new: RunRecord) -> bool:
    """Whether both runs drew the same inputs, were scheduled alike and, on the emulator, added alike."""

    def chosen(run: RunRecord) -> tuple[int, str, str | None]:
        return run.selection.seed, run.selection.schedule, run.host.mma_sums

    return chosen(base) == chosen(new)


def _pooled(base: RunRecord, new: RunRecord) -> Iterator[Regression]:
    """Figures over many configurations that miss their limits and did not before."""
    before = {(figure.group, figure.name) for figure in missed(base)}
    for figure in missed(new):
        if (figure.group, figure.name) not in before:
            yield Regression(Kind.STATUS, figure.group, figure.name, None, figure.value, figure.text)


def _told(found: Difference) -> tuple[str, str, float | str | None, float | str | None, str]:
    return found.subject, found.what, found.before, found.after, found.text


def _status(a: ConfigurationRecord, b: ConfigurationRecord, new: RunRecord) -> Iterator[Regression]:
    if a.status is Status.PASS and b.status is Status.NOT_RUN:
        if not _excused(b, new):
            what, word = ("guard", "is kept from running") if b.withheld else ("run", "cannot be run any more")
            yield Regression(Kind.NOT_RUN, a.id, what, a.status, b.status, f"passed and {word}: {_first(b)}")
    elif b.status in RED and a.status not in RED:
        yield Regression(Kind.STATUS, a.id, "status", a.status, b.status, f"{a.status} -> {b.status}: {_first(b)}")


def _excused(item: ConfigurationRecord, new: RunRecord) -> bool:
    """Whether it has not been run for a reason that says nothing of the commit."""
    if item.withheld == "guard":
        return any(other.guard and other.status is Status.INFRA_ERROR for other in new.configurations) and not any(
            other.guard and other.status in RED for other in new.configurations
        )
    return item.withheld == "stopped"


def _missing(new: RunRecord, pairs: Sequence[Pair], unasked: int) -> Iterator[str]:
    if unasked:
        suite = f"suite {new.selection.suite}" if new.selection.suite else "cases by name"
        words = suite + (f" --filter {new.selection.filter}" if new.selection.filter else "")
        yield f"only {words} was asked for: {unasked} configuration(s) of the earlier run are not compared"
    failed = [b for a, b in pairs if b.status is Status.INFRA_ERROR and a.status is not b.status]
    if failed:
        yield f"{len(failed)} configuration(s) failed by no fault of the commit's, {failed[0].id}: {_first(failed[0])}"
    kept = [b for a, b in pairs if a.status is Status.PASS and b.status is Status.NOT_RUN and _excused(b, new)]
    if kept:
        yield f"{len(kept)} configuration(s) were not come to: {_first(kept[0])}"


def _hazards(a: ConfigurationRecord, b: ConfigurationRecord) -> Iterator[Regression]:
    before = Counter(finding.rule for finding in a.findings)
    for rule in dict.fromkeys(finding.rule for finding in b.findings):
        if rule not in before:
            found = [finding for finding in b.findings if finding.rule == rule]
            place = found[0].where.get("source")
            text = f"{found[0].severity} {rule}: {found[0].message}" + (f" ({place})" if place else "")
            yield Regression(Kind.HAZARD, a.id, rule, 0, len(found), text)


def _numbers(
    a: ConfigurationRecord, b: ConfigurationRecord, base: RunRecord, new: RunRecord, comparisons: int
) -> Iterator[Regression]:
    if a.metrics is None or b.metrics is None:
        return
    before, after = values_of(a.metrics), values_of(b.metrics)
    for metric, value in before.items():
        if metric not in after:  # a record from before it was measured
            continue
        band = band_for(base, a.id, metric, value, same_inputs(base, new))
        limit = band.limit(comparisons)
        if band.count:
            alike = _under_the_same_seed(base, new, a.id, metric, value)
            if alike is None:
                continue
            limit = max(limit, scaled(metric, alike) + LEAST_DEVIATION)
        if scaled(metric, after[metric]) > limit:
            text = f"{metric} {_shown(metric, before[metric])} -> {_shown(metric, after[metric])}"
            noise = f"beyond the noise of {band.count} seeds" if band.count else "noise not measured"
            yield Regression(Kind.NUMBERS, a.id, metric, before[metric], after[metric], f"{text}, {noise}")


def band_for(base: RunRecord, configuration: str, metric: str, value: float, same: bool) -> Band:
    """The band of a metric in `base`, whose own value is given."""
    measured = base.acceptance.noise.get(configuration, {}).get(metric, []) if base.acceptance else []
    if len(measured) >= LEAST_SEEDS:
        return band_of(metric, measured)
    return plain_band(metric, value, same_inputs=same)


def _under_the_same_seed(base: RunRecord, new: RunRecord, configuration: str, metric: str, own: float) -> float | None:
    """What the baseline has measured from the inputs of `new`; None where it has not. `own` is under its own seed.

    How far errors go under seeds that nobody has measured cannot be told from twenty: that of few rows, or of the
    largest logit, is rare and large.
    """
    if same_inputs(base, new):
        return own
    if base.acceptance is None or not _measured(base, new):
        return None
    return base.acceptance.noise[configuration][metric][base.acceptance.seeds.index(new.selection.seed)]


def _measured(base: RunRecord, new: RunRecord) -> bool:
    """Whether the noise of the baseline has runs of the inputs of `new`."""
    if base.acceptance is None or new.selection.seed not in base.acceptance.seeds:
        return False
    own = base.model_copy(update={"selection": base.selection.model_copy(update={"seed": new.selection.seed})})
    return same_inputs(own, new)


def _speed(b: ConfigurationRecord, base: RunRecord) -> speed.JudgedSpeed | None:
    """The verdict on a configuration that was timed beside the commit of `base`."""
    timing = b.timing
    if timing is None or timing.beside != base.commit.sha:
        return None
    return speed.judge(timing.beside_seconds, timing.seconds, timing.beside_clock_mhz, timing.clock_mhz, seed=0)


def _slower(speeds: Mapping[str, speed.JudgedSpeed]) -> Iterator[Regression]:
    for name, judged in speeds.items():
        if judged.verdict is speed.SpeedVerdict.SLOWER:
            yield Regression(Kind.SPEED, name, "seconds", judged.base_seconds, judged.new_seconds, str(judged))


def _counters(a: ConfigurationRecord, b: ConfigurationRecord, base: RunRecord, new: RunRecord) -> Iterator[Regression]:
    """What a device that counts has executed, the same inputs given: more by more than the baseline's allowance."""
    if not same_inputs(base, new) or a.variant != b.variant:
        return
    allowances = base.acceptance.allowances if base.acceptance else {}
    before, after = counters_of(a), counters_of(b)
    for name, value in before.items():
        count, allowance = after.get(name), allowances.get(name, ALLOWANCE)
        if count is not None and count > value * (1.0 + allowance):
            factor = f", x{count / value:.3g}" if value else ""
            text = f"{name.replace('_', ' ')} {value:,} -> {count:,}{factor}; at most {allowance:.0%} more is allowed"
            yield Regression(Kind.COUNTERS, a.id, name, value, count, text)


def counters_of(item: ConfigurationRecord) -> dict[str, int]:
    """What was counted of a configuration that does not depend on the machine that ran the emulator."""
    return {
        name: value
        for name, value in item.stats.items()
        if isinstance(value, int) and not isinstance(value, bool) and name not in NOT_THE_KERNELS
    }


def _hash(a: ConfigurationRecord, b: ConfigurationRecord, base: RunRecord, new: RunRecord) -> Iterator[Regression]:
    if a.metrics is None or b.metrics is None or not _bits_are_comparable(base, new):
        return
    before, after = a.metrics.output_hash, b.metrics.output_hash
    if before != after:
        text = f"outputs {before[:12]} -> {after[:12]} with the same inputs"
        yield Regression(Kind.HASH, a.id, "output_hash", before, after, text)


def _bits_are_comparable(base: RunRecord, new: RunRecord) -> bool:
    if not same_inputs(base, new) or base.host.kind != new.host.kind:
        return False
    if base.host.gpu is None or new.host.gpu is None:
        return base.host.kind == "emulator"
    return base.host.gpu.name == new.host.gpu.name and bool(base.acceptance and base.acceptance.deterministic)


def _resources(base: RunRecord, new: RunRecord) -> Iterator[Regression]:
    after = {variant.name: variant for variant in new.variants}
    for a in base.variants:
        b = after.get(a.name)
        if b and a.resources and b.resources:
            yield from _grown(a, b)


def _builds(base: RunRecord, new: RunRecord) -> Iterator[Regression]:
    compared = list(builds.comparable(base, new))
    for variant, band in compared:
        usual, seconds = math.exp(band.centre), variant.processor_seconds
        if seconds and math.log(seconds) > band.limit(len(compared)):
            text = f"build {usual:.1f} -> {seconds:.1f} s of processor time, beyond the noise of {band.count} builds"
            yield Regression(Kind.BUILD, variant.name, "build_seconds", usual, seconds, text)


def _grown(a: VariantRecord, b: VariantRecord) -> Iterator[Regression]:
    before, after = sizes_of(a), sizes_of(b)
    for name, value in before.items():
        new = after.get(name)
        if new is not None and new > value:
            text = f"{name.replace('_', ' ')} {value} -> {new}"
            if a.nvcc != b.nvcc:
                text += f"; nvcc differs: {a.nvcc} -> {b.nvcc}"
            yield Regression(Kind.RESOURCES, a.name, name, value, new, text)


def sizes_of(variant: VariantRecord) -> dict[str, int]:
    """What a variant uses, where ptxas said it."""
    sizes = dataclasses.asdict(variant.resources) if variant.resources else {}
    return sizes | ({} if variant.shared_dynamic is None else {"shared_dynamic": variant.shared_dynamic})


def _notes(base: RunRecord, new: RunRecord, used: Collection[str]) -> Iterator[str]:
    """`used` are variants of the configurations that were asked for."""
    before, after = {item.id for item in base.configurations}, {item.id for item in new.configurations}
    if added := len(after - before):
        yield f"{added} new configuration(s) that the earlier run does not have"
    for name, a, b in (
        ("host", base.host.kind, new.host.kind),
        ("suite", base.selection.suite, new.selection.suite),
        ("seed", base.selection.seed, new.selection.seed),
        ("schedule", base.selection.schedule, new.selection.schedule),
        ("sums of MMAs", base.host.mma_sums or "fast", new.host.mma_sums or "fast"),
        ("GPU", base.host.gpu and base.host.gpu.name, new.host.gpu and new.host.gpu.name),
    ):
        if a != b:
            yield f"{name} {a} against {b}"
    if base.acceptance and base.acceptance.noise and not _measured(base, new):
        seeds = ", ".join(map(str, base.acceptance.seeds))
        yield f"numbers are not compared, gates alone decide: what the baseline measured are its seeds, {seeds}"
    if gone := {v.name for v in base.variants if v.name in used} - {v.name for v in new.variants}:
        yield f"no resources to compare: variant {', '.join(sorted(gone))} is not in the later run"
    read = {(v.name, text.partition(" ")[0]) for v in base.variants for text in v.special_registers}
    for variant in new.variants:
        for text in variant.special_registers:
            if (variant.name, text.partition(" ")[0]) not in read:
                yield f"{variant.name} reads {text}, which depends on the machine, and did not before"
    compilers = {v.nvcc for v in base.variants} ^ {v.nvcc for v in new.variants}
    if base.variants and new.variants and compilers:
        yield f"nvcc differs: {', '.join(sorted(compilers))}"


def _first(item: ConfigurationRecord) -> str:
    return item.reasons[0].splitlines()[0] if item.reasons and item.reasons[0] else "no reason given"


def _shown(metric: str, value: float) -> str:
    return f"{value:.8f}" if metric == "cosine" else f"{value:.2e}"
