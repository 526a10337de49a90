from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.support import MATRIX, git


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with one commit and MATRIX as its matrix.yaml."""
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "matrix.yaml").write_text(MATRIX)
    (root / ".gitignore").write_text("results/\n.fmha/\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root
