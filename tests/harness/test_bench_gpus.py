"""How a run spread over GPUs: what its events say, and where records on several of them differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fmha.harness.bench.gpus.each import KNOWN, configurations
from fmha.harness.bench.gpus.gpu_scaling import differing, measured
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import variant_for


def state(at: float, name: str) -> dict[str, Any]:
    return {"kind": "state", "state": name, "at": at}


def ran(at: float, job: int, event: str, config: str = "", place: str = "") -> dict[str, Any]:
    return {"kind": "event", "job": job, "at": at, "event": {"event": event, "config": config, "place": place}}


# The guard on one GPU, then three on two: A for 4 s and, after one of its own, for 1 s; B for 3 s.
EVENTS = [
    state(90.0, "queued"),
    state(100.0, "run"),
    ran(101.0, 1, "started", "guard", "A"),
    ran(102.0, 1, "result", "guard", "A"),
    ran(102.5, 1, "done"),
    ran(103.5, 2, "started", "long", "A"),
    ran(104.5, 2, "started", "middle", "B"),
    ran(107.5, 2, "result", "long", "A"),
    ran(107.5, 2, "error", "middle", "B"),
    ran(108.5, 2, "started", "short", "A"),
    ran(109.5, 2, "result", "short", "A"),
    ran(110.0, 2, "done"),
]


def test_every_second_of_every_gpu_is_work_start_between_or_end() -> None:
    found = measured("matrix", 2, 30.0, EVENTS)
    matrix = 2.0 + 7.0  # of the guard and of the rest, without what was between them
    assert (found.configurations, found.matrix, found.work) == (4, matrix, 1.0 + 4.0 + 3.0 + 1.0)
    assert found.balance == pytest.approx(3.0 / 6.0)
    assert found.starts == pytest.approx((1.0 + 1.0 + 2.0) / (2 * matrix))
    assert found.between == pytest.approx(1.0 / (2 * matrix))
    assert found.at_end == pytest.approx((2.0 + 2.0) / (2 * matrix))  # B had no part in the guard
    assert found.starts + found.between + found.at_end + found.work / (2 * matrix) == pytest.approx(1.0)


def test_a_gpu_that_had_no_part_in_a_run_is_told() -> None:
    with pytest.raises(ValueError, match="2 GPUs had configurations, not 3"):
        measured("matrix", 3, 30.0, EVENTS)


def test_a_configuration_that_is_missing_or_has_another_hash_differs() -> None:
    def record(**hashes: str) -> dict[str, Any]:
        return {
            "configurations": [
                {"id": name, "status": "pass", "metrics": {"output_hash": value}} for name, value in hashes.items()
            ]
        }

    first = record(a="1", b="2", c="3")
    assert differing([first, record(c="3", b="2", a="1")]) == []
    assert differing([first, record(a="1", b="4"), first]) == ["b", "c"]


def test_every_variant_has_a_small_configuration(repository: Path) -> None:
    found = configurations(repository)
    assert found.keys() == {variant.name for variant in KNOWN}
    assert all(getattr(variant_for(item, ARCH), "name", "") == name for name, item in found.items())
