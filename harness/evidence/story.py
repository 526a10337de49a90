"""What changed between two runs, as a person would say it: regressions grouped by what their configurations share.

A group is described by the smallest filter that covers it, which is also what `--filter` takes to run it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.config.filters import KEYS
from fmha.harness.judge.comparison.comparison import Comparison, Kind, Regression
from fmha.harness.judge.configuration import DEFAULTS
from fmha.harness.judge.metrics import METRICS
from fmha.harness.judge.status import Status

MOST_KEYS = 3  # of a filter: what takes more is no longer one thing that the cases have in common
MOST_VALUES = 4  # of a key that are read out one by one
LEAST_SHARE = 0.75  # of a filter's configurations that have to be cases, or the cases are told in parts
LEAST_PART = 3
BY_CHANCE = 0.02  # that all cases share a value although it is none of their cause: then the filter does without it
MOST_CLAUSES = 3  # of the sentence
MOST_NAMED = 3
MOST_LINES = 3  # of a group, one by one
MOST_WORDS = 160  # characters of somebody else's words
# What is told first: what is wrong before what grew, and who judges only after what was judged.
_ORDER = (
    Kind.STATUS,
    Kind.HAZARD,
    Kind.NOT_RUN,
    Kind.NUMBERS,
    Kind.RESOURCES,
    Kind.COUNTERS,
    Kind.SPEED,
    Kind.BUILD,
    Kind.JUDGE,
    Kind.HASH,
)
_WHERE = {"head_dim": "head_dim {}", "t": "T = {}", "s_k": "s_k = {}", "mask": "mask {}"}

_SIZES = frozenset({"hd", "t", "sk"})
_FAILS = {
    Status.FAIL: "fail",
    Status.HAZARD: "have a hazard",
    Status.TIMEOUT: "run out of time",
    Status.CRASH: "crash",
    Status.BUILD_ERROR: "do not build",
    Status.ADAPTER_ERROR: "have an adapter that fails",
    Status.INFRA_ERROR: "could not be run",
}

Value = int | str
Axes = Mapping[str, Value]
Pair = tuple[ConfigurationRecord, ConfigurationRecord | None]


@dataclass(frozen=True, slots=True)
class Where:
    """A filter that covers some configurations. `count` of the `total` that it accepts are meant."""

    terms: Mapping[str, tuple[Value, ...]]
    count: int
    total: int
    words: str  # for example `head_dim 256, mask causal`; empty for everything

    @property
    def filter(self) -> str:
        """As `--filter` takes it."""
        return ",".join(f"{key}={'|'.join(map(str, values))}" for key, values in self.terms.items())


@dataclass(frozen=True, slots=True)
class Group:
    """Regressions of one kind in the same configurations. `whats` are their metrics or rules, the worst first;
    `where` is None for what is not a configuration's."""

    kind: Kind
    whats: tuple[str, ...]
    regressions: tuple[Regression, ...]
    where: Where | None
    text: str  # the clause


def axes_of(parameters: Mapping[str, Any]) -> dict[str, Value]:
    """What a filter may name of a configuration with these parameters: the key and its value."""
    given = {name: value for name, value in parameters.items() if isinstance(value, int | str)}
    if "kernel" in given:
        return given
    return {key: given.get(name, DEFAULTS.get(name, 0)) for key, name in KEYS.items()}


def paired(comparison: Comparison, base: RunRecord, new: RunRecord) -> dict[str, Pair]:
    """Each configuration that is told of, as it was and as it is: those of both runs, and those that are gone."""
    gone = {item.subject for item in comparison.regressions if item.kind is Kind.NOT_RUN}
    after = {item.id: item for item in new.configurations}
    return {a.id: (a, after.get(a.id)) for a in base.configurations if a.id in after or a.id in gone}


def tell(comparison: Comparison, base: RunRecord, new: RunRecord) -> tuple[Group, ...]:
    """The regressions as groups, what matters most first."""
    pairs = paired(comparison, base, new)
    return grouped(comparison.regressions, {name: axes_of(a.parameters.model_dump()) for name, (a, _) in pairs.items()})


def grouped(regressions: Iterable[Regression], universe: Mapping[str, Axes]) -> tuple[Group, ...]:
    """Regressions, or changes for the better, of configurations of a universe and of what else there is; what matters
    most first. Those of one call go one way."""
    found: dict[tuple[Kind, str], list[Regression]] = {}
    for item in regressions:
        what = _cause(item) if item.kind is Kind.STATUS else item.what
        found.setdefault((item.kind, what), []).append(item)
    parts: dict[tuple[Kind, frozenset[str], str], list[tuple[str, list[Regression], Where | None]]] = {}
    for (kind, what), items in found.items():
        cases = [item for item in items if item.subject in universe]
        for where, ids in _covers({item.subject for item in cases}, universe):
            mine = [item for item in cases if item.subject in ids]
            together = where.filter if kind in (Kind.NUMBERS, Kind.COUNTERS) else what
            key = (kind, frozenset() if where.terms else frozenset(ids), together)
            parts.setdefault(key, []).append((what, mine, where))
        if others := [item for item in items if item.subject not in universe]:
            variants = frozenset(item.subject for item in others if kind is Kind.RESOURCES)
            parts.setdefault((kind, variants, f"\0{'' if variants else what}"), []).append((what, others, None))
    groups = [_group(key[0], part) for key, part in parts.items()]
    return tuple(sorted(groups, key=lambda group: (_ORDER.index(group.kind), -_weight(group))))


def sentence(groups: Sequence[Group], compared: int, unasked: int = 0) -> str:
    """All of it in one sentence; `unasked` configurations of the earlier run were not asked for."""
    apart = f", all that was asked for; {unasked} more were not asked for" if unasked else ""
    if not groups:
        return f"Nothing got worse in {compared} configurations{apart}"
    clauses = [group.text for group in groups if not any(_follows(group, other) for other in groups)]
    told = "; ".join(clauses[:MOST_CLAUSES])
    more = len(clauses) - MOST_CLAUSES
    rest = f"and {more} more {'changes' if more > 1 else 'change'}" if more > 0 else "nothing else got worse"
    if more <= 0 and any(_withheld(group) for group in groups):
        rest = "nothing else was run"
    elif unasked:
        rest += f"; {unasked} more configurations were not asked for"
    named = "_" in told.split(" ")[0]  # a configuration's name is no word
    return f"{told if named else told[0].upper() + told[1:]}; {rest}"


def lines(groups: Sequence[Group], whole: str) -> Iterator[tuple[Group, str]]:
    """Each group's clause, with the filter that runs it again, and the first of its regressions, indented, unless the
    clause says all of them: one cause may have hundreds, and `whole` is the command that shows them."""
    for group in groups:
        again = f" --filter '{group.where.filter}'" if group.where and group.where.filter else ""
        yield group, f"{group.kind}: {group.text}{again}"
        if _says_all(group):
            continue
        for item in group.regressions[:MOST_LINES]:
            yield group, f"  {item}"
        if len(group.regressions) > MOST_LINES:
            yield group, f"  and {len(group.regressions) - MOST_LINES} more; {whole} shows them"


def told_fields(groups: Sequence[Group], compared: int, unasked: int = 0) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "sentence": sentence(groups, compared, unasked),
        "groups": [
            {
                "kind": group.kind,
                "whats": list(group.whats),
                "text": group.text,
                "filter": group.where.filter if group.where else None,
                "subjects": list(dict.fromkeys(item.subject for item in group.regressions)),
            }
            for group in groups
        ],
    }


def factor_of(item: Regression) -> float | None:
    """By what factor something grew; None for what has no size."""
    if isinstance(item.before, str) or isinstance(item.after, str) or item.before is None or item.after is None:
        return None
    metric = METRICS.get(item.what)
    before, after = (metric.error(value) if metric else value for value in (item.before, item.after))
    if not math.isfinite(after):
        return math.inf
    return after / before if before > 0 else math.inf


def _follows(group: Group, other: Group) -> bool:
    """Whether the group says nothing that the other one has not said: where a configuration fails its numbers are
    worse, where numbers are others the bits are, where a hazard is new it fails, and a suite is smaller by what is not
    run any more."""
    if (other.kind, group.kind) == (Kind.NOT_RUN, Kind.JUDGE):
        return group.whats == ("configurations",)
    leads = {
        Kind.STATUS: (Kind.HAZARD,),
        Kind.NUMBERS: (Kind.STATUS,),
        Kind.HASH: (Kind.STATUS, Kind.NUMBERS, Kind.HAZARD),
    }
    if other.kind not in leads.get(group.kind, ()) or group.where is None or other.where is None:
        return False
    mine, theirs = ({item.subject for item in each.regressions} for each in (group, other))
    return mine <= theirs or (bool(group.where.terms) and group.where.terms == other.where.terms)


def _covers(cases: set[str], universe: Mapping[str, Axes]) -> Iterator[tuple[Where, set[str]]]:
    """Filters that cover the cases, with those that each is for: one if it is to the point, else the largest parts."""
    rest = set(cases)
    while rest:
        where = _cover(rest, universe)
        loose = all(len(values) > 1 for values in where.terms.values())
        if loose and where.count < LEAST_SHARE * where.total and (part := _largest_part(rest, universe)):
            yield _cover(part, universe), part
            rest -= part
            continue
        yield where, set(rest)
        return


def _cover(cases: set[str], universe: Mapping[str, Axes]) -> Where:
    """The filter of fewest keys that accepts all of the cases and as little else as MOST_KEYS keys can do."""
    values = {
        key: frozenset(universe[name][key] for name in cases)
        for key in next(iter(universe.values()))
        if all(key in axes for axes in universe.values())
    }
    terms: dict[str, frozenset[Value]] = {}
    accepted = set(universe)
    while len(accepted) > len(cases) and len(terms) < MOST_KEYS:
        kept = {
            key: {name for name in accepted if universe[name][key] in those}
            for key, those in values.items()
            if key not in terms and (len(those) <= MOST_VALUES or _span(those, _all(key, universe)))
        }
        # One value says more than several. Beside it those are worth their words only where nothing else is left.
        telling = [key for key in kept if len(values[key]) == 1 or not terms or len(kept[key]) == len(cases)]
        best = min(
            telling,
            key=lambda key: (len(kept[key]) == len(accepted), len(values[key]) > 1, len(kept[key])),
            default=None,
        )
        if best is None or (len(kept[best]) / len(accepted)) ** len(cases) > BY_CHANCE:
            break
        terms[best], accepted = values[best], kept[best]
    for key in list(terms):  # one that a later one makes needless
        without = {other: those for other, those in terms.items() if other != key}
        if _accepted(without, universe) == accepted:
            terms = without
    ordered = {key: tuple(sorted(terms[key], key=_place)) for key in values if key in terms}
    words = ", ".join(_words(key, those, _all(key, universe)) for key, those in ordered.items())
    return Where(ordered, len(cases), len(accepted), words)


def _accepted(terms: Mapping[str, frozenset[Value]], universe: Mapping[str, Axes]) -> set[str]:
    return {name for name, axes in universe.items() if all(axes[key] in those for key, those in terms.items())}


def _largest_part(cases: set[str], universe: Mapping[str, Axes]) -> set[str] | None:
    """The most cases that have one value in common which hardly any other configuration has."""
    counts: dict[tuple[str, Value], list[str]] = {}
    for name, axes in universe.items():
        for key, value in axes.items():
            counts.setdefault((key, value), []).append(name)
    parts = [
        part
        for names in counts.values()
        if len(part := cases & set(names)) >= max(LEAST_PART, LEAST_SHARE * len(names)) and len(part) < len(cases)
    ]
    return max(parts, key=len, default=None)


def _place(value: Value) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)


def _all(key: str, universe: Mapping[str, Axes]) -> set[Value]:
    return {axes[key] for axes in universe.values()}


def _span(values: Iterable[Value], all_values: Iterable[Value]) -> str:
    """Several numbers with none of `all_values` left out between them, in words; empty for anything else."""
    numbers = sorted(value for value in values if isinstance(value, int))
    known = sorted(value for value in all_values if isinstance(value, int))
    if len(numbers) < 2 or [value for value in known if numbers[0] <= value <= numbers[-1]] != numbers:
        return ""
    if numbers[-1] == known[-1]:
        return f"{numbers[0]} and more"
    if numbers[0] == known[0]:
        return f"{numbers[-1]} and less"
    return f"{numbers[0]} to {numbers[-1]}"


def _words(key: str, values: Sequence[Value], all_values: set[Value]) -> str:
    name = KEYS.get(key, key)
    pattern = _WHERE.get(name, f"{name.replace('_', ' ')} {{}}")
    return pattern.format(_span(values, all_values) or _list([str(value) for value in values], "or"))


def _group(kind: Kind, parts: Sequence[tuple[str, list[Regression], Where | None]]) -> Group:
    """One group of what is in the same places; each part is of another metric."""
    ordered = sorted(parts, key=lambda part: -max((_size(item) for item in part[1]), default=0.0))
    items = tuple(item for _, found, _ in ordered for item in sorted(found, key=lambda item: -_size(item)))
    whats = tuple(what for what, _, _ in ordered)
    where = ordered[0][2]
    text = _resources(ordered) if kind is Kind.RESOURCES else _clause(kind, whats, ordered[0][1], where)
    return Group(kind, whats, items, where, text)


def _size(item: Regression) -> float:
    """By what factor it changed, whichever way."""
    factor = factor_of(item)
    return 1.0 if factor is None else 1.0 / factor if 0 < factor < 1 else factor if factor > 0 else math.inf


def _weight(group: Group) -> float:
    """The number of cases for what has no size, or its largest factor."""
    if group.kind in (Kind.NUMBERS, Kind.COUNTERS, Kind.RESOURCES, Kind.SPEED, Kind.BUILD):
        return max(map(_size, group.regressions))
    return float(len(group.regressions))


def _clause(kind: Kind, whats: Sequence[str], items: Sequence[Regression], where: Where | None) -> str:
    """What the sentence says of a group; `items` are those of the first of `whats`."""
    first = items[0]
    place = _at(items, where)
    match kind:
        case Kind.NUMBERS | Kind.COUNTERS:
            others = [name_of(what) for what in whats[1:]]
            beside = f", with {_list(others)}" if others else ""
            return f"{name_of(whats[0])}{place.near} {_grew(items)}{place.of}{beside}"
        case Kind.BUILD:
            return f"build time {_grew(items)}{place.of}"
        case Kind.SPEED:
            return f"time{place.near} {_grew(items)}{place.of}"
        case Kind.HAZARD:
            word = "hazard" if first.text.startswith("error") else "warning"
            return f"{word} {first.what} is new{place.near}{place.of}"
        case Kind.STATUS if where is None:
            return f"together they are biased: {first.text}"
        case Kind.STATUS:
            return f"{place.whole} {_one(whats[0]) if len(items) == 1 else whats[0]}{_said(items)}"
        case Kind.NOT_RUN:
            return f"{place.whole} {'is' if len(items) == 1 else 'are'} {_gone(items)}"
        case Kind.JUDGE:
            return _judge(items)
    return f"outputs have other bits{place.near}{place.of}"


def _one(words: str) -> str:
    """What several do, said of one."""
    verb, _, rest = words.partition(" ")
    does = {"fail": "fails", "have": "has", "run": "runs", "crash": "crashes", "do": "does", "pass": "passes"}
    return " ".join(filter(None, (does.get(verb, verb), rest)))


def _said(items: Sequence[Regression]) -> str:
    """The words of what ended without numbers: they are the cause."""
    if items[0].after not in (Status.CRASH, Status.BUILD_ERROR, Status.ADAPTER_ERROR, Status.TIMEOUT):
        return ""
    words = [item.text.partition(": ")[2] for item in items]
    first = "first " if len(set(words)) > 1 else ""
    return f": {first}{words[0][:MOST_WORDS]}" if words[0] else ""


def _gone(items: Sequence[Regression]) -> str:
    """Whether it was taken away, cannot be run, or was kept from running by what failed before it."""
    what, text = items[0].what, items[0].text
    if what == "run":
        return f"not run any more: {text.partition(': ')[2][:MOST_WORDS]}"
    return "not run, since the guard, which runs first, failed" if what == "guard" else "gone from the suites"


def _says_all(group: Group) -> bool:
    """Whether its regressions say no more than its clause does: that the guard kept them from running, which files the
    judge has other ones of, or the words with which one configuration ended."""
    first = group.regressions[0]
    if len(group.regressions) == 1 and (group.kind, first.what) == (Kind.JUDGE, "files"):
        return True
    ended = len(group.regressions) == 1 and group.kind is Kind.STATUS and bool(_said(group.regressions))
    return (ended and len(first.text.partition(": ")[2]) <= MOST_WORDS) or _withheld(group)


def _withheld(group: Group) -> bool:
    return group.kind is Kind.NOT_RUN and "guard" in group.whats


def _judge(items: Sequence[Regression]) -> str:
    if items[0].what == "files":
        return f"the judge, which says what is right, has changed: {items[0].text} (read that, then --allow judge)"
    return f"the judge is laxer: {items[0].subject}, {items[0].text}"


def _resources(parts: Sequence[tuple[str, list[Regression], Where | None]]) -> str:
    """What grew in the same variants, in one clause."""
    grew: list[str] = []
    for what, items, _ in parts:
        spans = dict.fromkeys(f"{item.before:.4g} to {item.after:.4g}" for item in items)
        verb = "grew" if _grown(items[0]) else "fell"
        grew.append(f"{what.replace('_', ' ')}{'' if grew else f' {verb}'} from {_list(list(spans), 'or')}")
    return f"{_list(grew)} in {_list([item.subject for item in parts[0][1]])}"


@dataclass(frozen=True, slots=True)
class _Place:
    near: str  # ` at head_dim 256`
    of: str  # ` in 18 of 18 configurations`
    whole: str  # both, for where nothing stands between


def _at(items: Sequence[Regression], where: Where | None) -> _Place:
    subjects = list(dict.fromkeys(item.subject for item in items))
    if where is None or (len(subjects) < LEAST_PART and where.total > len(subjects)):
        return _Place("", f" in {_list(subjects)}", _list(subjects))
    preposition = "at" if where.terms.keys() & _SIZES else "with"
    near = f" {preposition} {where.words}" if where.words else ""
    plural = "configuration" if where.total == 1 else "configurations"
    return _Place(
        near, f" in {where.count} of {where.total} {plural}", f"{where.count} of {where.total} {plural}{near}"
    )


def name_of(what: str) -> str:
    """A metric or counter as a person calls it."""
    return METRICS[what].words if what in METRICS else what.replace("_", " ")


def _grown(item: Regression) -> bool:
    factor = factor_of(item)
    return factor is None or factor >= 1.0


def _grew(items: Sequence[Regression]) -> str:
    factors = [factor for item in items if (factor := factor_of(item)) is not None]
    known = [factor for factor in factors if math.isfinite(factor)]
    if known and len(known) == len(factors) and max(known) < 1.0:
        return _fell(known)
    if not known:
        return "grew from nothing" if all(isinstance(item.after, int) for item in items) else "is no number any more"
    low, high = min(known), max(known)
    if len(known) < len(factors):
        return f"grew {_rounded(high)} times and more"
    if low >= 2.0:
        span = _rounded(low) if _rounded(low) == _rounded(high) else f"{_rounded(low)} to {_rounded(high)}"
        return f"grew {span} times"
    if high >= 2.0:
        return f"grew up to {_rounded(high)} times"
    shares = [_percent(low), _percent(high)]
    return f"grew by {shares[0]}%" if shares[0] == shares[1] else f"grew by {shares[0]} to {shares[1]}%"


def _fell(factors: Sequence[float]) -> str:
    if min(factors) <= 0:
        return "fell to nothing" if max(factors) <= 0 else "fell, some to nothing"
    low, high = 1 / max(factors), 1 / min(factors)
    if low >= 2.0:
        span = _rounded(low) if _rounded(low) == _rounded(high) else f"{_rounded(low)} to {_rounded(high)}"
        return f"fell {span} times"
    shares = [f"{100 * (1 - factor):.2g}" for factor in (max(factors), min(factors))]
    return f"fell by {shares[0]}%" if shares[0] == shares[1] else f"fell by {shares[0]} to {shares[1]}%"


def _percent(factor: float) -> str:
    share = 100.0 * (factor - 1.0)
    return f"{share:.0f}" if share >= 9.5 else f"{share:.1g}"


def _rounded(value: float) -> str:
    """Two digits: 342 is 340."""
    if value < 10:
        return f"{value:.2g}"
    scale = 10 ** (math.floor(math.log10(value)) - 1)
    return f"{round(value / scale) * scale:,}" if value < 1e6 else f"{value:.0e}".replace("e+0", "e")


def _list(names: Sequence[str], last: str = "and") -> str:
    kept = list(dict.fromkeys(names))
    if len(kept) > MOST_NAMED + 1:
        return f"{', '.join(kept[:MOST_NAMED])} and {len(kept) - MOST_NAMED} more"
    return f" {last} ".join(filter(None, (", ".join(kept[:-1]), kept[-1])))


def _cause(item: Regression) -> str:
    """What became of a configuration and why, without the figures, so that cases of one cause are one group."""
    word = next((words for status, words in _FAILS.items() if item.after == status), str(item.after))
    # Before the gate may stand on which inputs it was missed.
    gate = item.text.rpartition(": ")[2].split(" ")[0] if item.after == Status.FAIL else ""
    return f"{word} ({name_of(gate)})" if gate else word
