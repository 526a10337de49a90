from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fmha.harness.contract.protocol import Configuration, Job
from fmha.harness.judge.case import Case
from fmha.harness.judge.schedules import schedules_of
from fmha.harness.worker.pool.worker_shares import WORTH_SECONDS, estimates, spread

SMALL, MIDDLE, LARGE = (Configuration(64, t, 128) for t in (1, 32, 128))


def job(*cells: Configuration, costs: dict[str, float] | None = None) -> Job:
    return Job("emulator", (), cells, seed=0, costs=costs or {})


def ids(items: Job) -> list[str]:
    return [item.id for item in items.configurations]


def test_the_longest_are_handed_out_first() -> None:
    costs = {SMALL.id: 9.0, MIDDLE.id: 1.0, LARGE.id: 3.0}
    given, workers = spread(job(SMALL, MIDDLE, LARGE, costs=costs), 2)
    assert (ids(given), workers) == ([SMALL.id, LARGE.id, MIDDLE.id], 2)


def test_one_worker_keeps_the_order_of_the_plan() -> None:
    costs = {SMALL.id: 1.0, LARGE.id: 3.0}
    given, workers = spread(job(SMALL, LARGE, costs=costs), 1)
    assert (ids(given), workers) == ([SMALL.id, LARGE.id], 1)


@pytest.mark.parametrize(
    ("seconds", "cores", "asked", "workers"),
    [
        (WORTH_SECONDS / 8, 16, 0, 1),
        (WORTH_SECONDS / 2, 16, 0, 2),
        (WORTH_SECONDS, 2, 0, 2),
        (100.0, 16, 0, 3),
        (WORTH_SECONDS / 8, 1, 2, 2),
        (100.0, 1, 9, 3),
    ],
)
def test_no_worker_is_started_for_less_than_its_start_takes_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, seconds: float, cores: int, asked: int, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    costs = dict.fromkeys((SMALL.id, MIDDLE.id, LARGE.id), seconds)
    assert spread(job(SMALL, MIDDLE, LARGE, costs=costs), asked)[1] == workers


def test_what_was_not_measured_is_taken_for_its_size() -> None:
    found = estimates((SMALL, MIDDLE, LARGE), {MIDDLE.id: 2.0})
    assert found[MIDDLE.id] == 2.0
    assert 0 < found[SMALL.id] < 2.0 < found[LARGE.id]


def test_sizes_of_kernels_of_ones_own() -> None:
    small, large = (Case("gemm", f"gemm_m{m}", (("m", m), ("n", 128), ("trans", "no"), ("k", 0))) for m in (16, 4096))
    found = estimates((small, large), {})
    assert 0 < found[small.id] < found[large.id]


@pytest.mark.parametrize(
    ("device", "schedules", "asked", "workers", "parts"),
    [
        ("emulator", 3, 2, 1, 1),  # inputs and reference twice for so few
        ("emulator", 8, 2, 2, 2),
        ("emulator", 100, 2, 2, 4),
        ("emulator", 100, 1, 1, 1),
        ("cuda", 100, 2, 1, 1),
    ],
)
def test_one_configuration_is_split_by_its_schedules(
    device: str, schedules: int, asked: int, workers: int, parts: int
) -> None:
    given, count = spread(replace(job(SMALL), device=device, schedules=schedules_of(schedules)), asked)
    assert (count, given.parts) == (workers, parts)


def test_as_many_configurations_as_do_are_not_split() -> None:
    many = tuple(Configuration(64, t, 128) for t in range(1, 5))
    assert spread(replace(job(*many), schedules=schedules_of(100)), 2)[0].parts == 1
