"""GPUs of one model side by side, and the one that is not like the others."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fmha.harness.judge.comparison.distributions import student_tail
from fmha.harness.trends.extract import BOX_RATES, RunFacts

LEAST = 4  # of a model: among fewer nobody knows which one is odd
LEAST_DEVIATION = 0.002  # of the logarithms of times: what GPUs of one model differ by anyway
MOST_CHANCE = 0.01
ROUNDS = 20  # each halves what is left at least where a thing was timed by two


@dataclass(frozen=True, slots=True)
class ComparedGpu:
    """`slower` is by what share its times are longer than the model's median; None where nothing was timed. `copies`
    and `multiplies` is by what share its rates are above the model's median, likewise. `other_bits` counts outputs that
    most GPUs of the model have otherwise. `chance` is that of one so far out."""

    model: str
    uuid: str
    hosts: tuple[str, ...]
    runs: int
    slower: float | None
    copies: float | None
    multiplies: float | None
    other_bits: int
    chance: float

    @property
    def odd(self) -> bool:
        """Whether so many failures, or any other bits, are more than chance."""
        return self.chance < MOST_CHANCE or self.other_bits > 0


def gpus(runs: Sequence[RunFacts]) -> list[ComparedGpu]:
    """By model and uuid."""
    by_model: dict[str, dict[str, list[RunFacts]]] = {}
    for run in runs:
        if run.gpu and not run.dirty:
            by_model.setdefault(run.gpu, {}).setdefault(run.uuid, []).append(run)
    return [gpu for model, found in sorted(by_model.items()) for gpu in _model(model, found)]


def _model(model: str, found: Mapping[str, Sequence[RunFacts]]) -> list[ComparedGpu]:
    slower, other = _slower(found), _other_bits(found)
    copies, multiplies = (_rates(found, name) for name in BOX_RATES)
    made = []
    for uuid, runs in sorted(found.items()):
        rest = [value for name, value in slower.items() if name != uuid]
        hosts = tuple(sorted({run.host for run in runs}))
        own = slower.get(uuid)
        chance = _chance(own, rest) if own is not None and len(slower) >= LEAST else 1.0
        for rates in (copies, multiplies):
            if uuid in rates and len(rates) >= LEAST:
                chance = min(chance, _chance(rates[uuid], [rate for name, rate in rates.items() if name != uuid]))
        times, copied, multiplied = (
            math.expm1(of[uuid]) if uuid in of else None for of in (slower, copies, multiplies)
        )
        made.append(ComparedGpu(model, uuid, hosts, len(runs), times, copied, multiplied, other[uuid], chance))
    return made


def _chance(own: float, rest: Sequence[float]) -> float:
    deviation = max(statistics.stdev(rest), LEAST_DEVIATION) * math.sqrt(1 + 1 / len(rest))
    return min(1.0, 2 * student_tail(abs(own - statistics.fmean(rest)) / deviation, len(rest) - 1) * (len(rest) + 1))


def _rates(found: Mapping[str, Sequence[RunFacts]], name: str) -> dict[str, float]:
    """By what logarithm a GPU's rate is above the model's median."""
    rates = {
        uuid: math.log(statistics.median(measured))
        for uuid, runs in found.items()
        if (measured := [run.rates[name] for run in runs if name in run.rates])
    }
    middle = statistics.median(rates.values()) if rates else 0.0
    return {uuid: rate - middle for uuid, rate in rates.items()}


def _slower(found: Mapping[str, Sequence[RunFacts]]) -> dict[str, float]:
    """By what logarithm a GPU's times are longer than the model's median, where others have timed the same commit."""
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for uuid, runs in found.items():
        for run in runs:
            for name, figures in run.figures.items():
                if figures.get("time", 0) > 0:
                    times.setdefault((run.sha, name), {}).setdefault(uuid, []).append(figures["time"])
    shared = [
        {uuid: math.log(statistics.median(values)) for uuid, values in by_gpu.items()}
        for by_gpu in times.values()
        if len(by_gpu) > 1
    ]
    return _effects(shared)


def _effects(shared: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What each GPU adds to the logarithm of a time. Each of `shared` are those of the GPUs that timed the same thing:
    not always the same ones, so that what the others there add is taken off before they are compared."""
    uuids = sorted({uuid for each in shared for uuid in each})
    if not uuids:
        return {}
    number = {uuid: place for place, uuid in enumerate(uuids)}
    what = np.array([place for place, each in enumerate(shared) for _ in each])
    gpu = np.array([number[uuid] for each in shared for uuid in each])
    times = np.array([value for each in shared for value in each.values()])
    of_each, found = np.bincount(what), np.zeros(len(uuids))
    for _ in range(ROUNDS):
        level = np.bincount(what, times - found[gpu]) / of_each
        left = times - level[what]
        medians = np.array([np.median(left[gpu == place]) for place in range(len(uuids))])
        found = medians - np.median(medians)
    return dict(zip(uuids, found.tolist(), strict=True))


def _other_bits(found: Mapping[str, Sequence[RunFacts]]) -> Counter[str]:
    """How many outputs of each GPU are not those of the majority, from the same commit and seed."""
    seen: dict[tuple[str, int, str, str], dict[str, set[str]]] = {}
    for uuid, runs in found.items():
        for run in runs:
            for name, bits in run.bits.items():
                seen.setdefault((run.sha, run.seed, run.schedule, name), {}).setdefault(bits, set()).add(uuid)
    odd: Counter[str] = Counter()
    for by_bits in seen.values():
        most, *others = sorted(by_bits.values(), key=len, reverse=True)
        for uuids in others:
            if len(uuids) < len(most):
                odd.update(uuids)
    return odd
