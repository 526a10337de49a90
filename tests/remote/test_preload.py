"""The runner of a warm run is there before its worktree is."""

from __future__ import annotations

import shutil

import pytest

from tests.harness.support import git
from tests.integration.processes import eventually
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
BEGUN = "def exactly"  # of what reads the modules that it is sent


def test_it_is_loaded_while_the_worktree_is_made(client: Client):
    client.run("run-matrix", "--host", "gpu", "-q")  # which leaves what the next one is guessed by
    git(client.root, "commit", "-q", "--allow-empty", "-m", "another commit")
    real = shutil.which("git") or ""
    client.server.wrap("git", real, "worktree")
    try:
        with client.server.hold("git"):
            started = client.start("run-matrix", "--host", "gpu")
            assert eventually(lambda: any(BEGUN in line for line in client.server.left_over()))
            (run,) = [run for run in client.runs() if not (run / "status.json").exists()]
            assert not (run / "tree").exists()
        _, said = started.communicate(timeout=300)
    finally:
        client.server.wrap("git", real, "index-pack")
    assert started.wait() == 0, said
    assert "isolated by" in said
