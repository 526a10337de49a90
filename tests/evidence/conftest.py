from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests import forked
from tests.harness.conftest import checkout as checkout
from tests.harness.support import git


@pytest.fixture
def fmha(checkout: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `fmha` in the checkout."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return forked.fmha(*arguments, cwd=checkout, env=os.environ | environment, timeout=120)

    return run


@pytest.fixture(scope="session")
def project(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels, judge and a baseline, committed on main."""
    root = tmp_path_factory.mktemp("project")
    for name in ("kernel", "fmha", "harness", "emulator"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(repository / name, root / name, symlinks=True, ignore=ignored)
    matrix = yaml.safe_load((repository / "matrix.yaml").read_text())
    axes = {"head_dim": [64, 128], "t": [1], "s_k": [128]}
    matrix |= {"default_suite": "small", "suites": {"small": {"axes": axes}}}
    matrix["hosts"]["emulator"]["workers"] = 1  # a second costs its start, and there is little to do
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    (root / ".gitignore").write_text(".fmha/\n/results/*.json\n/results/.*\n__pycache__/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    for arguments in (("run-matrix",), ("baseline", "accept", "latest", "--why", "the start", "--seeds", "10")):
        ran = forked.fmha(*arguments, "--quiet", cwd=root)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "baseline")
    return root
