"""The connection that is begun before the command line is parsed: only where it will be needed, and never trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.errors import FmhaError
from fmha.harness.hosts import early

MATRIX = """\
hosts:
  gpu: {kind: ssh, alias: nowhere.invalid, python: python3.12}
  here: {kind: local}
  odd: {kind: ssh, alias: [a, list]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "kernel").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["run-matrix", "--host", "gpu"],
        ["run-matrix", "-q", "--host=gpu"],
        ["run-matrix", "--host", "gpu", "--judge", "own"],
        ["doctor", "--host", "gpu", "--json"],
    ],
)
def test_the_host_of_the_command_line_is_dialled_once(project: Path, arguments: list[str]):
    early.begin(arguments, project / "kernel")
    assert early.take("nowhere.invalid", "python3") is None  # another interpreter than was begun with
    carrier = early.take("nowhere.invalid", "python3.12")
    assert carrier is not None
    assert carrier.read(60.0) == b""
    with pytest.raises(FmhaError, match=r"nowhere\.invalid"):
        carrier.epitaph()
    carrier.close()
    assert early.take("nowhere.invalid", "python3.12") is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run-matrix"],
        ["run-matrix", "--host"],
        ["run-matrix", "--host", "gpu", "--dry-run"],
        ["run-matrix", "--host", "here"],
        ["run-matrix", "--host", "odd"],
        ["run-matrix", "--host", "unknown"],
        ["results", "ls", "--host", "gpu"],
        ["run-matrix", "--host", "gpu", "--judge", "main"],  # whose hosts are not the checkout's
        ["run-matrix", "--judge=main", "--host=gpu"],
    ],
)
def test_nothing_is_begun_without_need(project: Path, arguments: list[str]):
    early.begin(arguments, project)
    assert early.take("nowhere.invalid", "python3.12") is None


@pytest.mark.parametrize("text", ["hosts: [", "hosts: 7", "[]", ""])
def test_a_broken_matrix_is_for_others_to_complain_of(project: Path, text: str):
    (project / "matrix.yaml").write_text(text)
    early.begin(["run-matrix", "--host", "gpu"], project)
    assert early.take("nowhere.invalid", "python3.12") is None
