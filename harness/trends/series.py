"""Series over commits: one for each configuration or variant, figure and line, with the steps in it.

A *line* is what can be compared with itself: a host, its GPU, and the schedule.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from fmha.harness.evidence.story import Axes, Group, axes_of, grouped
from fmha.harness.judge.comparison.comparison import Kind, Regression
from fmha.harness.judge.comparison.noise import LEAST_DEVIATION
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status
from fmha.harness.trends.ancestry import ListedCommit
from fmha.harness.trends.extract import BOX_RATES, RunFacts
from fmha.harness.trends.modelled_times import FIGURE, Times
from fmha.harness.trends.steps import LevelStep, exact_steps, steps

ALARMS = 1e-3  # sites that show a step where there is none, if noise is normal
FAILED = "failed"  # 1 where any run did not pass
TIMES = frozenset({"time", *BOX_RATES})
NOISY = frozenset({*METRICS, *TIMES, "build_seconds"})  # everything else is counted
FLOOR = {"time": 1e-9, "build_seconds": 0.1} | dict.fromkeys(BOX_RATES, 1.0)  # seconds; bytes, operations
DEVIATION = dict.fromkeys(TIMES, 0.002) | {"build_seconds": 0.1}  # of their logarithms; of errors it is the noise's


@dataclass(frozen=True, slots=True)
class Series:
    """Values at places among the commits; `steps` are places in `at`."""

    subject: str
    figure: str
    line: str
    at: tuple[int, ...]
    values: tuple[float, ...]
    steps: tuple[LevelStep, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What changed at a commit on one line, for the worse or for the better; `chance` is of the surest of its steps."""

    place: int
    unknown: int  # commits before it that were not run on this line, and may be the ones
    line: str
    group: Group
    worse: bool
    chance: float
    links: tuple[tuple[str, str], ...]  # subject, figure: the largest first


@dataclass(frozen=True, slots=True)
class Trends:
    """What the archive says over commits: series of figures and where they step."""

    commits: Sequence[ListedCommit]
    runs: Sequence[RunFacts]
    lines: tuple[str, ...]
    series: Sequence[Series]
    changes: Sequence[Change]
    tested: int  # series in which a step was looked for among noise


def line_of(run: RunFacts) -> str:
    """The line of a run: its host with its GPU, and the schedule unless that is the usual one."""
    words = run.host if not run.gpu else f"{run.host}, {run.gpu} {run.uuid[-6:]}"
    return words if run.schedule == "realistic" else f"{words}, {run.schedule}"


def line_of_model(run: RunFacts) -> str:
    """That of all boxes of its GPU's model, on which what a box does in a time is compared."""
    return f"{run.gpu}, any box"


def trends(runs: Sequence[RunFacts], commits: Sequence[ListedCommit], times: Sequence[Times] = ()) -> Trends:
    """All series of the runs of whole commits, and of their modelled times. `commits` has every commit of them."""
    places = {commit.sha: place for place, commit in enumerate(commits)}
    clean = [run for run in runs if not run.dirty]
    points = _points(clean, places) | _modelled(times, places)
    noisy = sum(figure in NOISY for _, figure, _ in points)
    series = [one_series(*key, found, ALARMS / max(noisy, 1)) for key, found in sorted(points.items())]
    told = [*(item.axes for item in times), *(run.axes for run in clean)]
    parameters = {name: values for each in told for name, values in each.items()}
    axes = {name: axes_of(values) for name, values in parameters.items()}
    changes = sorted(_changes(series, axes), key=lambda item: (-item.place, item.line, not item.worse))
    lines = tuple(name for name, _ in Counter(line_of(run) for run in clean).most_common())
    lines += tuple(dict.fromkeys(line_of_model(run) for run in clean if run.rates and run.gpu))
    lines += tuple(dict.fromkeys(item.line for item in times))
    return Trends(commits, runs, lines, series, changes, noisy)


def _points(runs: Sequence[RunFacts], places: Mapping[str, int]) -> dict[tuple[str, str, str], dict[int, float]]:
    """The median over the runs of a commit; of what is counted, those of the seed that the line has most often."""
    seeds: dict[str, Counter[int]] = {}
    for run in runs:
        seeds.setdefault(line_of(run), Counter())[run.seed] += 1
    usual = {line: counts.most_common(1)[0][0] for line, counts in seeds.items()}
    found: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for run in runs:
        line, place = line_of(run), places[run.sha]
        its_own = run.seed == usual[line]
        for subject, figures in (*run.figures.items(), *run.variants.items()):
            counted = its_own or subject in run.variants
            for figure, value in figures.items():
                if counted or figure in NOISY:
                    of = line_of_model(run) if figure in BOX_RATES and run.gpu else line
                    found[subject, figure, of].append((place, value))
        for name, status in run.status.items():
            if status != Status.NOT_RUN:
                found[name, FAILED, line].append((place, float(status != Status.PASS)))
    return {key: _by_place(key[1], points) for key, points in found.items()}


def _modelled(times: Sequence[Times], places: Mapping[str, int]) -> dict[tuple[str, str, str], dict[int, float]]:
    found: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for item in sorted(times, key=lambda item: places[item.sha]):
        for name, seconds in item.seconds.items():
            found[name, FIGURE, item.line][places[item.sha]] = seconds
    return found


def _by_place(figure: str, points: list[tuple[int, float]]) -> dict[int, float]:
    points.sort(key=itemgetter(0))
    single = dict(points)
    if len(single) == len(points):
        return single
    middle = max if figure == FAILED else statistics.median
    return {place: middle([value for _, value in same]) for place, same in groupby(points, key=itemgetter(0))}


def one_series(subject: str, figure: str, line: str, found: Mapping[int, float], most_chance: float) -> Series:
    """The series of values by place, with the steps that chance makes with at most `most_chance`."""
    at, values = tuple(found), tuple(found.values())
    if len(set(values)) < 2:
        return Series(subject, figure, line, at, values, ())
    if figure not in NOISY:
        return Series(subject, figure, line, at, values, tuple(exact_steps(values)))
    floor = METRICS[figure].floor if figure in METRICS else FLOOR[figure]
    scaled = [math.log(max(value, 0.0) + floor) if math.isfinite(value) else math.inf for value in values]
    top = max((value for value in scaled if math.isfinite(value)), default=0.0) + math.log(1e3)
    known = [value if math.isfinite(value) else top for value in scaled]  # what is no number is far worse than any
    steps_of = steps(known, DEVIATION.get(figure, LEAST_DEVIATION), most_chance)
    levels = tuple(
        LevelStep(step.at, math.exp(step.before) - floor, math.exp(step.after) - floor, step.chance)
        for step in steps_of
    )
    return Series(subject, figure, line, at, values, levels)


def _changes(series: Sequence[Series], axes: Mapping[str, Axes]) -> Iterator[Change]:
    """The steps at a commit, put together by what the configurations have in common."""
    found: dict[tuple[int, str, bool], list[tuple[Series, LevelStep]]] = {}
    for item in series:
        for step in item.steps:
            found.setdefault((item.at[step.at], item.line, step.after > step.before), []).append((item, step))
    for (place, line, worse), those in found.items():
        universe = {
            item.subject: axes[item.subject]
            for item in series
            if item.line == line and item.subject in axes and item.at[0] <= place <= item.at[-1]
        }
        chances = {(item.subject, item.figure): step.chance for item, step in those}
        between = {(item.subject, item.figure): place - item.at[step.at - 1] - 1 for item, step in those}
        told = [_told(item, step, axes) for item, step in those]
        for group in grouped(told, universe):
            names = [(item.subject, item.what) for item in group.regressions]
            unknown = min(between[name] for name in names)
            yield Change(place, unknown, line, group, worse, min(chances[name] for name in names), tuple(names))


def _told(item: Series, step: LevelStep, axes: Mapping[str, Axes]) -> Regression:
    kind, before, after = _kind(item, axes), step.before, step.after
    if kind is Kind.STATUS:
        words = ("pass", "fail") if after > before else ("fail", "pass")
        return Regression(kind, item.subject, item.figure, *words, "")
    if item.figure == "cosine":  # of which a regression has the value, and not the error
        before, after = 1 - before, 1 - after
    return Regression(kind, item.subject, item.figure, before, after, "")


def _kind(item: Series, axes: Mapping[str, Axes]) -> Kind:
    if item.figure == FAILED:
        return Kind.STATUS
    if item.figure in TIMES:
        return Kind.SPEED
    if item.figure == "build_seconds":
        return Kind.BUILD
    if item.subject not in axes:
        return Kind.RESOURCES
    return Kind.NUMBERS if item.figure in METRICS else Kind.COUNTERS
