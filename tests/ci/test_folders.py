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


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_with_room_is_taken_by_this_process_and_what_it_starts(tmp_path: Path) -> None:
    assert InMemory(tmp_path, room=1).taken
    told = subprocess.check_output([sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"], text=True)
    assert tempfile.gettempdir() == told.strip() == str(tmp_path)


def test_what_somebody_has_named_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert not InMemory(tmp_path, room=1).taken
    assert os.environ["TMPDIR"] == "/somewhere"


@pytest.mark.parametrize(("name", "room"), [(".", 1 << 60), ("absent", 1)], ids=["too small", "not there"])
def test_a_folder_that_will_not_do_is_not_taken(tmp_path: Path, name: str, room: int) -> None:
    assert not InMemory(tmp_path / name, room).taken
    assert "TMPDIR" not in os.environ


def test_a_folder_that_forbids_programs_is_not_taken(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        assert not InMemory(tmp_path, room=1).taken
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("body", "left"), [("pass", False), ("assert not folder.exists()", True)], ids=["green", "red"]
)
def test_a_run_leaves_what_its_tests_have_written_only_where_one_failed(tmp_path: Path, body: str, left: bool) -> None:
    memory, inside = tmp_path / "memory", tmp_path / "inside"
    memory.mkdir()
    inside.mkdir()
    (inside / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.folders import InMemory\n\n\n"
        f"def pytest_configure(config):\n    config.pluginmanager.register(InMemory(Path({str(memory)!r}), 1))\n"
    )
    (inside / "test_it.py").write_text(
        f"def test_it(tmp_path):\n    folder = tmp_path / 'written'\n    folder.mkdir()\n    {body}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", os.devnull, "--rootdir", inside, inside]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (ran.returncode != 0) == left, ran.stdout + ran.stderr
    assert bool(list(memory.rglob("written"))) == left
