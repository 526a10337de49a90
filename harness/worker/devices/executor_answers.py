"""What an executor says, held against what may be said: by then it may be the artefact that speaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fmha.harness.contract.codec import CodecError, decode
from fmha.harness.contract.device import Ceilings, LaunchReport
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.judge.findings import WHERE

MOST_CHARACTERS: Final = 1 << 14  # of one text; a line of PTX has up to some thousand
MOST_DETAILS: Final = 1 << 12  # of one finding; the core keeps a thousand
MOST_STATS: Final = 100
MOST_LINES: Final = 1 << 20  # of code, in all files that one launch's coverage names
LAST_LINE: Final = 1 << 24
MOST_NUMBER: Final = 1 << 63
ADDRESSES: Final = 1 << 64
MOST_RATE: Final = 1e18  # bytes or operations a second

# Of a configuration's counters, what the worker says itself.
_OURS: Final = frozenset({"coverage", "profile", "schedules", "untimed"})


class ExecutorAnswerError(Exception):
    """The executor said what it may not say; the text names the field."""


def integer(value: Any, most: int, what: str) -> int:
    """From 0 to below `most`."""
    if type(value) is not int or not 0 <= value < most:
        raise ExecutorAnswerError(f"{what}: {value!r:.80} is no number from 0 to {most - 1}")
    return value


def text(value: Any, what: str, most: int = MOST_CHARACTERS) -> str:
    """Text of Unicode, which lone surrogates are not: nobody could write it down."""
    if not isinstance(value, str) or len(value) > most:
        raise ExecutorAnswerError(f"{what}: no text of at most {most} characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ExecutorAnswerError(f"{what}: text that is no Unicode") from error
    return value


def seconds(value: Any, what: str) -> float:
    """As a clock says them; megahertz as well."""
    if type(value) not in (int, float) or not 0.0 <= value < 1e9:
        raise ExecutorAnswerError(f"{what}: {value!r:.80} is no time")
    return float(value)


def ceilings(data: Any) -> Ceilings:
    """What a device does at most."""
    try:
        found = decode(Ceilings, data, "ceilings")
    except CodecError as error:
        raise ExecutorAnswerError(str(error)) from error
    for number in (found.bytes_per_second, found.operations_per_second, found.clock_mhz, found.watts):
        if number is not None and not 0.0 < number < MOST_RATE:
            raise ExecutorAnswerError(f"ceilings: {number!r:.80} is no rate")
    if len(found.throttled) > MOST_STATS:
        raise ExecutorAnswerError(f"ceilings: more than {MOST_STATS} words of what held the device back")
    return replace(found, throttled=tuple(text(word, "ceilings", 40) for word in found.throttled))


def report(data: Any, covered: bool) -> LaunchReport:
    """What a launch left; `covered` where the device says which lines it executed."""
    if not isinstance(data, dict) or data.keys() != {"findings", "stats"}:
        raise ExecutorAnswerError("a launch's report: not findings and stats")
    findings, stats = data["findings"], data["stats"]
    if not isinstance(findings, list):
        raise ExecutorAnswerError("findings: no list")
    kept = tuple(_finding(item, f"findings[{i}]") for i, item in enumerate(findings))
    if not isinstance(stats, dict) or len(stats) > MOST_STATS:
        raise ExecutorAnswerError(f"stats: not at most {MOST_STATS} counters")
    lines = {"coverage": _coverage(stats["coverage"])} if covered and "coverage" in stats else {}
    counters = {name: _counter(name, value) for name, value in stats.items() if name not in lines}
    return LaunchReport(kept, counters | lines)


def _finding(data: Any, what: str) -> FindingRecord:
    try:
        found = decode(FindingRecord, data, what)
    except CodecError as error:
        raise ExecutorAnswerError(str(error)[:200]) from error
    text(found.rule, f"{what}.rule", 100)
    text(found.message, f"{what}.message")
    for name, value in found.where.items():
        place = f"{what}.where.{name:.40}"
        kind = WHERE.get(name)
        if kind is str:
            text(value, place)
        elif kind is int:
            integer(value, MOST_NUMBER, place)
        elif kind is list:
            _texts(value, place)
        else:
            raise ExecutorAnswerError(f"{place}: unknown field")
    return found


def _texts(value: Any, what: str) -> None:
    if not isinstance(value, list) or len(value) > MOST_DETAILS:
        raise ExecutorAnswerError(f"{what}: not at most {MOST_DETAILS} lines")
    for item in value:
        text(item, what)


def _counter(name: str, value: Any) -> int | float:
    text(name, "stats", 100)
    if name in _OURS or not name.isidentifier():
        raise ExecutorAnswerError(f"stats.{name:.40}: no counter")
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= MOST_NUMBER:
        raise ExecutorAnswerError(f"stats.{name}: {value!r:.80} is no number")
    kept: int | float = value
    return kept


def _coverage(data: Any) -> Mapping[str, Any]:
    """Lines as Lines.as_json spells them: whoever reads a range has a number for each of its lines."""
    if not isinstance(data, dict) or data.keys() != {"ptx", "source"}:
        raise ExecutorAnswerError("stats.coverage: not ptx and source")
    found = 0
    for name, files in data.items():
        if not isinstance(files, dict):
            raise ExecutorAnswerError(f"stats.coverage.{name}: no object")
        for file, pair in files.items():
            text(file, f"stats.coverage.{name}")
            if not isinstance(pair, list) or len(pair) != 2:
                raise ExecutorAnswerError(f"stats.coverage.{name}: not the lines there are and those executed")
            found += sum(_ranges(spelled, f"stats.coverage.{name}") for spelled in pair)
            if found > MOST_LINES:
                raise ExecutorAnswerError(f"stats.coverage: more than {MOST_LINES} lines")
    return data


def _ranges(spelled: Any, what: str) -> int:
    """How many lines ranges have that are in order."""
    if not isinstance(spelled, str):
        raise ExecutorAnswerError(f"{what}: no lines")
    before, found = -1, 0
    for part in spelled.split(", ") if spelled else ():
        first, _, last = part.partition("-")
        numbers = [first, last or first]
        if not all(number.isascii() and number.isdigit() and len(number) < 9 for number in numbers):
            raise ExecutorAnswerError(f"{what}: {part:.40} is no range of lines")
        start, end = map(int, numbers)
        if not before < start <= end < LAST_LINE:
            raise ExecutorAnswerError(f"{what}: {part:.40} is no range of lines behind the one before")
        before, found = end, found + end - start + 1
    return found
