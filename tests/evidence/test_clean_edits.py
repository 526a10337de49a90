"""Edits that change nothing that is computed fit today's kernels, and regress has nothing to say of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from tests.evidence.clean_edits import FOLDERS, clean
from tests.evidence.seeded_history import REPOSITORY, History, Planned

KERNEL = REPOSITORY / "kernel"
MANY = 100


def sources(kernel: Path) -> dict[Path, str]:
    return {path.relative_to(kernel): path.read_text() for path in kernel.rglob("*.cu*")}


def test_a_hundred_commits_change_a_source_each(tmp_path: Path):
    shutil.copytree(KERNEL, tmp_path / "kernel")
    commits = clean(KERNEL, MANY)
    assert len({commit.subject for commit in commits}) > MANY * 0.9
    before = start = sources(tmp_path / "kernel")
    for commit in commits:
        commit.change(tmp_path)
        after = sources(tmp_path / "kernel")
        assert sum(after[path] != before[path] for path in after) == 1, commit.subject
        before = after
    changed = {str(path.parent) for path in start if before[path] != start[path]}
    assert changed == set(FOLDERS)


def test_more_edits_than_there_are_places_is_an_error():
    with pytest.raises(AssertionError, match="places for 10000 commits"):
        clean(KERNEL, 10_000)


@pytest.mark.nvcc
@pytest.mark.nightly
@pytest.mark.xdist_group("seeded-history")
def test_all_of_them_at_once_raise_no_alarm(tmp_path: Path):
    def all_of_them(root: Path) -> None:
        for commit in clean(KERNEL, MANY):
            commit.change(root)

    history = History(tmp_path, (Planned("Start", lambda root: None), Planned("All of them", all_of_them)))
    history.accept(10)
    found = history.regress(1, "--seed", "3")
    assert found["regressions"] == []
    assert found["code"] == ExitCode.PASS
