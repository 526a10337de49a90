"""A commit whose own harness decides, over a real sshd: it is in a sandbox as a whole, and reaches nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmha.harness import isolate
from fmha.harness.errors import ExitCode
from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
ONE = ("--host", "real", "--suite", "proven", "--filter", "t=32,sk=128", "--judge", "own")
# In the gate, which the runner loads on the host; here, where the client loads it as well, it does nothing.
TRIES = """

def _tries() -> None:
    import json, os, pwd, socket, subprocess
    if "FMHA_RUN" not in os.environ:
        return
    home = pwd.getpwuid(os.getuid()).pw_dir
    run = f"{home}/fmha/runs/{os.environ['FMHA_RUN']}"
    def able(action):
        try:
            action()
        except (OSError, ImportError):
            return False
        return True
    did = {
        "reads ~/.ssh": able(lambda: open(f"{home}/.ssh/secret").read()),
        "a program reads ~/.ssh": subprocess.run(["cat", f"{home}/.ssh/secret"], capture_output=True).returncode == 0,
        "adds a key": able(lambda: open(f"{home}/.ssh/authorized_keys", "a")),
        "writes the home": able(lambda: open(f"{home}/written", "w")),
        "writes what is approved": able(lambda: open(f"{home}/fmha/approved/x.json", "w")),
        "writes its events": able(lambda: open(f"{run}/events.jsonl", "a")),
        "writes its tree": able(lambda: open(f"{run}/tree/written", "w")),
        "writes the bytecode": able(lambda: open(f"{home}/fmha/bytecode/x", "w")),
        "writes the host's builds": able(lambda: open(f"{home}/fmha/cache/x", "w")),
        "imports what lies beside": able(lambda: __import__("beside")),
        "runs what lies beside": os.path.exists(f"{os.environ['HOME']}/customized"),
        "reads another run": able(lambda: os.listdir(f"{home}/fmha/runs/OTHER")),
        "has a network": able(lambda: socket.create_connection(("127.0.0.1", PORT), 5)),
        "has a socket": able(lambda: socket.socket(socket.AF_UNIX)),
    }
    with open(f"{os.environ['HOME']}/tried.json", "w") as file:
        json.dump(did, file)

_tries()
"""


@pytest.fixture
def hostile(client: Client) -> Client:
    """A commit with such a harness, on a host that has run another and has a secret in its home."""
    ssh = client.server.home / ".ssh"
    secret = ssh / "secret"
    subprocess.run(["install", "-d", "-m", "700", "-o", str(client.server.uid), str(ssh)], check=True)
    subprocess.run(["install", "-m", "600", "-o", str(client.server.uid), os.devnull, str(secret)], check=True)
    first = client.run("run-matrix", *ONE)
    assert first.returncode == ExitCode.PASS, first.stdout + first.stderr
    (other,) = client.runs()
    gate = client.root / "harness" / "judge" / "gate.py"
    tries = TRIES.replace("PORT", str(client.server.port)).replace("OTHER", other.name)
    gate.write_text(gate.read_text() + tries)
    git(client.root, "checkout", "-q", "-b", "request")
    (client.root / "beside.py").write_text("")
    (client.root / "sitecustomize.py").write_text("import os\nopen(os.environ['HOME'] + '/customized', 'w')\n")
    git(client.root, "add", ".")
    git(client.root, "commit", "-q", "-m", "Look around")
    return client


@contextlib.contextmanager
def without_bubblewrap(client: Client) -> Iterator[None]:
    """As where user namespaces are off."""
    lacking = client.server.folder / "bin" / "bwrap"
    lacking.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    lacking.chmod(0o755)
    try:
        yield
    finally:
        lacking.unlink()


def did(place: Path) -> set[str]:
    said: dict[str, Any] = json.loads((place / "tried.json").read_text())
    return {name for name, able in said.items() if able}


@pytest.mark.slow
def test_it_reaches_its_run_alone(hostile: Client) -> None:
    home = hostile.server.home
    for mechanism in isolate.MECHANISMS:
        if mechanism == "bubblewrap" and isolate.isolation().mechanism != mechanism:
            continue  # apt install bubblewrap
        with without_bubblewrap(hostile) if mechanism == "landlock" else contextlib.nullcontext():
            ran = hostile.run("run-matrix", *ONE, "--isolation", "require", "--approve-protected")
        assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
        assert ran.stdout.splitlines()[-1] == "PASS 1 of 1 (by the commit's own harness)"
        assert f"isolated by {mechanism}, with the commit's own harness" in ran.stderr
        # A home in /dev/shm, as this one may be, is a folder of memory that goes with the sandbox.
        assert did(hostile.runs()[-1] / "workers") <= {"writes the home"}
        assert not (home / "written").exists()
        host = hostile.records()[-1]["host"]
        assert isinstance(host, dict)
        assert host["isolation"] == mechanism
        assert (host["own_harness_enclosed"], host["own_harness_outside"]) == (True, False)
    without = hostile.run("run-matrix", *ONE, "--isolation", "off")
    assert without.returncode == ExitCode.INFRASTRUCTURE
    assert "the worktree on the host was changed: 'written'" in without.stderr
    assert did(home) >= {"reads ~/.ssh", "adds a key", "writes the home", "has a network", "reads another run"}
    for name in ("tried.json", "written", ".ssh/authorized_keys", "fmha/approved/x.json", "fmha/cache/x"):
        (home / name).unlink(missing_ok=True)


@pytest.mark.slow
def test_it_does_not_say_how_it_is_enclosed(client: Client) -> None:
    """That is the supervisor's word, which the record repeats."""
    hosted, end = client.root / "harness" / "stages" / "hosted.py", 'say({"kind": "end"})'
    lie = 'say({"kind": "isolation", "mechanism": "bubblewrap", "missing": "", "whole": False})'
    assert end in hosted.read_text()
    hosted.write_text(hosted.read_text().replace(end, f"{lie}; {end}"))
    git(client.root, "checkout", "-q", "-b", "request")
    git(client.root, "commit", "-q", "-a", "-m", "Say something else")
    ran = client.run("run-matrix", *ONE, "--approve-protected")
    assert ran.returncode == ExitCode.INFRASTRUCTURE, ran.stdout + ran.stderr
    assert "the runner may not say 'isolation'" in ran.stderr


@pytest.mark.slow
def test_what_it_leaves_in_its_cache_serves_nobody_else(client: Client) -> None:
    """A build of a good kernel under the key of a broken one. In the host's cache it would be taken, by any harness."""
    host = client.server.home / "fmha" / "cache"
    source, total = client.root / "kernel" / "common" / "row_output.cuh", "params.row_sum[index] = sum;"
    assert total in source.read_text()
    source.write_text(f"// in no cache\n{source.read_text()}")
    git(client.root, "commit", "-q", "-a", "-m", "Say so")
    first = client.run("run-matrix", *ONE)
    assert first.returncode == ExitCode.PASS, first.stdout + first.stderr
    good = _built(client)
    git(client.root, "checkout", "-q", "-b", "request")
    source.write_text(source.read_text().replace(total, total.replace("sum;", "1.5f * sum;")))
    git(client.root, "commit", "-q", "-a", "-m", "Break the sum")
    before = set(host.iterdir())
    assert client.run("run-matrix", *ONE).returncode == ExitCode.GATE_FAILED
    broken = _built(client)
    _plant(good, broken)
    assert set(host.iterdir()) == before
    judged = client.run("run-matrix", *ONE[:-1], "main")
    assert judged.returncode == ExitCode.GATE_FAILED, judged.stdout + judged.stderr
    (entry,) = set(host.iterdir()) - before
    shutil.copytree(broken, entry, dirs_exist_ok=True)
    fooled = client.run("run-matrix", *ONE)
    assert fooled.returncode == ExitCode.PASS, fooled.stdout + fooled.stderr
    shutil.rmtree(entry)


def _built(client: Client) -> Path:
    """The one entry that the last run has made in the cache of its own, where those of the host are links."""
    entries = (client.runs()[-1] / "own" / "cache").glob("*-*-*")
    (made,) = [entry for entry in entries if not entry.is_symlink()]
    return made


def _plant(good: Path, broken: Path) -> None:
    """The build of a good kernel in place of a broken one's, with all that the cache looks at."""
    manifest = json.loads((broken / "manifest.json").read_text())
    for name in manifest["files"]:
        if name.endswith(".ptx"):
            data = (good / name).read_bytes()
            (broken / name).write_bytes(data)
            manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (broken / "manifest.json").write_text(json.dumps(manifest))
