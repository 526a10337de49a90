"""Schedules by name: when a device lets asynchronous work complete, for devices that can choose.

`realistic`, `early` and `late` are what they say; `random` draws from the run's seed, `random:7` from 7. So do
`spurious`, under which waits fail without a reason, and `pct`, which searches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fmha.harness.judge.findings import FindingRecord

NAMES: Final = ("realistic", "early", "late", "random", "spurious", "pct")
SEEDED: Final = NAMES[3:]
# That a run meets besides its own, each on so many configurations of every kernel.
MET: Final[Mapping[str, int]] = {"random": 2, "pct": 1, "spurious": 2}
DIFFERENT_OUTPUTS: Final = "schedule-dependent-output"


def schedules_of(count: int) -> tuple[str, ...]:
    """`count` schedules, at least 1: the three named ones, then random ones with seeds from 1."""
    return (*NAMES[:3], *(f"random:{seed}" for seed in range(1, count - 2)))[:count]


def parse_schedule(text: str, seed: int) -> tuple[str, int]:
    """Name and seed of a schedule; `seed` where it names none. ValueError when it is no schedule."""
    name, colon, number = text.partition(":")
    if not colon and name in NAMES:
        return name, seed
    if name in SEEDED and number.isascii() and number.isdigit() and len(number) < 19:
        return name, int(number)
    raise ValueError(f"{text!r} is no schedule; use {', '.join(NAMES)}, or random:N, spurious:N, pct:N")


def drawn_schedules(drawn: int, cells: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """By configuration, the schedules that it meets besides the run's own, for `cells` of a kernel and a configuration
    each. They follow from the seed `drawn` alone: who has it meets the same again, and on one configuration all."""
    of_kernel: dict[str, list[str]] = {}
    for kernel, configuration in cells:
        of_kernel.setdefault(kernel, []).append(configuration)
    met: dict[str, tuple[str, ...]] = {}
    for kernel, names in of_kernel.items():
        for schedule, count in MET.items():
            draw = random.Random(f"{drawn} {kernel} {schedule}")
            for name in draw.sample(sorted(names), min(count, len(names))):
                met[name] = (*met.get(name, ()), _seeded(schedule, drawn, name))
    return met


def every_drawn_schedule(drawn: int, configuration: str) -> tuple[str, ...]:
    """What `drawn_schedules` can have a configuration meet."""
    return tuple(_seeded(schedule, drawn, configuration) for schedule in MET)


def _seeded(schedule: str, drawn: int, configuration: str) -> str:
    return f"{schedule}:{random.Random(f'{drawn} {configuration} {schedule}').randrange(2**31)}"


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
