"""False alarms of the gates of what has a direction: how near honest kernels come to them under many seeds.

    python -m tests.harness.bias_alarms --seeds 100
    python -m tests.harness.bias_alarms --seeds 100 --host hopper --suite seed,cover-sm90

Every seed counts as one run of the suite. For each gate: alarms, the worst figure of all runs, how probable an alarm
is in one run if the worst figures of runs follow Gumbel's distribution, as those of many independent ones do.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fmha.harness.config import Biases
from fmha.harness.stages.gate import BIASES
from fmha.harness.stages.outcome import Outcome
from fmha.harness.stages.pipeline import Progress, Request, begin, carry_out, prepare
from fmha.harness.stages.pooled import figures
from fmha.harness.status import Status
from fmha.harness.worker.protocol import Measurement

AT_ONCE = 10  # seeds; what a worker measures of one configuration stays below the limit of time
EULER = 0.5772156649


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
    options = parser.parse_args()
    worst: dict[str, list[float]] = {}
    limits: dict[str, float] = {}
    alarms = 0
    for first in range(options.first, options.first + options.seeds, AT_ONCE):
        biases, outcomes = _measured(options, first, min(AT_ONCE, options.first + options.seeds - first))
        for seed in range(first, first + len(outcomes[0].noise) + 1):
            figures_of_run, red = _run(outcomes, first, seed, biases)
            alarms += bool(red)
            for name in red:
                print(f"alarm under seed {seed}: {name}")
            for name, (value, limit) in figures_of_run.items():
                worst.setdefault(name, []).append(value)
                limits[name] = limit
        print(f"{first + AT_ONCE - options.first} seeds", file=sys.stderr, flush=True)
    print(f"{alarms} of {options.seeds} runs raise an alarm")
    for name, values in worst.items():
        chance = _chance(values, limits[name])
        print(f"{name:13} limit {limits[name]:g}, worst {max(values):.3g}, chance of an alarm a run {chance:.1e}")


def _measured(options: argparse.Namespace, first: int, seeds: int) -> tuple[Biases, list[Outcome]]:
    noise = tuple(range(first + 1, first + seeds))
    request = Request(Path.cwd(), options.host, options.suite, (), first, None, noise_seeds=noise)
    prepared = begin(prepare(request), _Silent())
    progress = Progress()
    carry_out(prepared, progress, _Silent())
    prepared.host.finish()
    assert prepared.matrix.biases is not None
    return prepared.matrix.biases, [item for item in progress.outcomes if item.status is not Status.NOT_RUN]


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
