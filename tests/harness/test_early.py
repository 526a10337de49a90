"""The connection that is begun before the command line is parsed: only where it will be needed, and never trusted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fmha.harness.config import load
from fmha.harness.errors import FmhaError
from fmha.harness.hosts import early
from fmha.harness.hosts.carrier import AHEAD_BYTES, ProcessCarrier
from fmha.harness.hosts.shipment import preamble

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
    assert early.take("nowhere.invalid", "python3", early.FOLDER) is None  # another interpreter than was begun with
    assert early.take("nowhere.invalid", "python3.12", "~/other") is None
    begun = early.take("nowhere.invalid", "python3.12", early.FOLDER)
    assert begun is not None
    assert begun.carrier.read(60.0) == b""
    with pytest.raises(FmhaError, match=r"nowhere\.invalid"):
        begun.carrier.epitaph()
    begun.carrier.close()
    assert early.take("nowhere.invalid", "python3.12", early.FOLDER) is None


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
    assert early.take("nowhere.invalid", "python3.12", early.FOLDER) is None


@pytest.mark.parametrize("text", ["hosts: [", "hosts: 7", "[]", ""])
def test_a_broken_matrix_is_for_others_to_complain_of(project: Path, text: str):
    (project / "matrix.yaml").write_text(text)
    early.begin(["run-matrix", "--host", "gpu"], project)
    assert early.take("nowhere.invalid", "python3.12", early.FOLDER) is None


def test_where_matrix_yaml_was_read_before_its_hosts_are_those(
    project: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With what the whole of it says, one's own settings among it."""
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FMHA_HOSTS", str(tmp_path / "own.yaml"))
    (tmp_path / "own.yaml").write_text("hosts: {mine: {kind: ssh, alias: nowhere.invalid, folder: ~/there}}\n")
    shutil.copy(repository / "matrix.yaml", project)
    load(project)
    early.begin(["ps", "--host", "mine"], project)
    begun = early.take("nowhere.invalid", "python3", "~/there")
    assert begun is not None
    begun.carrier.close()
    early.begin(["ps", "--host", "emulator"], project)
    assert early.take("emulator", "python3", early.FOLDER) is None


def test_what_goes_ahead_is_sent_before_anybody_reads_it():
    carrier = ProcessCarrier(["tail", "-f", "/dev/null"], "here")
    try:
        assert carrier.offer(preamble(early.FOLDER)) == b""
        more = bytes(AHEAD_BYTES)
        assert 0 < len(carrier.offer(more)) < len(more)  # nobody waits for the rest to be taken
    finally:
        carrier.kill()
        carrier.close()
