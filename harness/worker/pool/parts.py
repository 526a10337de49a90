"""Configurations whose schedules were handed out in parts, put together again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fmha.harness.contract.protocol import Event, Job
from fmha.harness.judge.schedules import compare_outputs, merge_findings


def whole(events: Iterable[Event], job: Job) -> Iterator[Event]:
    """The events of a job that is handed out whole: `started` with the first part of a configuration, and what came of
    it with the last. One of which a part has no result has none."""
    ended: dict[str, list[Event]] = {}
    begun: set[str] = set()
    for event in events:
        if event.event == "started":
            if event.config not in begun:
                begun.add(event.config)
                yield event
        elif event.event in ("result", "error"):
            parts = ended.setdefault(event.config, [])
            parts.append(event)
            if len(parts) == job.parts:
                yield _put_together(ended.pop(event.config), job)
        else:
            yield event


def _put_together(parts: list[Event], job: Job) -> Event:
    seconds = sum(part.seconds for part in parts)
    for part in parts:
        if part.event == "error":
            return replace(part, seconds=seconds)
    by_schedule = {schedule: part for part in parts for schedule, _ in part.under}
    hashes = {schedule: found for part in parts for schedule, found in part.under}
    first, last = by_schedule[job.schedules[0]], by_schedule[job.schedules[-1]]
    shown = [
        (name, [item for item in by_schedule[name].findings if item.where["schedule"] == name])
        for name in job.schedules
    ]
    return replace(
        first,
        findings=merge_findings(shown) + compare_outputs([(name, hashes[name]) for name in job.schedules]),
        stats={**last.stats, "schedules": len(job.schedules)},
        seconds=seconds,
        under=(),
    )
