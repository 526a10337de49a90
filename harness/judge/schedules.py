"""Schedules by name: when a device lets asynchronous work complete, for devices that can choose.

`realistic`, `early` and `late` are what they say; `random` draws from the run's seed, `random:7` from 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fmha.harness.judge.findings import FindingRecord

NAMES: Final = ("realistic", "early", "late", "random")
DIFFERENT_OUTPUTS: Final = "schedule-dependent-output"


def schedules_of(count: int) -> tuple[str, ...]:
    """`count` schedules, at least 1: the three named ones, then random ones with seeds from 1."""
    return (*NAMES[:3], *(f"random:{seed}" for seed in range(1, count - 2)))[:count]


def parse_schedule(text: str, seed: int) -> tuple[str, int]:
    """Name and seed of a schedule; `seed` where it names none. ValueError when it is no schedule."""
    name, colon, number = text.partition(":")
    if not colon and name in NAMES:
        return name, seed
    if name == "random" and number.isascii() and number.isdigit() and len(number) < 19:
        return name, int(number)
    raise ValueError(f"{text!r} is no schedule; use {', '.join(NAMES)}, or random:N")


def merge_findings(runs: Sequence[tuple[str, Sequence[FindingRecord]]]) -> tuple[FindingRecord, ...]:
    """The findings of runs under several schedules, one a rule and place, with the first schedule that showed it."""
    found: dict[tuple[object, ...], FindingRecord] = {}
    for schedule, findings in runs:
        for item in findings:
            places = tuple(item.where.get(key) for key in ("ptx_line", "source", "other_ptx_line", "other_source"))
            where = item.where | {"schedule": schedule}
            found.setdefault((item.rule, item.severity, *places), replace(item, where=where))
    return tuple(found.values())


def compare_outputs(hashes: Sequence[tuple[str, str]]) -> tuple[FindingRecord, ...]:
    """A finding for every schedule whose outputs are not, bit for bit, those under the first one."""
    first, expected = hashes[0]
    return tuple(
        FindingRecord(
            DIFFERENT_OUTPUTS,
            "error",
            f"outputs under schedule {schedule} are not those under {first}",
            {"schedule": schedule},
        )
        for schedule, got in hashes[1:]
        if got != expected
    )
