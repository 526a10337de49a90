"""What can be imported by name of a run's worktree: `fmha`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fmha.harness.supervisor import modules

LOOK = """
import importlib.util, sys, fmha.harness.thing
for name in ("beside", "docs", "harness", "json", "kernel", "sitecustomize", "tests"):
    found = importlib.util.find_spec(name)
    if found is not None and str(found.origin).startswith(sys.argv[1]):
        print(name)
"""


def test_nothing_else_of_a_tree_can_be_imported(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in ("docs", "fmha", "harness", "kernel", "tests"):
        (tree / package).mkdir(parents=True)
        (tree / package / "__init__.py").write_text("")
    for name in ("json.py", "sitecustomize.py", "beside.py"):
        (tree / name).write_text("")
    (tree / "harness" / "thing.py").write_text("")
    (tree / "fmha" / "harness").symlink_to("../harness")

    def found(path: Path) -> list[str]:
        variables = os.environ | {"PYTHONPATH": str(path), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        # -S: an editable fmha of this environment would come before any path.
        command = [sys.executable, "-S", "-c", LOOK, str(tree)]
        done = subprocess.run(command, env=variables, cwd=tree, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert found(tree) == ["beside", "docs", "harness", "json", "kernel", "sitecustomize", "tests"]
    assert found(modules.provide(tree, tmp_path / "modules")) == []
