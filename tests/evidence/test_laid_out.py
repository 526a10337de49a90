"""What git's objects have is what a judge's folder has, whatever was done to it since it was written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.git import resolve_commit
from fmha.harness.stages.laid_out import laid_out
from tests.harness.support import git

GATE, LOOSER = "LIMIT = 1\n", "LIMIT = 9\n"


def _loosen(tree: Path) -> None:
    """By as many bytes as there were, and at the same time."""
    gate = tree / "harness" / "gate.py"
    state = gate.stat()
    gate.chmod(0o644)
    gate.write_text(LOOSER)
    os.utime(gate, ns=(state.st_atime_ns, state.st_mtime_ns))


def _link(tree: Path) -> None:
    other = tree.parent / "gate.py"
    other.write_text(GATE)
    (tree / "harness" / "gate.py").unlink()
    (tree / "harness" / "gate.py").symlink_to(other)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a gate is loosened": _loosen,
    "a module comes before another": lambda tree: (tree / "json.py").write_text("raise SystemExit\n"),
    "bytecode lies beside": lambda tree: (tree / "harness" / "gate.pyc").write_bytes(b"x"),
    "a file is gone": lambda tree: (tree / "harness" / "gate.py").unlink(),
    "a link to the same": _link,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_judge_that_was_changed_on_the_disk_is_written_anew(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "root"
    (root / "harness").mkdir(parents=True)
    (root / "harness" / "gate.py").write_text(GATE)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "a judge")
    commit = resolve_commit(root, "HEAD")
    assert commit is not None
    tree = laid_out(root, commit, "tree")
    assert laid_out(root, commit, "tree") == tree
    CHANGES[change](tree)
    assert laid_out(root, commit, "tree") == tree
    found = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if not path.is_dir()}
    assert list(found) == ["harness/gate.py"]
    assert not found["harness/gate.py"].is_symlink()
    assert found["harness/gate.py"].read_text() == GATE
