"""What a GitHub or Gitea job shows of a run: the step's summary and annotations, when the environment asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fmha.harness.judge.comparison.missed import missed
from fmha.harness.judge.status import Status
from fmha.harness.stages.columns import COLUMNS, cells
from fmha.harness.stages.report import verdict_line
from fmha.harness.text import printable

if TYPE_CHECKING:  # comparison brings numpy, which no run needs
    from fmha.harness.archive import RunRecord
    from fmha.harness.archive.record import ConfigurationRecord
    from fmha.harness.judge.comparison.comparison import Regression

MOST_ANNOTATIONS = 10  # of one kind a step; what is beyond is dropped by GitHub
MOST_SUMMARY = 1 << 20  # bytes; a larger summary is refused as a whole
_CUT = "\n\nThe rest is in the archived record.\n"
_HEADS = COLUMNS[: COLUMNS.index("hazards") + 1]  # how much it took is in the record


def tell(record: RunRecord, regressions: Sequence[Regression], environment: Mapping[str, str], stream: TextIO) -> None:
    """Append the summary to the file that the environment names, and print annotations, if this is such a job."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return
    for line in commands(record, regressions):
        print(line, file=stream, flush=True)
    if path := environment.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("ab") as file:
            room = MOST_SUMMARY - file.tell()
            file.write(cut(summary(record, regressions).encode("utf-8", "replace"), room))


def commands(record: RunRecord, regressions: Sequence[Regression]) -> Iterator[str]:
    """Annotations as workflow commands, `::error file=...::message`, the regressions first."""
    shown = [(f"regression: {item.kind}", f"{item.subject}: {item.text}", "") for item in regressions]
    shown += [("bias", f"{figure.group}: {figure.text}", "") for figure in missed(record)]
    for item in record.configurations:
        if item.status not in (Status.PASS, Status.NOT_RUN):
            reason = item.reasons[0].splitlines()[0] if item.reasons and item.reasons[0] else ""
            shown.append((str(item.status), f"{item.id}: {reason}", _place(item)))
    for title, message, place in shown[:MOST_ANNOTATIONS]:
        yield f"::error {place}title={_property(title)}::{_message(message)}"


def summary(record: RunRecord, regressions: Sequence[Regression]) -> str:
    """Markdown: the verdict, what got worse, the table."""
    lines = [f"## {markdown(verdict_line(record))}", ""]
    where = record.host.gpu.name if record.host.gpu else record.host.name
    lines += [f"Commit `{record.commit.sha[:12]}` on {markdown(where)}, seed {record.selection.seed}", ""]
    lines += [f"- {markdown(f'{figure.group}: {figure.text}')}" for figure in missed(record)]
    if regressions:
        lines += ["", "| kind | where | what |", "| --- | --- | --- |"]
        lines += [f"| {item.kind} | {markdown(item.subject)} | {markdown(item.text)} |" for item in regressions]
        lines.append("")
    lines += [f"| {' | '.join(_HEADS)} |", f"|{' --- |' * len(_HEADS)}"]
    ordered = sorted(record.configurations, key=lambda item: item.status is Status.PASS)
    lines += [f"| {' | '.join(markdown(cell) for cell in cells(item)[: len(_HEADS)])} |" for item in ordered]
    return "\n".join(lines) + "\n"


def _place(item: ConfigurationRecord) -> str:
    """`file=...,line=...,` of the first finding that has one."""
    for finding in item.findings:
        file, _, line = str(finding.where.get("source", "")).rpartition(":")
        if file and line.isdigit():
            return f"file={_property(file)},line={line},"
    return ""


def cut(text: bytes, room: int) -> bytes:
    """At most `room` bytes, ending with a whole line and a word about the rest."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(_CUT))]
    return kept[: kept.rfind(b"\n") + 1] + _CUT.encode() if room > len(_CUT) else b""


def _message(text: str) -> str:
    """As data of a command: what a runner decodes again is no other command, nor does it reach a terminal raw."""
    shown = "\n".join(map(printable, text.split("\n")))
    return shown.replace("%", "%25").replace("##[", r"#\#[").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def markdown(text: str) -> str:
    """Text from a run as text: no table, no HTML, no link comes of it, and nothing that does not print."""
    for char in "\\`*_{}[]<>()#+!|@~&$":
        text = text.replace(char, f"\\{char}" if char not in "<&@" else f"&#{ord(char)};")
    return printable(" ".join(text.split()))
