"""Whether two runs were judged alike: by the same files, the same gates, the same guard and as large a suite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.judge.limits import Limit
from fmha.harness.judge.status import Status

MOST_NAMED = 6
Pairs = Iterable[tuple[ConfigurationRecord, ConfigurationRecord]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One respect in which the later run was judged otherwise. `laxer` when it could hide what the earlier showed."""

    subject: str
    what: str
    before: float | str | None
    after: float | str | None
    text: str
    laxer: bool = True


def differences(base: RunRecord, new: RunRecord, pairs: Pairs, missing: Iterable[str]) -> Iterator[Difference]:
    """`pairs` are the configurations of both, `missing` the ids of `base` that `new` was asked for and lacks."""
    common = list(pairs)
    yield from _files(base, new)
    yield from _gates(base, new, common)
    yield from _guard(common)
    yield from _profiles(common)
    gone = list(missing)
    if gone and (base.selection.suite == new.selection.suite or new.selection.suites):
        text = f"suite {new.selection.suite} has lost {len(gone)} configuration(s): {named(gone)}"
        yield Difference("suite", "configurations", len(common) + len(gone), len(common), text)


def named(names: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more


def _files(base: RunRecord, new: RunRecord) -> Iterator[Difference]:
    a, b = base.judge, new.judge
    if a is None or b is None:
        if a is not b:
            text = f"the {'earlier' if a is None else 'later'} run does not say by what it was judged"
            yield Difference("unknown", "files", None, None, text, laxer=False)
        return
    if a.digest != b.digest:
        names = sorted(name for name in a.files.keys() | b.files.keys() if a.files.get(name) != b.files.get(name))
        yield Difference("changed", "files", a.digest[:12], b.digest[:12], named(names))


def _profiles(pairs: Pairs) -> Iterator[Difference]:
    """Lenient rules leave out what strict ones report. Only the emulator has either, and counts instructions."""
    moved: dict[tuple[str, str], list[str]] = {}
    for a, b in pairs:
        if "warp_instructions" in a.stats and "warp_instructions" in b.stats:
            rules = str(a.stats.get("profile", "strict")), str(b.stats.get("profile", "strict"))
            moved.setdefault(rules, []).append(b.id)
    for (before, after), ids in moved.items():
        if before != after:
            what = f"judged by the {after} rules, no longer by the {before}"
            text = f"{len(ids)} configuration(s) are {what}: {named(ids)}"
            yield Difference("profile", "rules", before, after, text, laxer=after == "lenient")


def _gates(base: RunRecord, new: RunRecord, pairs: Pairs) -> Iterator[Difference]:
    """One a gate that moved alike, with the configurations it moved for."""
    found: dict[tuple[str, Limit, Limit | None], list[str]] = {}
    for a, b in pairs:
        if a.limits is None or b.limits is None or b.status is Status.NOT_RUN:
            continue  # that it was not run is told; no gate was put to it
        before, after = base.limits[a.limits], new.limits[b.limits]
        for name, limit in before.items():
            if after.get(name) != limit:
                found.setdefault((name, limit, after.get(name)), []).append(a.id)
    for (name, limit, other), ids in found.items():
        moved = "is gated no more" if other is None else f"-> {other.limit:g}"
        text = f"{name} {limit.bound} {limit.limit:g} {moved} in {len(ids)} configuration(s): {named(ids)}"
        value = None if other is None else other.limit
        yield Difference(f"gate {name}", name, limit.limit, value, text, laxer=_laxer(limit, other))


def _laxer(limit: Limit, other: Limit | None) -> bool:
    if other is None or other.bound != limit.bound:
        return True
    # `not`: a limit that is no number holds nothing.
    if limit.bound == "at least":
        return not other.limit >= limit.limit
    return not other.limit <= limit.limit


def _guard(pairs: Pairs) -> Iterator[Difference]:
    dropped = [a.id for a, b in pairs if a.guard and not b.guard and b.status is not Status.NOT_RUN]
    if dropped:
        yield Difference("guard", "guard", len(dropped), 0, f"is not {named(dropped)} any more")
