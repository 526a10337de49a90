"""False alarms of the gates of what has a direction: how near honest kernels come to them under many seeds.

    python -m tests.harness.bias_alarms --seeds 100
    python -m tests.harness.bias_alarms --seeds 100 --host hopper --suite seed,cover-sm90
    python -m tests.harness.bias_alarms --seeds 100 --gpu --suite seed,cover-sm90 --jobs 14

Every seed counts as one run of the suite. For each gate: alarms, the worst figure of all runs, how probable an alarm
is in one run if the worst figures of runs follow Gumbel's distribution, as those of many independent ones do. With
--gpu the worker's own code measures on the GPU of this machine, and the suite is that of its kernels.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from fmha.harness import account
from fmha.harness.config import Matrix, load
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, Job, Measurement, Variant
from fmha.harness.judge.gate import BIASES, Judgement, judge
from fmha.harness.judge.limits import Biases
from fmha.harness.judge.pooled import figures
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.stages.outcome import Outcome, Step
from fmha.harness.stages.pipeline import Progress, Request, begin, carry_out, prepare
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.cuda import CudaDevice, architecture

AT_ONCE = 10  # seeds; what a worker measures of one configuration stays below the limit of time
EULER = 0.5772156649
BUILD_SECONDS = 900.0


class _Silent:
    def stage(self, name: str, detail: str) -> None: ...
    def note(self, text: str) -> None: ...
    def tell(self, text: str) -> None: ...
    def started(self, configuration: str) -> None: ...
    def finished(self, outcome: Outcome, done: int, total: int) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--host", default="emulator")
    parser.add_argument("--suite", default="seed,cover")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine, without a host")
    parser.add_argument("--jobs", type=int, default=1, help="runs of some seeds each, side by side")
    options = parser.parse_args()
    if options.gpu:
        print(f"{len(_built(options)[1])} configurations", file=sys.stderr, flush=True)  # and every kernel is built
    worst: dict[str, list[float]] = {}
    limits: dict[str, float] = {}
    alarms, end = 0, options.first + options.seeds
    at_once = min(AT_ONCE, math.ceil(options.seeds / options.jobs))
    blocks = [range(first, min(first + at_once, end)) for first in range(options.first, end, at_once)]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(partial(_block, options), blocks):
            for seed, figures_of_run, red in found:
                alarms += bool(red)
                for name in red:
                    print(f"alarm under seed {seed}: {name}")
                for name, (value, limit) in figures_of_run.items():
                    worst.setdefault(name, []).append(value)
                    limits[name] = limit
            print(f"{len(next(iter(worst.values())))} seeds", file=sys.stderr, flush=True)
    print(f"{alarms} of {options.seeds} runs raise an alarm")
    for name, values in worst.items():
        chance = _chance(values, limits[name])
        print(f"{name:13} limit {limits[name]:g}, worst {max(values):.3g}, chance of an alarm a run {chance:.1e}")


def _block(options: argparse.Namespace, seeds: range) -> list[tuple[int, Mapping[str, tuple[float, float]], list[str]]]:
    """Each seed with the worst figures of its run, and what was missed."""
    biases, outcomes = (_on_gpu if options.gpu else _measured)(options, seeds.start, len(seeds))
    return [(seed, *_run(outcomes, seeds.start, seed, biases)) for seed in seeds]


def _measured(options: argparse.Namespace, first: int, seeds: int) -> tuple[Biases, list[Outcome]]:
    noise = tuple(range(first + 1, first + seeds))
    request = Request(Path.cwd(), host=options.host, suite=options.suite, seed=first, noise_seeds=noise)
    prepared = begin(prepare(request), _Silent())
    progress = Progress()
    carry_out(prepared, progress, _Silent())
    prepared.host.finish()
    assert prepared.matrix.biases is not None
    return prepared.matrix.biases, [item for item in progress.outcomes if item.status is not Status.NOT_RUN]


def _built(options: argparse.Namespace) -> tuple[Matrix, dict[Configuration, BuildResult]]:
    """Which build runs each configuration."""
    matrix, arch = load(Path.cwd()), architecture()
    chosen: dict[Configuration, Variant] = {}
    for item in matrix.configurations(options.suite, matrix.seed):
        if isinstance(item, Configuration) and isinstance(variant := variant_for(item, arch), Variant):
            chosen[item] = variant
    variants = list(dict.fromkeys(chosen.values()))
    jobs = os.cpu_count() or 1
    builds = build_variants(Path.cwd(), variants, account.folder("builds"), BUILD_SECONDS, jobs, lambda line: None)
    by_name = {build.variant.name: build for build in builds}
    return matrix, {item: by_name[variant.name] for item, variant in chosen.items()}


def _on_gpu(options: argparse.Namespace, first: int, seeds: int) -> tuple[Biases, list[Outcome]]:
    matrix, builds = _built(options)
    events: list[Event] = []
    used = {build.variant.name: build for build in builds.values()}
    job = Job("cuda", tuple(used.values()), tuple(builds), first, noise_seeds=tuple(range(first + 1, first + seeds)))
    run_job(job, CudaDevice, events.append)
    told = {event.config: event for event in events if event.event in ("result", "error")}
    assert matrix.biases is not None
    return matrix.biases, [_judged(matrix, item, build, told[item.id]) for item, build in builds.items()]


def _judged(matrix: Matrix, item: Configuration, build: BuildResult, event: Event) -> Outcome:
    step = Step(item, guard=False, selected=True, variant=build.variant)
    if event.measurement is None:
        return Outcome(step, Status.CRASH, (event.message,))

    def judged(measurement: Measurement) -> Judgement:
        gates = matrix.gates_for(item)
        return judge(measurement, (), gates.thresholds, gates.resources, build, gates.biases)

    own = judged(event.measurement)
    reasons = tuple(map(str, own.failed_checks))
    noise = {drawn.seed: drawn.measurement for drawn in event.noise if judged(drawn.measurement).status is Status.PASS}
    return Outcome(step, own.status, reasons, own.failed_checks, event.measurement, noise=noise)


def _run(
    outcomes: Sequence[Outcome], first: int, seed: int, biases: Biases
) -> tuple[Mapping[str, tuple[float, float]], list[str]]:
    """The worst figure of one seed's run with its limit, by gate, and what was missed."""
    red: list[str] = []
    run: list[Outcome] = []
    for outcome in outcomes:
        found: Measurement | None = outcome.measurement if seed == first else outcome.noise.get(seed)
        if found is None or (seed == first and outcome.status is not Status.PASS):
            red.append(f"{outcome.id}: {', '.join(outcome.reasons) or 'a gate was missed'}")
        else:
            run.append(replace(outcome, measurement=found))
    worst = {name: max(value for value in _values(run, name)) for name in BIASES}
    result = {name: (value, float(getattr(biases, name))) for name, value in worst.items()}
    for figure in figures(run, biases):
        if figure.missed:
            red.append(str(figure))
        if figure.value > result.get(figure.name, (-1.0, 0.0))[0]:
            result[figure.name] = (figure.value, figure.limit)
    return result, red


def _values(run: Sequence[Outcome], name: str) -> Iterator[float]:
    for outcome in run:
        assert outcome.measurement is not None
        yield getattr(outcome.measurement.bias, name)


def _chance(values: Sequence[float], limit: float) -> float:
    """Of a value above the limit, by the mean and the deviation of those that were seen."""
    deviation = statistics.stdev(values)
    if not deviation:
        return 0.0 if values[0] <= limit else 1.0
    scale = deviation * math.sqrt(6.0) / math.pi
    return -math.expm1(-math.exp(-(limit - (statistics.fmean(values) - EULER * scale)) / scale))


if __name__ == "__main__":
    main()
