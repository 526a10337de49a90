"""What regress concluded, as the comment under a pull request: what a reviewer has to know, in Markdown.

GitHub, Gitea and GitLab show it alike. Text from a run is escaped: it becomes neither markup nor a mention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fmha.harness import archive
from fmha.harness.evidence.github import cut, markdown
from fmha.harness.evidence.story import sentence
from fmha.harness.judge.status import Status

if TYPE_CHECKING:
    from fmha.harness.evidence.regress import BaselineVerdict

MARK = "<!-- fmha regress -->"  # by which a later comment finds the one that it replaces
MOST_ROWS = 20
MOST_LINES = 40
MOST_BYTES = 60_000  # GitHub takes 65,536 characters


def write(path: Path, verdict: BaselineVerdict) -> None:
    """Write the file, whole or not at all. Raises InfrastructureError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.replace(cut("\n".join(_lines(verdict)).encode("utf-8", "replace") + b"\n", MOST_BYTES), path)


def _lines(verdict: BaselineVerdict) -> Iterator[str]:
    new = verdict.new
    yield MARK
    yield f"## {markdown(str(verdict))}"
    yield ""
    gpu = f", {markdown(new.host.gpu.name)}" if new.host.gpu else ""
    judge = f", judged by the harness of `{new.judge.commit[:12]}`" if new.judge and new.judge.commit else ""
    yield f"Commit `{new.commit.sha[:12]}` on {markdown(new.host.name)}{gpu}: {markdown(_counts(verdict))}{judge}."
    if worse := verdict.comparison.regressions:
        yield ""
        told = sentence(verdict.groups, verdict.comparison.compared, verdict.comparison.unasked)
        yield f"**{markdown(told)}.**"
        yield ""
        yield "| what | how | run it again with |"
        yield "| --- | --- | --- |"
        for group in verdict.groups[:MOST_ROWS]:
            allowed = " (allowed)" if group.kind in verdict.allowed else ""
            again = markdown(f"--filter '{group.where.filter}'") if group.where and group.where.filter else ""
            yield f"| {group.kind}{allowed} | {markdown(group.text)} | {again} |"
        yield ""
        yield "<details><summary>Line by line</summary>"
        yield ""
        for item in worse[:MOST_LINES]:
            yield f"- {item.kind} {markdown(item.subject)}: {markdown(item.text)}"
        if len(worse) > MOST_LINES:
            yield ""
            yield f"And {len(worse) - MOST_LINES} more, in the report among the job's artifacts."
        yield ""
        yield "</details>"
    if verdict.notes:
        yield ""
        yield from (f"- {markdown(note)}" for note in verdict.notes)


def _counts(verdict: BaselineVerdict) -> str:
    counts = Counter(item.status for item in verdict.new.configurations)
    return ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
