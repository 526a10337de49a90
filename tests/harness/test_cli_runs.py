"""Whole runs from the command line: real git, nvcc and worker processes.

But for the last test, the device is a stand-in that fails where its configuration's t says so
(tests/integration/fault_devices.py).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.errors import ExitCode
from tests.figures import limits
from tests.forked import fmha
from tests.harness.support import git
from tests.integration.fault_devices import HANGS, HAZARD, KILLED, REFUSES
from tests.integration.processes import alive, eventually, logged_pids

pytestmark = pytest.mark.nvcc

PROGRAM = """
from fmha.harness.hosts.emulator_host import EmulatorHost
EmulatorHost.device = "tests.integration.fault_devices:FaultyDevice"
from fmha.harness.cli import main
main()
"""

MATRIX = f"""\
default_suite: good
seed: 7
suites:
  good: {{axes: {{head_dim: [64], t: [1, 32], s_k: [128]}}}}
  faulty: {{axes: {{head_dim: [64, 128], t: [1, {HAZARD}, {KILLED}, {REFUSES}, {HANGS}, 32], s_k: [128]}}}}
  slow: {{axes: {{head_dim: [64], t: [1, {HANGS}, 32], s_k: [128]}}}}
gates:
  default: {limits()}
guard: {{head_dim: 64, fallback: {{t: 32, s_k: 256}}}}
limits: {{build_seconds: 120, configuration_silence_seconds: SILENCE, configuration_total_seconds: 120}}
hosts:
  emulator: {{kind: emulator}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A checkout with the kernel."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(repository / "kernel", root / "kernel")
    (root / "matrix.yaml").write_text(MATRIX.replace("SILENCE", "60"))
    (root / ".gitignore").write_text(".fmha/\nresults/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root


@pytest.fixture
def fresh(project: Path) -> Path:
    """The checkout without results and runs, as committed."""
    for name in ("results", ".fmha/runs"):
        shutil.rmtree(project / name, ignore_errors=True)
    git(project, "checkout", "-q", "--", ".")
    return project


def start(project: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run-matrix", *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers(project: Path) -> list[int]:
    """Pids that workers of the latest run have reported."""
    return logged_pids(project / ".fmha" / "runs", "*/*/*.stderr")


def hanging(project: Path) -> list[int]:
    """Pids once the worker is at the configuration that hangs."""
    logs = (project / ".fmha" / "runs").glob("*/*/*.events")
    if any(f"t{HANGS}_" in path.read_text() for path in logs):
        return workers(project)
    return []


def test_names_that_the_terminal_cannot_show(fresh: Path) -> None:
    (fresh / "größe").write_text("")
    try:
        process = start(fresh, "--json", PYTHONIOENCODING="ascii")
        stdout, stderr = process.communicate()
    finally:
        (fresh / "größe").unlink()
    assert process.returncode == ExitCode.PASS, stderr
    assert json.loads(stdout)["commit"]["dirty_files"] == ["größe"]


def test_a_run_that_passes(fresh: Path) -> None:
    process = start(fresh, "--json")
    stdout, stderr = process.communicate()
    assert process.returncode == ExitCode.PASS, stderr
    record = json.loads(stdout)
    assert record["verdict"] == {"word": "PASS", "exit_code": 0, "passed": 2, "total": 2, "counts": {"pass": 2}}
    assert record["commit"]["dirty"] is False
    (variant,) = record["variants"]
    assert variant["nvcc"]
    assert variant["resources"]["registers"] > 0
    assert variant["error"] is None
    (path,) = (fresh / "results").iterdir()
    assert path.read_text() == stdout
    assert "[2/2] hd64_t32_sk128 pass" in stderr


@pytest.mark.slow
def test_every_fault_costs_its_own_configuration(fresh: Path) -> None:
    matrix = fresh / "matrix.yaml"
    matrix.write_text(MATRIX.replace("SILENCE", "3"))
    process = start(fresh, "--suite", "faulty")
    stdout, stderr = process.communicate()
    assert process.returncode == ExitCode.GATE_FAILED, stderr
    (path,) = (fresh / "results").iterdir()
    record = json.loads(path.read_text())
    statuses = {item["id"]: item["status"] for item in record["configurations"] if item["guard"]}
    assert statuses == {
        "hd64_t1_sk128": "pass",
        f"hd64_t{HAZARD}_sk128": "hazard",
        f"hd64_t{KILLED}_sk128": "crash",
        f"hd64_t{REFUSES}_sk128": "infra-error",
        f"hd64_t{HANGS}_sk128": "timeout",
        "hd64_t32_sk128": "pass",
    }
    assert {item["status"] for item in record["configurations"] if not item["guard"]} == {"not-run"}
    assert record["commit"]["dirty_files"] == ["matrix.yaml"]
    assert "two writers" in stdout
    assert "silent for 3 s, killed" in stdout
    assert stdout.splitlines()[-1].startswith("FAIL 2 of 12 passed: ")
    assert eventually(lambda: not alive(workers(fresh)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("whole_group", [False, True])
def test_an_interrupted_run_leaves_what_it_has_done(fresh: Path, number: signal.Signals, whole_group: bool) -> None:
    process = start(fresh, "--suite", "slow")
    assert process.stderr is not None
    assert any("[1/3]" in line for line in process.stderr)  # the command, too, knows that the first one is finished
    pids = eventually(lambda: hanging(fresh))
    assert alive(pids)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    stdout, stderr = process.communicate()
    assert process.returncode == ExitCode.INCOMPLETE
    (path,) = (fresh / "results").iterdir()
    told = f"fmha: interrupted: 1 of 3 configurations finished; archived; fmha results show {path.stem}\n"
    assert stderr == told
    assert stdout == ""
    assert alive(pids) == []
    record = json.loads(path.read_text())
    assert record["verdict"]["counts"] == {"pass": 1, "not-run": 2}
    assert record["verdict"]["exit_code"] == ExitCode.INCOMPLETE


def test_an_interrupted_run_of_two_workers_leaves_what_both_have_done(fresh: Path) -> None:
    process = start(fresh, "--suite", "slow", "--workers", "2")
    assert process.stderr is not None
    assert any("[2/3]" in line for line in process.stderr)
    pids = eventually(lambda: hanging(fresh))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == ExitCode.INCOMPLETE
    assert alive(pids) == []
    (path,) = (fresh / "results").iterdir()
    assert json.loads(path.read_text())["verdict"]["counts"] == {"pass": 2, "not-run": 1}


def test_impatience_does_not_disturb_the_clearing_up(fresh: Path) -> None:
    process = start(fresh, "--suite", "slow", "--quiet")
    pids = eventually(lambda: hanging(fresh))
    for _ in range(20):
        os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == ExitCode.INCOMPLETE
    assert "Traceback" not in stderr
    assert alive(pids) == []


def test_a_killed_run_takes_its_worker_along(fresh: Path) -> None:
    process = start(fresh, "--suite", "slow", "--quiet")
    worker, _ = eventually(lambda: pids if len(pids := sorted(set(hanging(fresh)))) == 2 else [])
    process.kill()
    process.communicate()
    try:
        assert eventually(lambda: not alive([worker]))
    finally:
        os.killpg(worker, signal.SIGKILL)  # its child is deaf to SIGTERM by design, and no device of ours starts any
    assert list((fresh / "results").iterdir()) == []


def test_nohup_is_respected(fresh: Path) -> None:
    """A run that was started to outlive its terminal does."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(fresh, "--suite", "slow", "--quiet")
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert eventually(lambda: hanging(fresh))
    os.kill(process.pid, signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate()
    assert process.returncode == ExitCode.INCOMPLETE


def test_the_emulator_itself(fresh: Path) -> None:
    """Nothing stands in for anything here, and two workers leave what one does."""
    alone, two = (emulated(fresh, workers) for workers in (1, 2))
    assert [(item["id"], item["metrics"]) for item in two] == [(item["id"], item["metrics"]) for item in alone]
    assert all(item["metrics"]["output_hash"] for item in two)
    assert {item["stats"]["threads"] for item in two} == {1}


def emulated(fresh: Path, workers: int) -> list[dict[str, Any]]:
    ran = fmha("run-matrix", "--json", "--quiet", "--workers", str(workers), cwd=fresh)
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    assert ran.stderr == ""
    configurations: list[dict[str, Any]] = json.loads(ran.stdout)["configurations"]
    for item in configurations:
        assert item["findings"] == []
        assert item["stats"]["warp_instructions"] > 1000
    return configurations
