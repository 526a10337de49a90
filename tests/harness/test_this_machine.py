"""What is said of the machine: versions of distributions, without what reads all of their text."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from fmha.harness.hosts.this_machine import distribution_version


@pytest.mark.parametrize("name", ["numpy", "fmha", "typer"])
def test_a_version_is_importlibs(name: str) -> None:
    assert distribution_version(name) == metadata.version(name)


@pytest.mark.parametrize("folder", ["some_thing-1.2+cpu.dist-info", "Some_Thing-1.2+cpu-py3.11.egg-info"])
def test_a_folder_of_either_kind_names_one(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / "other_some_thing-9.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert distribution_version("some_thing") == "1.2+cpu"


def test_what_is_not_there_has_none() -> None:
    assert distribution_version("no_such_distribution") is None
