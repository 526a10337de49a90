"""How often the verdict on speed is wrong: the tables of docs/reference/speed-rates.md.

python -m tests.evidence.speed_rates --trials 300          # synthetic times with known truth
python -m tests.evidence.speed_rates results/speed-h200.json  # a probe kernel on an H200
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.comparison.speed import SpeedVerdict, judge

ROUNDS = 40
NOISE = 0.01  # standard deviation of a round's logarithm
TRUTHS = (0.0, 0.01, 0.03, 0.10)
Array = NDArray[np.float64]
Disturbance = Callable[[np.random.Generator], tuple[Array, Array]]


def quiet(generator: np.random.Generator) -> tuple[Array, Array]:
    return np.ones(ROUNDS), np.ones(ROUNDS)


def drifting(generator: np.random.Generator) -> tuple[Array, Array]:
    """Both get slower by a tenth over the run, as a chip that warms up does."""
    drift = np.linspace(1.0, 1.1, ROUNDS)
    return drift, drift


def bimodal(generator: np.random.Generator) -> tuple[Array, Array]:
    """Every third round of either side, at random, is slower by a twentieth."""
    base, new = (np.where(generator.random(ROUNDS) < 1 / 3, 1.05, 1.0) for _ in range(2))
    return base, new


def preempted(generator: np.random.Generator) -> tuple[Array, Array]:
    """Every tenth round of either side takes twice as long."""
    base, new = (np.where(generator.random(ROUNDS) < 0.1, 2.0, 1.0) for _ in range(2))
    return base, new


DISTURBANCES: tuple[Disturbance, ...] = (quiet, drifting, bimodal, preempted)


def times(disturbance: Disturbance, truth: float, generator: np.random.Generator) -> tuple[list[float], list[float]]:
    """Seconds of both builds, the second slower by `truth`."""
    a, b = disturbance(generator)
    noise = np.exp(NOISE * generator.standard_normal((2, ROUNDS)))
    return (1e-4 * a * noise[0]).tolist(), (1e-4 * (1 + truth) * b * noise[1]).tolist()


def verdicts(disturbance: Disturbance, truth: float, trials: int) -> Counter[SpeedVerdict]:
    generator = np.random.default_rng([int(1000 * truth), DISTURBANCES.index(disturbance)])
    return Counter(judge(*times(disturbance, truth, generator), seed=trial).verdict for trial in range(trials))


def synthetic(trials: int) -> None:
    print(f"| times | slower by | {' | '.join(SpeedVerdict)} |\n| --- | --- |{' --- |' * len(SpeedVerdict)}")
    for disturbance in DISTURBANCES:
        for truth in TRUTHS:
            found = verdicts(disturbance, truth, trials)
            shares = " | ".join(f"{found[verdict] / trials:.1%}" for verdict in SpeedVerdict)
            print(f"| {disturbance.__name__} | {truth:.0%} | {shares} |", flush=True)


def measured(path: Path) -> None:
    document = json.loads(path.read_text())
    print(f"{document['gpu']}\n\n| slower by | {' | '.join(SpeedVerdict)} | estimates | widest interval |")
    print(f"| --- |{' --- |' * (len(SpeedVerdict) + 2)}")
    for truth in sorted({run["slower"] for run in document["runs"]}):
        runs = [run for run in document["runs"] if run["slower"] == truth]
        judged = [
            judge(run["base"], run["new"], run["base_clock"], run["new_clock"], seed=place)
            for place, run in enumerate(runs)
        ]
        found = Counter(item.verdict for item in judged)
        changes = [item.change for item in judged]
        width = max(item.high - item.low for item in judged)
        counts = " | ".join(f"{found[verdict]} of {len(runs)}" for verdict in SpeedVerdict)
        print(f"| {truth:.0%} | {counts} | {min(changes):+.3%} to {max(changes):+.3%} | {width:.3%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    if options.file:
        measured(options.file)
    else:
        synthetic(options.trials)


if __name__ == "__main__":
    sys.exit(main())
