"""The host's repository, which every client of the account shares."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fmha.harness.supervisor.repository import Repository


def test_cleaning_leaves_an_upload_that_has_no_ref_yet(tmp_path: Path):
    """Between the pack and its ref another client may clean up."""
    repository = Repository(tmp_path)
    repository.ensure()
    command = ["git", "-C", str(repository.path), "hash-object", "-w", "--stdin"]
    sent = subprocess.run(command, input="sent just now", capture_output=True, text=True, check=True).stdout.strip()
    repository.prune()
    subprocess.run(["git", "-C", str(repository.path), "cat-file", "-e", sent], check=True)
