from __future__ import annotations

import os
from pathlib import Path

import pytest

from fmha.harness import project
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.stages.preflight import git_facts, project_of
from tests.harness.support import git


def test_a_clean_checkout(checkout: Path) -> None:
    below = checkout / "below"
    below.mkdir()
    facts = git_facts(below)
    assert facts.root == checkout
    assert facts.branch == "main"
    assert facts.dirty_files == ()
    assert len(facts.commit) == 40


def test_dirty_files_are_named_as_they_are(checkout: Path) -> None:
    names = ['a "quoted" name', "line\nbreak", "ümlaut", "-rf", "$(id)"]
    for name in names:
        (checkout / name).write_text("x")
    (checkout / "results").mkdir()
    (checkout / "results" / "ignored.json").write_text("")
    git(checkout, "mv", "matrix.yaml", "moved.yaml")
    assert sorted(git_facts(checkout).dirty_files) == sorted([*names, "moved.yaml"])


def test_looking_takes_no_lock(checkout: Path) -> None:
    (checkout / ".git" / "index.lock").write_text("")
    os.utime(checkout / "matrix.yaml", (1, 1))  # makes git want to refresh the index
    assert git_facts(checkout).dirty_files == ()


def test_outside_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not in a git checkout; run fmha inside the project"):
        git_facts(tmp_path)


def test_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(UserError, match="no commit yet"):
        git_facts(tmp_path)


def test_without_a_matrix_and_a_commit_what_fmha_brought_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder that git knows nothing of; whoever has a matrix.yaml of his own is told to commit."""
    monkeypatch.setattr(project, "brought", lambda: True)
    monkeypatch.setattr(project, "unpacked", lambda: tmp_path / "brought")
    here = tmp_path / "here"
    here.mkdir()
    assert git_facts(here).folder == here
    git(here, "init", "-q")
    assert git_facts(here).folder == here
    assert project_of(here) == tmp_path / "brought"
    (here / "matrix.yaml").write_text("")
    assert project_of(here) == here
    with pytest.raises(UserError, match="no commit yet"):
        git_facts(here)


def test_a_bare_repository_or_the_inside_of_one(checkout: Path) -> None:
    with pytest.raises((UserError, InfrastructureError)):
        git_facts(checkout / ".git")


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(InfrastructureError, match="git is not installed or not on PATH"):
        git_facts(checkout)


def test_a_broken_repository_in_gits_words(checkout: Path) -> None:
    (checkout / ".git" / "index").write_bytes(b"junk" * 10)
    with pytest.raises(InfrastructureError, match="git status failed: "):
        git_facts(checkout)
