from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.support import MATRIX, git


@pytest.fixture
def fmha(checkout: Path, repository: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `fmha` in the checkout."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "harness", *arguments],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(repository)} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


from pathlib import Path

import pytest

from tests.harness.support import MATRIX, git

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
