"""Mistakes put into the kernel turn the verdict red; docs/mutants.md has the list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.config import SCHEDULES, Matrix, load
from harness.errors import ExitCode
from harness.status import RED, Status
from harness.worker.protocol import Configuration
from tests.harness.support import git
from tests.integration.mutants.catalogue import MUTANTS, tables
from tests.integration.mutants.default_run import FAULTS
from tests.integration.mutants.model import THREE_TILES, Mutant, Trial, copy_kernel, examine
from tests.integration.mutants.survivors import SURVIVORS, Survivor

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def matrix(repository: Path) -> Matrix:
    return load(repository)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(repository: Path, matrix: Matrix, tmp_path: Path, mutant: Mutant) -> None:
    copy_kernel(repository, tmp_path, mutant.edits)
    verdict = examine(tmp_path, matrix, mutant.trial)
    assert verdict.status in RED
    assert mutant.caught_by <= verdict.against
    assert mutant.caught_by


@pytest.mark.parametrize("fault", FAULTS)
def test_the_default_run_sees(repository: Path, matrix: Matrix, tmp_path: Path, fault: str) -> None:
    """Suite `seed` does not, nor did the others by design; one kernel's part of `cover` is enough."""
    copy_kernel(repository, tmp_path, FAULTS[fault])
    assert "cover" in matrix.named(matrix.default_suite)
    mine = [item for item in matrix.suites["cover"] if (item.head_dim, item.p_path) == (64, "tmem")]
    assert any(examine(tmp_path, matrix, Trial(item)).status in RED for item in mine)


def test_the_kernel_itself_passes_every_trial(repository: Path, matrix: Matrix, tmp_path: Path) -> None:
    copy_kernel(repository, tmp_path)
    for trial in dict.fromkeys(mutant.trial for mutant in MUTANTS):
        verdict = examine(tmp_path, matrix, trial)
        assert (verdict.status, verdict.against) == (Status.PASS, frozenset()), trial


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda survivor: survivor.name)
def test_a_survivor_still_passes(repository: Path, matrix: Matrix, tmp_path: Path, survivor: Survivor) -> None:
    copy_kernel(repository, tmp_path, survivor.edits)
    wide = Configuration(512, 5, 300, batch=2, heads=3, mask="causal", splits=2)
    for configuration in (THREE_TILES.configuration, Configuration(64, 5, 300, batch=2), wide):
        for schedule in SCHEDULES:
            trial = Trial(configuration, schedule)
            verdict = examine(tmp_path, matrix, trial)
            assert (verdict.status, verdict.against) == (Status.PASS, frozenset()), trial


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(MUTANTS)


def test_the_page_has_the_tables(repository: Path) -> None:
    page = (repository / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert page.endswith(tables()), "paste what `python -m tests.integration.mutants` prints"


@pytest.mark.parametrize(
    ("name", "status", "check"),
    [("lse-base-2", "fail", "lse_error"), ("proxy-fence", "hazard", "mbarrier-missing-fence")],
)
def test_a_mutant_committed_to_a_clone(repository: Path, tmp_path: Path, name: str, status: str, check: str) -> None:
    """From the command line, with the worker in a process of its own."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    copy_kernel(repository, origin)
    (origin / "matrix.yaml").write_text((repository / "matrix.yaml").read_text())
    (origin / ".gitignore").write_text(".fmha/\nresults/\n")
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "start")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    for edit in BY_NAME[name].edits:
        edit.apply(clone)
    git(clone, "commit", "-q", "-a", "-m", name)
    ran = subprocess.run(
        [sys.executable, "-m", "harness", "run-matrix", "--suite", "proven", "--json", "--quiet"],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    record = json.loads(ran.stdout)
    assert record["commit"]["dirty"] is False
    assert record["verdict"]["word"] == "FAIL"
    assert {item["status"] for item in record["configurations"]} == {status}
    for item in record["configurations"]:
        assert check in {c["name"] for c in item["failed_checks"]} | {f["rule"] for f in item["findings"]}
