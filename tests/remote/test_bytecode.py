"""What Python compiles for a worktree is made by the supervisor, kept for the next one, and used as it was made."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import marshal
import subprocess
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
MODULE = Path("harness/judge/gate.py")  # the runner loads it, and it is brought for workers
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
    made = source.stat().st_mtime_ns
    (found,) = compiled(run(client))
    assert found.read_bytes()[4:8] == CHECKED_HASH
    assert found.read_bytes() == source.read_bytes()
    assert source.stat().st_mtime_ns == made
    assert not found.samefile(source)  # whoever writes there writes for one run


def trap(client: Client, start: bytes) -> bytes:
    """A pyc that says of itself that it is of this very source, and is not."""
    code = marshal.dumps(compile(b"raise SystemExit('believed')", "trap", "exec"))
    return start + CHECKED_HASH + importlib.util.source_hash((client.root / MODULE).read_bytes()) + code


def test_a_changed_pyc_of_the_host_is_not_run(client: Client):
    run(client)
    (path,) = kept(client)
    good = path.read_bytes()
    changed = trap(client, good[:4])
    path.write_bytes(changed)
    run(client)
    assert path.read_bytes() not in (changed, b"")  # made anew from the source


def test_the_trap_would_be_sprung(client: Client):
    """Python believes what the file says of itself: with the manifest changed as well, it runs."""
    run(client)
    (path,) = kept(client)
    good, manifest = path.read_bytes(), path.parent / "manifest.json"
    noted = json.loads(manifest.read_text())
    data = trap(client, good[:4])
    try:
        path.write_bytes(data)
        changed = {**noted["files"], path.stem: hashlib.sha256(data).hexdigest()}
        manifest.write_text(json.dumps({**noted, "files": changed}))
        git(client.root, "commit", "-q", "--allow-empty", "-m", "another commit")
        done = client.run("run-matrix", "--host", "gpu", "-q")
        assert done.returncode == 3
        assert "believed" in done.stderr
    finally:
        path.unlink()
        manifest.write_text(json.dumps(noted))


def test_what_a_run_leaves_in_its_tree_is_nobody_elses(client: Client):
    """A commit's own code may write where Python looks for bytecode; the next commit has a tree of its own."""
    tree = run(client)
    (found,) = compiled(tree)
    found.chmod(0o644)
    found.write_bytes(trap(client, found.read_bytes()[:4]))
    run(client)
