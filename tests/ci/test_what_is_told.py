"""Workers of xdist say less than they could, and one thread looks after all limits: nothing that counts is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports import shortened

TESTS = """
import threading
import pytest

@pytest.fixture
def in_vain():
    assert False, "words of the setup"

@pytest.fixture
def left():
    yield
    print("words beside the teardown")
    assert False, "words of the teardown"

def test_passes(): pass
def test_fails(): assert False, "words of the call"
def test_is_never_set_up(in_vain): pass
def test_is_not_taken_down(left): pass
@pytest.mark.skip(reason="words of the skip")
def test_is_skipped(): pass
@pytest.mark.timeout(1)
def test_hangs(): threading.Event().wait()
"""


def test_faults_and_hangs_are_told(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(repository / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command += ["-p", "tests.conftest", "-n", "1", "--max-worker-restart", "0", "-rs", "test_all.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "base")],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = ran.stdout + ran.stderr
    for word in ("setup", "call", "teardown", "skip"):
        assert f"words of the {word}" in said
    assert "words beside the teardown" in said
    assert "crashed while running 'test_all.py::test_hangs'" in said
    assert "2 failed, 2 passed, 1 skipped, 2 errors" in ran.stdout


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
@pytest.mark.parametrize("outcome", ["passed", "failed", "skipped"])
@pytest.mark.parametrize("sections", [[], [("Captured stdout", "words")]])
def test_a_report_is_left_out_that_says_nothing(when: str, outcome: str, sections: list[tuple[str, str]]) -> None:
    sent: list[str] = []
    send = shortened(lambda name, **event: sent.append(name))
    send("testreport", data={"when": when, "outcome": outcome, "sections": sections})
    assert bool(sent) == (when == "call" or outcome != "passed" or bool(sections))


def test_lines_that_nobody_prints_are_left_out() -> None:
    sent: list[str] = []
    send = shortened(lambda name, **event: sent.append(name))
    for name in ("logstart", "runtest_protocol_complete", "logfinish", "workerfinished"):
        send(name, nodeid="x")
    assert sent == ["runtest_protocol_complete", "workerfinished"]
