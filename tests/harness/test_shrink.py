"""A random suite whose host fails whatever has a certain property: that property is what is left of a failure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fmha.harness.config import Limits, load
from fmha.harness.contract.protocol import Event, Job
from fmha.harness.errors import ExitCode
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.random_cases import draw_cases
from fmha.harness.stages.pipeline import Request, execute
from tests.harness.support import GOOD, MATRIX, Recorder, ScriptedHost, event, git

RANDOM = """\
suites:
  any:
    random: {cases: 40, head_dim: [64, 128], rows: 128, keys: 400, topk: 60, batch: 4, work: 9000000}
"""
WRONG = replace(GOOD, cosine=0.5)


@dataclass
class BrokenHost(ScriptedHost):
    """Gives wrong numbers for every configuration that `broken` holds for, and a race where `races` does."""

    broken: Callable[[Configuration], bool] = lambda item: False

    def run(self, job: Job, limits: Limits) -> Generator[Event, None, None]:
        for item in job.configurations:
            if self.broken(item):
                self.script[item.id] = lambda item: event(item, measurement=WRONG)
        return super().run(job, limits)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "matrix.yaml").write_text(MATRIX.replace("suites:\n", RANDOM, 1))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def last_words(checkout: Path, host: ScriptedHost, **request: object) -> tuple[ExitCode, list[str], Recorder]:
    """Exit code, the last reason of every configuration that failed, and what the observer saw."""
    seen: list[str] = []

    def show(record: object, path: object) -> None:
        seen.extend(item.reasons[-1] for item in record.configurations if item.status == "fail")

    observer = Recorder()
    code = execute(Request(checkout, suite="any", **request), observer, show, lambda *_: host)
    return code, seen, observer


@pytest.mark.parametrize(
    ("broken", "smallest"),
    [
        (lambda item: item.s_k >= 130, "t1_sk130"),
        (lambda item: item.topk > 3, "t1_sk0_top4_of1"),
        (lambda item: item.kv == "shared" and item.batch > 1, "t1_sk0_b2_kvshared"),
        (lambda item: item.output == "bf16" and item.heads > 1 and item.t > 2, "t3_sk0_h2_out-bf16"),
        (lambda item: item.splits > 1 and item.kv_lens == "ragged", "t1_sk0_lens-ragged_splits2"),
    ],
)
def test_what_is_left_is_what_is_wrong(checkout: Path, broken: Callable[[Configuration], bool], smallest: str) -> None:
    code, words, observer = last_words(checkout, BrokenHost(broken=broken), drawn=99)
    assert code is ExitCode.GATE_FAILED
    (found,) = [text for text in words if text.startswith("the smallest found")]
    command = found.partition(": ")[2].split()
    assert command[:3] == ["fmha", "run-matrix", "--case"]
    assert command[3] in (f"hd64_{smallest}", f"hd128_{smallest}")
    assert command[4:] == ["--seed", "7", "--drawn", "99", "--schedule", "realistic"]
    assert observer.stages == ["build", "guard", "matrix", "shrink"]


def test_a_suite_that_passes_is_not_shrunk(checkout: Path) -> None:
    code, words, observer = last_words(checkout, BrokenHost())
    assert (code, words) == (ExitCode.PASS, [])
    assert observer.stages == ["build", "guard", "matrix"]


def test_cases_come_from_the_seed_of_the_run(checkout: Path) -> None:
    host = BrokenHost()
    last_words(checkout, host, seed=9, random_cases=12)
    space = load(checkout).random_suites["any"].space
    fallback = {"hd64_t32_sk256"}
    assert set(host.ran) - fallback == {item.id for item in draw_cases(9, 12, space)} - fallback


def test_a_command_repeats_the_schedules(checkout: Path) -> None:
    host = BrokenHost(broken=lambda item: item.topk > 0)
    _, words, _ = last_words(checkout, host, schedules=20, drawn=99)
    (found,) = [text for text in words if text.startswith("the smallest found")]
    assert found.endswith("--seed 7 --drawn 99 --schedules 20")
    assert {len(job.schedules) for job in host.jobs} == {20}
