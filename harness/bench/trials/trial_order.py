"""Whether the timing model puts trials in the order in which they were measured:
`python -m fmha.harness.bench.trials.trial_order RECORD`, a file of `fmha.harness.bench.trials.tried`.

Each trial of the record is launched on the emulator at its full size with the timing of an H200, a few of its CTAs, and
the model says how long the call takes. Trials of one problem are a pair where their builds or splits differ, or
whether they overlap the grid before. A pair is right if the one that was measured faster is modelled faster.
Those of builds that there are no more, and those
whose splits a cluster merged, are left out. `--only WORD` keeps the trials whose kind and build have the word.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, Final

from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.bench.shapes.launch_problem import launch, output_sizes
from fmha.harness.bench.shapes.tried_variants import ALL
from fmha.harness.bench.trials.small_trials import kernel_of
from fmha.harness.bench.trials.trial import Trial, every_trial
from fmha.harness.bench.trials.tried import row_of
from fmha.harness.see.call_time import seconds_of
from fmha.harness.see.lengths import numbers
from fmha.harness.worker.devices.emulator_device import EmulatorDevice

GPU: Final = "h200"
PROBLEM: Final = ("kind", "head_dim", "shared_kv")
PLAN: Final = ("shape", "splits", "overlaps_grid_before")
APART: Final = (0.05, 0.1)  # how far apart two were measured, at least


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial, measured and modelled. Microseconds."""

    problem: tuple[Any, ...]
    plan: tuple[Any, ...]
    measured_us: float
    modelled_us: float
    forced: int  # waits that the model could not follow

    def __str__(self) -> str:
        kind, head_dim, _ = self.problem
        shape, splits, overlaps = self.plan
        late = "" if overlaps else ", no overlap"
        words = f"{kind:10} {head_dim:3}  {self.measured_us:8.1f} {self.modelled_us:8.1f} us"
        error = self.modelled_us / self.measured_us - 1
        return f"{words} {error:+5.0%}  {shape}, {splits} splits{late}"


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Two launches that were measured apart."""

    faster: TrialRow  # as measured
    slower: TrialRow

    @property
    def apart(self) -> float:
        """How much slower the slower one is, as a share."""
        return self.slower.measured_us / self.faster.measured_us - 1

    @property
    def right(self) -> bool:
        """Whether the model has them in that order."""
        return self.faster.modelled_us < self.slower.modelled_us


def timings(trial: Trial) -> list[LaunchTiming]:
    """Of the launches of a trial at its full size; of each, a few CTAs run, so that no output is whole."""
    p = trial.problem
    device = EmulatorDevice(0, "realistic", checks=False, threads=1, timing=GPU)
    rows = p.batch * p.t * p.heads
    keys = p.batch * p.s_k * p.head_dim
    addresses = {}
    for k, (name, count) in enumerate({"q": rows * p.head_dim, "k": keys, "v": keys}.items()):
        if name != "v" or not p.shared_kv:
            addresses[name] = device.alloc(2 * count, name)
            device.upload(addresses[name], numbers(count, k))
    addresses |= {name: device.alloc(nbytes, name) for name, nbytes in output_sizes(p).items()}
    launch(device, kernel_of(ALL[trial.shape]), p, addresses, trial.overlaps)
    return [timing for _, timing in device.timings]


def row(trial: Trial, measured: Mapping[str, Any], launches: Iterable[LaunchTiming]) -> TrialRow:
    """A measured trial beside its modelled time, microseconds."""
    said = tuple(timing.modelled() for timing in launches)
    own = _named(measured)
    us = seconds_of(architecture(GPU), said) * 1e6
    return TrialRow(*own, float(measured["median_us"]), us, sum(m.forced for m in said))


def matched(record: Mapping[str, Any], only: str = "") -> list[tuple[Trial, Mapping[str, Any]]]:
    """The trials that the record has, the first row of each."""
    known = {_named(row_of(trial, {})): trial for trial in every_trial()}
    found: dict[Any, tuple[Trial, Mapping[str, Any]]] = {}
    for measured in _alone(record):
        name = _named(measured)
        if name in known:
            found.setdefault(name, (known[name], measured))
    return [item for item in found.values() if only in f"{item[0].kind} {item[0].shape}"]


def pairs(rows: Sequence[TrialRow]) -> list[MeasuredPair]:
    """Of each problem every two of its trials."""
    found = []
    for _, group in groupby(sorted(rows, key=lambda item: item.problem), lambda item: item.problem):
        ordered = sorted(group, key=lambda item: item.measured_us)
        found += [MeasuredPair(a, b) for a, b in combinations(ordered, 2)]
    return found


def noise(record: Mapping[str, Any]) -> float:
    """How far apart two timings of one trial are, at most: nearer ones have no order."""
    times: dict[Any, list[float]] = {}
    for measured in _alone(record):
        times.setdefault(_named(measured), []).append(float(measured["median_us"]))
    return max(max(both) / min(both) - 1 for both in times.values())


def rates(found: Sequence[MeasuredPair], apart: float) -> list[str]:
    """How many pairs are in order, of those at least so far apart, a line each."""
    lines = []
    for least in (0.0, apart, *APART):
        counted = [pair for pair in found if pair.apart >= least]
        right = sum(pair.right for pair in counted)
        share = f"{right / len(counted):.1%}" if counted else "none"
        which = f"at least {100 * least:.2g}% apart" if least else "all"
        lines.append(f"{which}: {right} of {len(counted)} pairs in order, {share}")
    return lines


def _alone(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its rows, without those of CTAs in clusters, which kernels knew once."""
    return [row for row in record["rows"] if row.get("cluster", [1, 1]) == [1, 1]]


def _named(row: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(row[name] for name in PROBLEM), tuple(row[name] for name in PLAN)


def main() -> int:
    """Says how well the model orders a record's trials."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.bench.trials.trial_order", description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--only", default="", help="trials whose kind and build have this word")
    given = parser.parse_args()
    record = json.loads(given.record.read_text())
    rows = []
    for trial, measured in matched(record, given.only):
        rows.append(row(trial, measured, timings(trial)))
        print(rows[-1], flush=True)
    found = pairs(rows)
    for pair in (item for item in found if not item.right):
        print(f"wrong, {pair.apart:.0%} apart:\n  {pair.faster}\n  {pair.slower}")
    print("\n".join(rates(found, noise(record))))
    if forced := sum(item.forced > 0 for item in rows):
        print(f"of {forced} the model could not follow every wait: their times are not to be trusted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
