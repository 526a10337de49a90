"""Where the tests of a run write."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.folders import InMemory

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("TMPDIR", "TEMP", "TMP", "PYTEST_DEBUG_TEMPROOT")
WRITES = "(request.getfixturevalue('tmp_path') / 'written').mkdir()"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test makes of it is undone as well
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_with_room_is_taken_by_this_process_and_what_it_starts(tmp_path: Path) -> None:
    assert InMemory(tmp_path, room=1).taken
    told = subprocess.check_output([sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"], text=True)
    assert tempfile.gettempdir() == told.strip() == str(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_what_somebody_has_named_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/somewhere")
    assert not InMemory(tmp_path, room=1).taken
    assert os.environ.get("TMPDIR") == ("/somewhere" if name == "TMPDIR" else None)


@pytest.mark.parametrize(("name", "room"), [(".", 1 << 60), ("absent", 1)], ids=["too small", "not there"])
def test_a_folder_that_will_not_do_is_not_taken(tmp_path: Path, name: str, room: int) -> None:
    assert not InMemory(tmp_path / name, room).taken
    assert "TMPDIR" not in os.environ


@pytest.mark.parametrize("option", ["noexec,size=64k", "nr_inodes=20"], ids=["no programs", "few files"])
def test_a_file_system_that_will_not_do_is_not_taken(tmp_path: Path, option: str) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        assert not InMemory(tmp_path, room=1).taken
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def run(tmp_path: Path, body: str, *options: str) -> tuple[int, Path]:
    """Of a project whose one test does `body`: the exit status of pytest, and the folder that stands for memory."""
    memory, inside = tmp_path / "memory", tmp_path / "inside"
    memory.mkdir()
    inside.mkdir()
    (inside / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.folders import InMemory\n\n\n"
        f"def pytest_configure(config):\n    config.pluginmanager.register(InMemory(Path({str(memory)!r}), 1))\n"
    )
    (inside / "test_it.py").write_text(f"def test_it(request):\n    {body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(inside), *options, str(inside)]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran.returncode, memory


@pytest.mark.parametrize("failing", [False, True], ids=["green", "red"])
def test_a_run_leaves_what_its_tests_have_written_only_where_one_failed(tmp_path: Path, failing: bool) -> None:
    status, memory = run(tmp_path, f"assert {WRITES}" if failing else WRITES, "-n", "1")
    assert bool(status) == failing
    assert bool(list(memory.rglob("written"))) == failing


def test_a_folder_that_is_named_for_the_run_stays(tmp_path: Path) -> None:
    named = tmp_path / "named"
    status, _ = run(tmp_path, WRITES, "--basetemp", str(named))
    assert status == 0
    assert list(named.rglob("written"))


def test_a_run_without_such_folders_ends_as_any_other(tmp_path: Path) -> None:
    assert run(tmp_path, "pass", "-p", "no:tmpdir")[0] == 0
