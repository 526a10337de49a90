"""What Python compiled in a worktree is kept for the next one, and believed only for the very source."""

from __future__ import annotations

import importlib.util
import marshal
import subprocess
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("remote-bytecode"), pytest.mark.timeout(900)]
MODULE = Path("harness/stages/guard.py")
CHECKED_HASH = (3).to_bytes(4, "little")


def run(client: Client) -> Path:
    """Another commit, judged; the worktree of its run."""
    git(client.root, "commit", "-q", "--allow-empty", "-m", "another commit")
    before = set(client.runs())
    done = client.run("run-matrix", "--host", "gpu", "-q")
    assert done.returncode == 0, done.stderr
    client.settle()
    (new,) = set(client.runs()) - before
    return new / "tree"


def compiled(tree: Path) -> list[Path]:
    return list((tree / MODULE.parent / "__pycache__").glob(f"{MODULE.stem}.*.pyc"))


def kept(client: Client) -> list[Path]:
    named = subprocess.run(
        ["git", "rev-parse", f"HEAD:{MODULE}"], cwd=client.root, capture_output=True, text=True, check=True
    )
    return list((client.server.home / "fmha" / "bytecode").glob(f"{named.stdout.strip()}.*.pyc"))


def test_a_new_worktree_is_not_compiled_again(client: Client):
    run(client)
    (source,) = kept(client)
    (found,) = compiled(run(client))
    assert found.read_bytes()[4:8] == CHECKED_HASH
    assert found.samefile(source)


def test_bytecode_of_another_source_is_not_believed(client: Client):
    run(client)
    (path,) = kept(client)
    trap = b"raise SystemExit('believed')"
    code = marshal.dumps(compile(trap, "trap", "exec"))
    start = path.read_bytes()[:4] + CHECKED_HASH
    try:
        path.write_bytes(start + importlib.util.source_hash(trap) + code)
        run(client)
        # The trap works: with the hash of this source it is sprung.
        path.write_bytes(start + importlib.util.source_hash((client.root / MODULE).read_bytes()) + code)
        done = client.run("run-matrix", "--host", "gpu", "-q")
        assert done.returncode == 3
        assert "believed" in done.stderr
    finally:
        path.unlink()
