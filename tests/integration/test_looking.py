"""Commands that only look run nothing of a repository: an adapter that would leave a mark leaves none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from tests import forked
from tests.harness.support import git

MARK = """
import os, sys
print("it ran", file=sys.stderr)
try:
    open(MARKER, "w").close()
except OSError:
    pass
"""


@pytest.fixture
def hostile(repository: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A repository whose adapter writes a file when it is imported, and that file, where a sandbox has no say."""
    root, marker = tmp_path / "theirs", tmp_path / "marker"
    root.mkdir()
    for path in (repository / "harness" / "examples" / "gemm").glob("*.*"):
        (root / path.name).write_text(path.read_text())
    adapter = root / "fmha_kernels.py"
    adapter.write_text(adapter.read_text() + MARK.replace("MARKER", repr(str(marker))))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "theirs")
    return root, marker


@pytest.mark.parametrize(
    "arguments",
    [
        ["ps"],
        ["hosts"],
        ["doctor"],
        ["results"],
        ["report"],
        ["history"],
        ["compare", "latest", "latest"],
        ["logs", "20260101T000000Z-0123456789ab"],
        ["cancel", "20260101T000000Z-0123456789ab"],
        ["attach", "20260101T000000Z-0123456789ab"],
        ["clean"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_who_looks_runs_no_adapter(hostile: tuple[Path, Path], arguments: list[str]) -> None:
    """Also without a sandbox: the adapter's process is not started at all."""
    root, marker = hostile
    env = {**os.environ, "FMHA_ISOLATION": "off"}
    ran = forked.fmha(*arguments, cwd=root, env=env)
    assert "Traceback" not in ran.stderr
    assert "it ran" not in ran.stderr
    assert not marker.exists()


def test_who_plans_runs_it_where_it_can_do_nothing(hostile: tuple[Path, Path]) -> None:
    root, marker = hostile
    ran = forked.fmha("run-matrix", "--dry-run", cwd=root)
    assert ran.returncode == ExitCode.PASS, ran.stderr
    assert "it ran" in ran.stderr
    assert not marker.exists()
