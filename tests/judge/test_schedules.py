"""Several schedules for one configuration: what they find is merged, and their outputs are the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.harness.contract.codec import write_job
from fmha.harness.contract.device import LaunchReport
from fmha.harness.contract.protocol import BuildResult, Configuration, Event, FindingRecord, Job, Resources
from fmha.harness.judge.schedules import (
    MET,
    compare_outputs,
    drawn_schedules,
    every_drawn_schedule,
    merge_findings,
    parse_schedule,
    schedules_of,
)
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.pool.parts import whole as put_together
from fmha.harness.worker.pool.supervise import Seat, run_worker
from tests.worker.numpy_device import NumpyDevice


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, ("realistic",)),
        (3, ("realistic", "early", "late")),
        (5, ("realistic", "early", "late", "random:1", "random:2")),
    ],
)
def test_named_ones_come_first(count: int, names: tuple[str, ...]) -> None:
    assert schedules_of(count) == names


def test_every_one_of_them_parses_and_none_is_repeated() -> None:
    many = schedules_of(100)
    assert len({parse_schedule(name, 0) for name in many}) == len(many) == 100


@pytest.mark.parametrize(
    ("text", "name", "seed"),
    [
        ("late", "late", 5),
        ("random", "random", 5),
        ("random:7", "random", 7),
        ("pct:3", "pct", 3),
        ("spurious:3", "spurious", 3),
    ],
)
def test_the_seed_is_the_run_s_unless_it_is_named(text: str, name: str, seed: int) -> None:
    assert parse_schedule(text, 5) == (name, seed)


@pytest.mark.parametrize("text", ["", "x", "late:1", "random:", "random:-1", "random:x", "random:1:2", "Random"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match="is no schedule; use realistic, early, late, random, spurious, pct, or random:N"
    ):
        parse_schedule(text, 0)


def race(line: int, **where: object) -> FindingRecord:
    return FindingRecord("race", "error", "two writers", {"ptx_line": line, **where})


def test_a_finding_is_listed_once_with_the_first_schedule_that_shows_it() -> None:
    runs = [("realistic", ()), ("early", (race(3, warp=1),)), ("random:4", (race(3, warp=2), race(9)))]
    merged = merge_findings(runs)
    assert [(item.where["ptx_line"], item.where["schedule"]) for item in merged] == [(3, "early"), (9, "random:4")]


CELLS = [("a", f"a{n}") for n in range(9)] + [("b", "b0")]


def test_each_kernel_meets_every_schedule_on_some_of_its_configurations() -> None:
    met = drawn_schedules(7, CELLS)
    for kernel in "ab":
        names = [name for name in met if name.startswith(kernel)]
        kinds = [schedule.partition(":")[0] for name in names for schedule in met[name]]
        assert {kind: kinds.count(kind) for kind in kinds} == (dict(MET) if kernel == "a" else dict.fromkeys(MET, 1))
    for schedules in met.values():
        assert all(parse_schedule(schedule, 0)[1] > 0 for schedule in schedules)


def test_the_drawn_seed_says_which() -> None:
    assert drawn_schedules(7, CELLS) == drawn_schedules(7, CELLS[::-1])
    assert len({tuple(sorted(drawn_schedules(seed, CELLS).items())) for seed in range(20)}) == 20
    alone = drawn_schedules(7, CELLS[:1])["a0"]
    assert alone == every_drawn_schedule(7, "a0")
    assert set(drawn_schedules(7, CELLS).get("a0", ())) <= set(alone)


def test_outputs_that_differ_name_the_schedule() -> None:
    assert compare_outputs([("realistic", "a"), ("early", "a")]) == ()
    (finding,) = compare_outputs([("realistic", "a"), ("early", "a"), ("late", "b")])
    assert finding.severity == "error"
    assert finding.where == {"schedule": "late"}


class MoodyDevice(NumpyDevice):
    """Under random schedules with an even seed, stores one output element a bit off; with seed 5 reports a race."""

    def __init__(self, seed: int = 0, schedule: str = "realistic") -> None:
        super().__init__(seed, schedule)
        self.moody = schedule == "random" and seed % 2 == 0
        if schedule == "random" and seed == 5:
            self.findings = (race(12),)

    def launch(self, *arguments: Any) -> LaunchReport:
        report = super().launch(*arguments)
        if self.moody:
            o = self.memory[max(self.memory) - 3 * 0x1000000].view(np.float32)
            o[0] = np.nextafter(o[0], np.float32(np.inf))
        return report


def job_of(folder: Path, device: str, parts: int = 1) -> Job:
    ptx = folder / "kernel.ptx"
    ptx.write_text("// any")
    build = BuildResult(VARIANTS[0], str(ptx), "", Resources(1, 0, 0, 0, 0), "", "nvcc", (), 0.0, False)
    cells = (Configuration(64, 4, 128), Configuration(64, 5, 128))[: 2 if parts > 1 else 1]
    return Job(f"{__name__}:{device}", (build,), cells, 0, schedules_of(9), noise_seeds=(3,), parts=parts)


def test_a_worker_runs_them_all_and_says_which_one_shows_what(tmp_path: Path, repository: Path) -> None:
    write_job(job_of(tmp_path, "MoodyDevice"), tmp_path / "job.json")
    command = [sys.executable, "-m", "fmha.harness.worker", str(tmp_path / "job.json")]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True, timeout=120)
    event = next(line for line in map(json.loads, ran.stdout.splitlines()) if line["event"] == "result")
    found = [(item["rule"], item["where"]["schedule"]) for item in event["findings"]]
    differs = "schedule-dependent-output"
    assert found == [("race", "random:5"), (differs, "random:2"), (differs, "random:4"), (differs, "random:6")]
    assert event["stats"]["schedules"] == 9


def test_parts_of_a_configuration_put_together_are_what_one_worker_says_of_all_of_it(
    tmp_path: Path, repository: Path
) -> None:
    job = job_of(tmp_path, "MoodyDevice", parts=4)
    whole, parts = (
        [
            replace(event, seconds=0.0)
            for event in run_worker(each, tmp_path / f"{each.parts}", 60.0, 60.0, repository, (Seat(),) * each.parts)
        ]
        for each in (replace(job, parts=1), job)
    )
    assert [event.event for event in whole] == ["started", "result", "started", "result", "done"]
    assert sorted(parts, key=repr) == sorted(whole, key=repr)
    assert len(list((tmp_path / "4").glob("worker-*.json"))) == 4


def test_a_part_that_has_no_result_leaves_its_configuration_without(tmp_path: Path) -> None:
    job = job_of(tmp_path, "MoodyDevice", parts=2)
    name, other = (item.id for item in job.configurations)
    found = Event("result", name, stats={"a": 1}, seconds=1.0, under=tuple((word, "h") for word in job.schedules[::2]))
    lost = Event("error", name, status="timeout", message="silent", seconds=2.0)
    events = [Event("started", name), Event("started", other), Event("started", name), lost, found]
    said = list(put_together(events, job))
    assert said == [Event("started", name), Event("started", other), replace(lost, seconds=3.0)]
