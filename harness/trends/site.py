"""The site: pages over commits that open from a file and behind any web server. docs/use/trends.md says what is on
them.

What a page shows of records is escaped by the template; what the one script shows of them it sets as text. Addresses
stay: a commit's page is `commit/SHA.html`, a series is `trends.html#CONFIGURATION/FIGURE`.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from fmha.harness import archive
from fmha.harness.evidence.story import name_of
from fmha.harness.judge.metrics import METRICS
from fmha.harness.report.details import anchor_of
from fmha.harness.text import shown
from fmha.harness.trends.baselines import Baseline
from fmha.harness.trends.extract import RunFacts
from fmha.harness.trends.gpu_outliers import ComparedGpu
from fmha.harness.trends.series import Change, Series, Trends, line_of

MOST_CHANGES = 100  # on the first page; a commit's page has all of its own
MOST_LINKS = 6
ASSETS = ("uplot.js", "uplot.css", "uplot.LICENSE", "trends.js", "site.css")
_COLOURS = {"PASS": "brightgreen", "INFRASTRUCTURE": "yellow", "INCOMPLETE": "yellow"}


@dataclass(frozen=True, slots=True)
class Written:
    """How many files there are, how many of them are new or another, and their bytes."""

    files: int
    changed: int
    size: int


@dataclass(frozen=True, slots=True)
class Content:
    """All that a site is made of."""

    trends: Trends
    baselines: Sequence[Baseline]
    gpus: Sequence[ComparedGpu]
    unreadable: Mapping[str, str]
    latest: str = ""  # the newest run's report, as HTML
    within: Mapping[str, str] = field(default_factory=dict)  # how far a line of modelled times may be off, by line
    against: Mapping[str, str] = field(default_factory=dict)  # by run, what is worse in it than in its baseline


def write(folder: Path, content: Content) -> Written:
    """The whole site. A file whose content is what it was is left alone. Raises InfrastructureError."""
    count = changed = size = 0
    for name, text in _pages(content):
        data = text.encode("utf-8", "replace")
        path = folder / name
        before = None
        with contextlib.suppress(FileNotFoundError):
            before = path.read_bytes()
        if before != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            archive.replace(data, path)
            changed += 1
        count, size = count + 1, size + len(data)
    return Written(count, changed, size)


def _pages(content: Content) -> Iterator[tuple[str, str]]:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fmha.harness.trends"),
        autoescape=True,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"sure": sure, "figure": name_of, "anchor": anchor_of, "changes": counted}
    static = files("fmha.harness.trends") / "static"
    for name in ASSETS:
        yield f"assets/{name}", (static / name).read_text(encoding="utf-8")
    style = files("fmha.harness.report") / "templates" / "style.css"
    yield "assets/style.css", style.read_text(encoding="utf-8")
    yield ".nojekyll", ""
    yield from _badge(content)
    if content.latest:
        yield "latest.html", content.latest
    fields = _fields(content)
    for page in ("index", "commits", "trends"):
        yield f"{page}.html", environment.get_template(f"{page}.html.j2").render(fields | {"up": "", "page": page})
    template = environment.get_template("commit.html.j2")
    for row in fields["rows"]:
        yield f"commit/{row['commit'].sha}.html", template.render(row | {"up": "../", "page": "", "most": MOST_LINKS})
    yield from _data(content)


def _fields(content: Content) -> dict[str, Any]:
    trends = content.trends
    runs: dict[str, list[RunFacts]] = {}
    for run in trends.runs:
        runs.setdefault(run.sha, []).append(run)
    changes: dict[int, list[Change]] = {}
    for change in trends.changes:
        changes.setdefault(change.place, []).append(change)
    accepted: dict[str, list[Baseline]] = {}
    for item in content.baselines:
        accepted.setdefault(item.sha, []).append(item)
    commits = trends.commits
    rows = [
        {
            "commit": commit,
            "runs": [(run, line_of(run)) for run in runs.get(commit.sha, [])],
            "word": _worst(runs.get(commit.sha, []), changes.get(place, []), content.against),
            "changes": changes.get(place, []),
            "accepted": accepted.get(commit.sha, []),
            "before": commits[place - 1] if place else None,
            "after": commits[place + 1] if place + 1 < len(commits) else None,
        }
        for place, commit in enumerate(commits)
    ]
    newest = rows[-1]
    return {
        "trends": trends,
        "rows": rows,
        "newest": newest,
        "against": [content.against[run.name] for run in runs.get(commits[-1].sha, []) if run.name in content.against],
        "shown": trends.changes[:MOST_CHANGES],
        "more": len(trends.changes) - MOST_CHANGES,
        "worse": sum(change.worse for change in trends.changes),
        "baselines": content.baselines,
        "places": {commit.sha for commit in commits},
        "gpus": content.gpus,
        "unreadable": content.unreadable,
        "latest": bool(content.latest),
        "within": content.within,
        "most": MOST_LINKS,
        "subjects": len({item.subject for item in trends.series}),
    }


def _worst(runs: Iterable[RunFacts], changes: Iterable[Change], against: Mapping[str, str]) -> str:
    """The gravest word on a commit. Runs that pass by themselves have regressed all the same where something is worse
    than in the commits before, or than in the baseline."""
    order = ("FAIL", "REGRESSED", "INFRASTRUCTURE", "INCOMPLETE", "PASS", "-")
    words = [_word(run, against) for run in runs] or ["-"]
    words += ["REGRESSED"] if any(change.worse for change in changes) else []
    return min(words, key=lambda word: order.index(word) if word in order else 0)


def _word(run: RunFacts, against: Mapping[str, str]) -> str:
    return "REGRESSED" if run.word == "PASS" and run.name in against else run.word


def counted(changes: Sequence[Change]) -> str:
    """How many there are each way."""
    worse = sum(change.worse for change in changes)
    parts = [(worse, "worse"), (len(changes) - worse, "better")]
    told = [f"{count} {'change' if count == 1 else 'changes'} for the {way}" for count, way in parts if count]
    return " and ".join(told)


def sure(chance: float) -> str:
    """How sure a step is, in words."""
    if chance <= 0:
        return "counted, no noise"
    digits = -int(f"{chance:.0e}".partition("e")[2])
    return f"by chance once in 1e{digits}" if digits > 3 else f"{1 - chance:.4%} sure"


def _badge(content: Content) -> Iterator[tuple[str, str]]:
    run = content.trends.runs[-1]
    word = _word(run, content.against)
    message = html.escape(f"{word} {run.passed} of {run.total}")
    colour = _COLOURS.get(word, "red")
    endpoint = {"schemaVersion": 1, "label": "fmha", "message": message, "color": colour}
    yield "badge.json", json.dumps(endpoint) + "\n"
    fills = {"brightgreen": "#0f6b32", "yellow": "#6b4e00", "red": "#b3261e"}
    left, right = 44, 16 + 7 * len(message)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="fmha: {message}"><title>fmha: {message}</title>'
        f'<rect width="{left}" height="20" fill="#3a4654"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{fills[colour]}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">fmha</text><text x="{left + right / 2}" y="14">{message}</text></g></svg>\n'
    )
    yield "badge.svg", picture


def _data(content: Content) -> Iterator[tuple[str, str]]:
    """What the script draws. Scripts and not JSON: a page that was opened from a file may load nothing else."""
    trends = content.trends
    by_subject: dict[str, list[Series]] = {}
    for item in trends.series:
        by_subject.setdefault(item.subject, []).append(item)
    places = {commit.sha: place for place, commit in enumerate(trends.commits)}
    figures = {item.figure: [name_of(item.figure), item.figure in METRICS] for item in trends.series}
    index = {
        "commits": [[item.sha, item.subject[:100], item.when[:10], " ".join(item.tags)] for item in trends.commits],
        "lines": list(trends.lines),
        "figures": figures,
        "subjects": [[name, anchor_of(name)] for name in sorted(by_subject, key=_readable)],
        "first": _first(trends),
        "baselines": [[places[item.sha], item.name, item.why] for item in content.baselines if item.sha in places],
    }
    yield "data/index.js", _call("fmhaIndex", index)
    numbers = {line: place for place, line in enumerate(trends.lines)}
    for name, items in by_subject.items():
        series = [
            [item.figure, numbers[item.line], _ranges(item.at), _runs(item.values), _steps(item)] for item in items
        ]
        yield f"data/{anchor_of(name)}.js", _call("fmhaSubject", {"name": name, "series": series})


def _readable(name: str) -> tuple[bool, int, str]:
    """Configurations by size of name, so that the plain ones come first, then variants."""
    return not name.startswith("hd"), len(name), name


def _first(trends: Trends) -> list[str]:
    """What is shown to who asks for nothing: the newest change, else any error."""
    for change in trends.changes:
        return list(change.links[0])
    known = [item for item in trends.series if item.figure in METRICS] or list(trends.series)
    return [known[0].subject, known[0].figure] if known else ["", ""]


def _ranges(places: Sequence[int]) -> list[int]:
    """First and last place of each stretch without a gap, one after the other."""
    found: list[int] = []
    for place in places:
        if found and found[-1] == place - 1:
            found[-1] = place
        else:
            found += [place, place]
    return found


def _runs(values: Sequence[float]) -> list[Any]:
    """Values; what repeats as `[value, how often]`."""
    found: list[Any] = []
    counted = [(_short(value), sum(1 for _ in same)) for value, same in itertools.groupby(values)]
    for drawn, parts in itertools.groupby(counted, key=lambda part: part[0]):  # several may be drawn as one
        count = sum(count for _, count in parts)
        found.append([drawn, count] if count > 1 else drawn)
    return found


def _short(value: float) -> float | int | None:
    """As many digits as are drawn; None for what is no number."""
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else float(f"{value:.4g}")


def _steps(item: Series) -> list[Any]:
    return [
        [item.at[step.at], _short(step.before), _short(step.after), int(step.after > step.before), sure(step.chance)]
        for step in item.steps
    ]


def _call(name: str, data: Any) -> str:
    return f"{name}({json.dumps(data, separators=(',', ':'), allow_nan=False)});\n"
