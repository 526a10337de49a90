"""The rule for subjects of commits, on a repository of its own."""

import subprocess
from pathlib import Path

import pytest

from tools.subjects import commits, faults


@pytest.mark.parametrize(
    "subject",
    [
        "Read the header that C++ compiles, so that no offset is written twice",
        "Add a row to the table of barriers",
        "Embed the digest of the core's sources",
        "Merge in the last CTA of a row",
        "A" + "d" * 71,
    ],
)
def test_what_is_right(subject: str) -> None:
    assert faults(subject) == []


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        ("Add " + "d" * 69, "73 characters"),
        ("add a row", "capital"),
        ("", "capital"),
        ("The baseline is of the new judge", "'The'"),
        ("hopper.md: one card", "capital"),
        ("Journal: one card", "'Journal:'"),
        ("READY: make bench by class", "'READY:'"),
        ("WIP on barriers", "'WIP'"),
        ("Twenty sentences before and after", "'Twenty'"),
        ("Packed queries have a shape too", "imperative"),
        ("Fixing the ring", "imperative"),
        ("Add a row.", "full stop"),
    ],
)
def test_what_is_refused(subject: str, word: str) -> None:
    (said,) = faults(subject)
    assert word in said


def test_merges_are_left_out_and_what_was_before(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert commits("HEAD", tmp_path) == []
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "old words")
    old = git("rev-parse", "HEAD")
    git("switch", "-q", "-c", "side")
    git("commit", "-q", "--allow-empty", "-m", "Add a side", "-m", "and why")
    git("switch", "-q", "main")
    git("commit", "-q", "--allow-empty", "-m", "Add a main line")
    git("merge", "-q", "--no-ff", "-m", "Merge branch 'side'", "side")
    assert sorted(subject for _, subject in commits(f"{old}..HEAD", tmp_path)) == ["Add a main line", "Add a side"]
    assert commits(f"{'0' * 40}..HEAD", tmp_path) == []
