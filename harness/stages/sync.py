"""Sync: a host elsewhere judges a commit, so this is where the tree becomes one, or is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fmha.harness.config import MATRIX_FILE
from fmha.harness.hosts import commit_transfer
from fmha.harness.stages.preflight import GitFacts


def exact_commit(git: GitFacts, tell: Callable[[str], None], *, snapshot: bool) -> GitFacts:
    """The facts of the commit that is judged. Raises UserError for a dirty tree, unless it is to be snapshot.

    `tell` hears what a snapshot takes along.
    """
    if not git.dirty_files:
        return git
    if not snapshot:
        commit_transfer.refuse_dirty(git.dirty_files)
    return dataclasses.replace(git, commit=commit_transfer.snapshot(git.root, tell), branch=None, dirty_files=())


def matrix_text(root: Path) -> str:
    """matrix.yaml as it stands in the checkout, which by now is as it stands in the commit."""
    return (root / MATRIX_FILE).read_text(encoding="utf-8-sig")
