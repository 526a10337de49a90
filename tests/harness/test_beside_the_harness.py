"""What lies beside a harness in a tree, and what an enclosed run leaves where others look."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmha.harness.git import resolve_commit
from fmha.harness.stages.apart import JudgeApart, alike, launches_otherwise
from fmha.harness.supervisor import housekeeping
from fmha.harness.worker.compilers import cache
from tests.harness.support import git


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "kernel").mkdir(parents=True)
    (root / "fmha").mkdir()
    (root / "kernel" / "k.cu").write_text("1")
    (root / "fmha" / "__init__.py").write_text("")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "base")
    git(root, "checkout", "-q", "-b", "topic")
    return root


CHANGES = {"kernel/k.cu": True, "results/x.json": True, "sitecustomize.py": False, "numpy/__init__.py": False}


@pytest.mark.parametrize(("name", "same"), CHANGES.items())
def test_what_python_could_find_makes_a_harness_ones_own(checkout: Path, name: str, same: bool) -> None:
    base = resolve_commit(checkout, "main")
    assert base is not None
    path = checkout / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("2")
    judge = JudgeApart(base, checkout, checkout)
    assert launches_otherwise(judge) == (not same)  # as it lies there, too
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "change")
    assert launches_otherwise(judge) == (not same)
    assert alike(checkout, resolve_commit(checkout, "HEAD") or "") == (base if same else None)


def test_logs_are_files_of_the_run(tmp_path: Path) -> None:
    """What is enclosed writes below workers, and whoever asks for logs reads with the account's rights."""
    secret = tmp_path / "secret"
    secret.write_text("a key")
    run = tmp_path / "run"
    inside = run / "workers" / "1"
    inside.mkdir(parents=True)
    (run / "log").write_text("begun")
    (inside / "x.stderr").write_text("said")
    (inside / "link.stderr").symlink_to(secret)
    os.mkfifo(inside / "pipe.stderr")
    directory = cast("Any", SimpleNamespace(path=run, log=run / "log"))
    assert dict(housekeeping.logs(directory)) == {"log": "begun", "workers/1/x.stderr": "said"}
    (inside / "x.stderr").unlink()
    inside.rename(run / "moved")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "y.stderr").write_text("a key")
    inside.symlink_to(elsewhere)
    assert housekeeping._own_file(inside / "y.stderr", run) is None


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    keys = tmp_path / "authorized_keys"
    keys.write_text("a key")
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / cache._LOCK).symlink_to(keys)
    with pytest.raises(OSError, match="symbolic links"), cache._locked(folder):
        pass
    assert keys.read_text() == "a key"
