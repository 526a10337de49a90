"""Report: a run record for a reader, as a table on a terminal and as plain lines anywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fmha.harness.isolate import MECHANISMS
from fmha.harness.judge.comparison.missed import missed
from fmha.harness.judge.gate import HAZARDS
from fmha.harness.judge.status import OF_THE_KERNEL, Status
from fmha.harness.stages.columns import COLUMNS, DISPENSABLE, TIME, cells, microseconds
from fmha.harness.text import cut, fitting, one_line

if TYPE_CHECKING:
    from fmha.harness.archive import RunRecord
    from fmha.harness.archive.record import ConfigurationRecord, Covered
    from fmha.harness.judge.findings import FindingRecord

MOST_ENTRIES, MOST_LINES = 8, 100  # of PTX, whose lines that nothing executed are named; characters of each
MOST_CAUSES = 3
MOST_LINES = 8
MOST_CHANGED = 10
MOST_WAYS = 12  # to fail, of a run
MOST_NAMED = 4

Cause = tuple[str, str, str]  # severity, rule, place

STYLES = {
    Status.PASS: "green",
    Status.FAIL: "red",
    Status.HAZARD: "red",
    Status.TIMEOUT: "red",
    Status.CRASH: "red",
    Status.BUILD_ERROR: "red",
    Status.ADAPTER_ERROR: "red",
    Status.INFRA_ERROR: "yellow",
    Status.NOT_RUN: "yellow",
}


def show(record: RunRecord, path: Path | None, console: Console, *, table: bool = True) -> None:
    """Print the table, what went wrong, where the record is, and the verdict as the last line.

    Without the table there is only what went wrong, and the verdict.
    """
    if table:
        _table(record, console)
    for line, status in _details(record):
        _line(console, line, STYLES[status] if status else "")
    for figure in missed(record):
        _line(console, f"{figure.group}: {figure.text}", STYLES[Status.FAIL])
    for line in (*judge_lines(record), *elsewhere_lines(record)):
        _line(console, line, "yellow")
    measured = any(item.metrics is not None for item in record.configurations)
    if record.selection.drawn is not None and measured and (table or record.verdict.word == "FAIL"):
        _line(console, f"judged on seed {record.selection.drawn} as well, drawn for this run: {again(record)}")
    if table:
        for line in (*_pace(record), *coverage_totals(record), *_never_executed(record)):
            _line(console, line)
        _line(console, _provenance(record))
        if path:
            _line(console, f"archived {os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path}")
    _line(console, verdict_line(record), f"bold {'green' if record.headword == 'PASS' else 'red'}")


def verdict_line(record: RunRecord) -> str:
    """For example `PASS 16 of 16` or `FAIL 14 of 16 passed: 1 fail, 1 hazard`; what regress said of it comes first."""
    words = _verdict_words(record) + leniently(record) + _of_the_machine(record)
    if record.regress and record.regress.regressions:
        words = f"{record.regress.words}; the run by itself: {words}"
    if record.elsewhere:
        words = f"{words}, of what {record.elsewhere.host} says was asked for"
    if not_isolated(record):
        return f"{words} ({record.host.isolation})"
    if record.host.own_harness_outside:
        return f"{words} (by the commit's own harness, which ran on {record.host.name} outside the sandbox)"
    if record.host.own_harness_enclosed:
        return f"{words} (by the commit's own harness)"
    return words


def leniently(record: RunRecord) -> str:
    """Which kernels were held to the lenient profile: there a PASS says less."""
    lenient = (item.parameters.kernel for item in record.configurations if item.lenient)
    kernels = dict.fromkeys(kernel or "attention" for kernel in lenient)
    return f"; lenient rules: {', '.join(kernels)}" if kernels else ""


def _of_the_machine(record: RunRecord) -> str:
    """What kernels read of the machine that ran them: on another one they may compute something else."""
    found = {
        text: variant.name for variant in reversed(record.variants) for text in reversed(variant.special_registers)
    }
    if not found:
        return ""
    (text, name), more = next(reversed(found.items())), len(found) - 1
    others = f" and {more} more" if more else ""
    return f"; {name} reads {text}{others}, which depends on the machine"


def not_isolated(record: RunRecord) -> bool:
    """Whether the commit's code ran with the rights of the account, where that is known."""
    return record.host.isolation not in (None, *MECHANISMS)


def _verdict_words(record: RunRecord) -> str:
    verdict, judge = record.verdict, record.judge
    if judge and judge.changed and not judge.accepted:
        words = "".join(f", {n} {status}" for status, n in verdict.counts.items() if status is not Status.PASS)
        passed = f"{verdict.passed} of {verdict.total} passed{words} by the judge of {(judge.commit or '')[:12]}"
        return f"FAIL the commit changes its own judge, and nobody accepted that; {passed}"
    if verdict.word == "PASS":
        added = any(not item.selected for item in record.configurations)
        return f"PASS {verdict.passed} of {verdict.total}{', the guard among them' if added else ''}"
    if (worse := missed(record)) and verdict.passed == verdict.total:
        more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
        return f"FAIL each of {verdict.total} passed, together they are biased: {worse[0].group}{more}"
    others = ", ".join(f"{count} {status}" for status, count in verdict.counts.items() if status is not Status.PASS)
    only = Status.ADAPTER_ERROR in verdict.counts and not OF_THE_KERNEL & verdict.counts.keys()
    whose = "; the adapter failed, which says nothing of the kernel" if only else ""
    return f"{verdict.word} {verdict.passed} of {verdict.total} passed: {others}{whose}"


def judge_lines(record: RunRecord) -> Iterator[str]:
    """What the commit changes of its own judge and of the rest of the harness; nothing where it changes neither."""
    judge = record.judge
    if judge is None or not (judge.changed or judge.beside):
        return
    commit = (judge.commit or "")[:12]
    if judge.changed:
        yield f"judge changed: {_first(judge.changed)}; the judge of {commit} decided"
        yield f"  accepted: {judge.accepted}" if judge.accepted else "  not accepted; --accept-judge WHY does"
    if judge.beside:
        yield f"harness changed: {_first(judge.beside)}; that of {commit} ran"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_CHANGED} more" if len(names) > MOST_CHANGED else ""
    return ", ".join(names[:MOST_CHANGED]) + more


def elsewhere_lines(record: RunRecord) -> Iterator[str]:
    """What is only the host's word in a run that another checkout has asked for; nothing of any other run."""
    elsewhere = record.elsewhere
    if elsewhere is None:
        return
    judge = f", and that commit {elsewhere.judge[:12]} was to judge" if elsewhere.judge else ""
    yield f"asked for from another checkout: only {elsewhere.host} says what was selected{judge}"


def _table(record: RunRecord, console: Console) -> None:
    columns = COLUMNS
    rows = [cells(item) for item in record.configurations]
    if any(item.timing for item in record.configurations):
        columns = (*columns, TIME)
        rows = [(*row, microseconds(item)) for row, item in zip(rows, record.configurations, strict=True)]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if not console.is_terminal:
        for row in (columns, *rows):
            left = [text.ljust(width) for text, width in zip(row[:2], widths, strict=False)]
            right = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
            _line(console, "  ".join(left + right))
        return
    kept = _fitting(columns, widths, console.width)
    fitted = dict(zip(kept, fitting([widths[at] for at in kept], console.width, 1, range(1, len(kept))), strict=True))
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    for at in kept:
        table.add_column(columns[at], justify="left" if at < 2 else "right", no_wrap=True)
    for row, item in zip(rows, record.configurations, strict=True):
        table.add_row(*(Text(cut(row[at], fitted[at]), STYLES[item.status] if at == 1 else "") for at in kept))
    console.print(table)


def _fitting(columns: Sequence[str], widths: Sequence[int], room: int) -> list[int]:
    """The columns that fit on a terminal; the least telling ones give way."""
    kept = list(range(len(columns)))
    for name in DISPENSABLE:
        if sum(widths[at] + 1 for at in kept) - 1 <= room:
            break
        kept.remove(columns.index(name))
    return kept


def _details(record: RunRecord) -> Iterator[tuple[str, Status | None]]:
    """What is not in the table: what did not pass, the first configuration of each way to fail; the record has all."""
    alike: dict[object, list[ConfigurationRecord]] = {}
    for item in record.configurations:
        if item.status is not Status.PASS:
            alike.setdefault(_what_is_wrong(item), []).append(item)
    for same in list(alike.values())[:MOST_WAYS]:
        first = same[0]
        if first.status in (Status.NOT_RUN, Status.BUILD_ERROR):
            more = f" and {len(same) - MOST_NAMED} more" if len(same) > MOST_NAMED else ""
            yield f"{first.status}: {', '.join(item.id for item in same[:MOST_NAMED])}{more}", first.status
        else:
            more = f" and {len(same) - 1} more" if len(same) > 1 else ""
            yield f"{first.id}{more}: {first.status}", first.status
        for line in _why(first):
            yield f"  {line}", None
    if rest := list(alike.values())[MOST_WAYS:]:
        count = sum(map(len, rest))
        yield f"{count} more configurations failed in {len(rest)} other ways; fmha report shows all of them", None


def _why(item: ConfigurationRecord) -> Iterator[str]:
    for reason in _once(item.reasons):
        yield from _short(reason)
    causes: dict[Cause, list[FindingRecord]] = {}
    for finding in sorted(item.findings, key=lambda finding: finding.severity):
        causes.setdefault(cause_of(finding), []).append(finding)
    for found in list(causes.values())[:MOST_CAUSES]:
        yield from _short(_described(found[0]))
        if calls := found[0].where.get("calls"):
            yield f"  {' < '.join(map(str, calls))}" if isinstance(calls, list) else f"  {calls}"
        if len(found) > 1:
            yield f"  {len(found)} findings of this cause"
    if len(causes) > MOST_CAUSES:
        yield f"{len(causes) - MOST_CAUSES} more causes in the record"


def _once(reasons: Iterable[str]) -> Iterator[str]:
    """What is so on other inputs and under other schedules too is told once, with where: not at the hazard's cost."""
    places: dict[str, list[str]] = {}
    for reason in reasons:
        where, _, what = reason.partition(": ")
        if what in places:
            places[what].append(where.removesuffix(", drawn for this run"))
        else:
            places[reason] = []
    for reason, others in places.items():
        yield reason
        if others:
            yield f"the same {', '.join(others)}"


def cause_of(finding: FindingRecord) -> Cause:
    """Findings of one rule at one line of the kernel have one cause; without a line, at one instruction."""
    return finding.severity, finding.rule, str(finding.where.get("source", finding.where.get("ptx_line", "")))


def _what_is_wrong(item: ConfigurationRecord) -> tuple[object, ...]:
    """Equal for configurations that one report serves: what was missed and broken, not by how much or how often."""
    if item.failed_checks:
        said: object = frozenset(check.name for check in item.failed_checks if check.name != HAZARDS)
    else:
        said = tuple(item.reasons)
    return item.status, said, frozenset(map(cause_of, item.findings))


def _described(finding: FindingRecord) -> str:
    where = ", ".join(f"{key} {value}" for key, value in finding.where.items() if isinstance(value, str | int))
    return f"{finding.severity} {finding.rule}: {finding.message}" + (f" ({where})" if where else "")


def _short(text: str) -> Iterator[str]:
    lines = text.splitlines()
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"{len(lines) - MOST_LINES} more lines in the record"


def _pace(record: RunRecord) -> Iterator[str]:
    """How fast a device that counts its instructions executed them; nothing for others."""
    count, seconds = 0, 0.0
    for item in record.configurations:
        executed, took = item.stats.get("warp_instructions"), item.stats.get("seconds")
        if isinstance(executed, int) and isinstance(took, int | float):
            count += executed
            seconds += took
    if seconds:
        yield f"executed {count:,} warp instructions in {seconds:.2f} s: {count / seconds / 1e6:.2f} million a second"


def coverage_totals(record: RunRecord) -> Iterator[str]:
    """How much was executed of the PTX and of the CUDA source; nothing where it was not asked for."""
    if record.coverage:
        yield f"executed {_share(record.coverage.ptx.values())} lines of PTX"
        yield f"executed {_share(record.coverage.source.values())} lines of CUDA"


def _never_executed(record: RunRecord) -> Iterator[str]:
    """The lines, of source all of them, of PTX the first of the first entries; the record has all."""
    if record.coverage is None:
        return
    for file, part in record.coverage.source.items():
        if part.missing:
            yield f"  {file}: {part.executed} of {part.lines}; never executed: {part.missing}"
    missing = {entry: part for entry, part in record.coverage.ptx.items() if part.missing}
    for entry, part in list(missing.items())[:MOST_ENTRIES]:
        lines, _, more = (
            part.missing[:MOST_LINES].rpartition(", ") if part.missing[MOST_LINES:] else (part.missing, "", "")
        )
        rest = " and more" if more else ""
        yield f"  PTX of {entry}: {part.executed} of {part.lines}; never executed: {lines}{rest}"
    if len(missing) > MOST_ENTRIES:
        yield f"  and of {len(missing) - MOST_ENTRIES} more entries; the record has all"


def _share(parts: Iterable[Covered]) -> str:
    """For example `812 of 870 (93.3%)`."""
    counts = [(part.executed, part.lines) for part in parts]
    executed, lines = sum(count for count, _ in counts), sum(count for _, count in counts)
    return f"{executed:,} of {lines:,} ({100 * executed / lines:.1f}%)"


def again(record: RunRecord) -> str:
    """The command that repeats a run, on the inputs that it drew where it drew some."""
    selection = record.selection
    if selection.suite:
        chosen = [f"--suite {selection.suite}", *([f"--filter '{selection.filter}'"] if selection.filter else [])]
    else:
        chosen = [f"--case {item.id}" for item in record.configurations if item.selected]
    host = [] if record.host.name == "emulator" else [f"--host {record.host.name}"]
    seeds = [f"--seed {selection.seed}", *([] if selection.drawn is None else [f"--drawn {selection.drawn}"])]
    return " ".join(["fmha run-matrix", *host, *chosen, *seeds, f"--schedule {selection.schedule}"])


def _provenance(record: RunRecord) -> str:
    commit, selection = record.commit, record.selection
    files = "1 file differs" if commit.dirty_count == 1 else f"{commit.dirty_count} files differ"
    dirty = f", {files} from it" if commit.dirty else ""
    code = f"no commit, fmha {commit.installed}" if commit.installed else f"commit {commit.sha[:12]}{dirty}"
    suite = f"suite {selection.suite}" if selection.suite else "cases"
    chosen = suite + (f" --filter {selection.filter}" if selection.filter else "")
    return f"{chosen} on {record.host.name}, seed {selection.seed}, {code}"


def _line(console: Console, text: str, style: str = "") -> None:
    """One line as it is: no markup, no wrapping, no control characters."""
    console.print(Text(one_line(text), style), soft_wrap=True)
