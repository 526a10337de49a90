"""What isolates a run on its host: the runner of a judge without a wall of its own is enclosed whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fmha.harness import isolate
from fmha.harness.supervisor.enclosure import enclosed
from fmha.harness.supervisor.rundir import HostError, RunDirectory

RUN = f"20260101T000000Z-{'0' * 12}-{'0' * 8}"
TRIES = """
import json, os, socket, sys
folder, secret, log = sys.argv[1:4]
def able(action):
    try: action()
    except OSError: return False
    return True
print(json.dumps({
    "reads the tree": able(lambda: open(folder + "/runs/RUN/tree/source").read()),
    "reads a secret": able(lambda: open(secret).read()),
    "writes the tree": able(lambda: open(folder + "/runs/RUN/tree/source", "w")),
    "writes its events": able(lambda: open(folder + "/runs/RUN/events.jsonl", "a")),
    "writes the bytecode": able(lambda: open(folder + "/bytecode/x", "w")),
    "writes what is approved": able(lambda: open(folder + "/approved/x", "w")),
    "writes the workers' folder": able(lambda: open(folder + "/runs/RUN/workers/x", "w")),
    "writes the host's cache": able(lambda: open(folder + "/cache/x", "w")),
    "writes its cache": able(lambda: open(folder + "/runs/RUN/own/cache/x", "w")),
    "has a network": able(lambda: socket.create_connection(("127.0.0.1", int(log)), 5)),
    "its parent": sys.argv[-1] == str(os.getppid()),
    "token": os.environ.get("SSH_AUTH_SOCK"),
}))
""".replace("RUN", RUN)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    folder = tmp_path / "fmha"
    for name in ("bytecode", "approved", "cache"):
        (folder / name).mkdir(parents=True)
    made = RunDirectory(folder, RUN)
    made.create({"x": 1})
    made.tree.mkdir()
    cache(made).mkdir(parents=True)
    (made.tree / "source").write_text("of the commit")
    (tmp_path / "secret").write_text("of the account")
    return made


def job(isolation: str) -> dict[str, Any]:
    return {"isolation": isolation, "env": {}, "nvcc": "", "gpu": {"query": False}}


def cache(directory: RunDirectory) -> Path:
    return directory.path / "own" / "cache"


def tried(directory: RunDirectory, isolation: str, port: int) -> tuple[dict[str, Any], str, str]:
    secret = directory.folder.parent / "secret"
    command = [sys.executable, "-c", TRIES, str(directory.folder), str(secret), str(port)]
    inside = enclosed(command, directory, directory.tree, job(isolation), {"X": "1"}, cache(directory))
    done = subprocess.run(
        inside.command, env=inside.environment, cwd=directory.tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), inside.mechanism, inside.missing


@pytest.fixture
def port() -> Any:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.skipif(isolate.isolation().mechanism != "bubblewrap", reason="no bubblewrap that works: apt install it")
def test_an_older_judges_runner_reaches_its_run_alone(
    directory: RunDirectory, port: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    for wanted in ("auto", "require"):
        did, mechanism, missing = tried(directory, wanted, port)
        assert {name for name, able in did.items() if able} == {
            "reads the tree", "writes the workers' folder", "writes its cache", "its parent",
        }  # fmt: skip
        assert (mechanism, missing) == ("bubblewrap", "")


def test_without_a_sandbox_that_is_said(directory: RunDirectory, port: int):
    did, mechanism, missing = tried(directory, "off", port)
    assert did["reads a secret"]
    assert did["its parent"]
    assert mechanism == "none"
    assert missing == "not isolated: switched off for this host"


def walled(directory: RunDirectory) -> Path:
    (directory.tree / "harness").mkdir()
    shutil.copytree(Path(isolate.__file__).parent, directory.tree / "harness" / "isolate")
    return directory.tree


@pytest.mark.parametrize("judged", [{"judge": "0" * 40}, {"alike": True}])
def test_a_judge_with_a_wall_is_left_to_it(directory: RunDirectory, judged: dict[str, Any]):
    inside = enclosed(["python"], directory, walled(directory), job("auto") | judged, {}, cache(directory))
    assert not inside.whole
    assert inside.command[0] == "/bin/sh"
    assert inside.environment["FMHA_ISOLATION"] == "auto"


@pytest.mark.skipif(isolate.isolation().mechanism not in isolate.MECHANISMS, reason="nothing here encloses")
@pytest.mark.parametrize("claimed", [{}, {"alike": False}, {"alike": True, "forced": True}])
def test_a_harness_of_the_commits_own_is_enclosed_as_a_whole(directory: RunDirectory, claimed: dict[str, Any]):
    """That it is the default branch's counts for nothing where a key can only run commits. What it encloses itself
    takes what there is: what is required is around it."""
    tree = walled(directory)
    for gpu, within in ((False, "auto"), (True, "off")):
        wish = job("require") | claimed | {"gpu": {"query": gpu}}
        inside = enclosed([sys.executable], directory, tree, wish, {}, cache(directory))
        assert inside.whole
        assert inside.mechanism in isolate.MECHANISMS
        assert inside.environment["FMHA_ISOLATION"] == within


def test_what_a_host_requires_and_does_not_have_ends_the_run(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    """As on a login node of a cluster, whose tasks are not the supervisor's to enclose."""
    with pytest.raises(HostError, match="requires a sandbox") as caught:
        enclosed(["python"], directory, directory.tree, job("require") | {"slurm": {"tasks": 1}}, {}, cache(directory))
    assert "--isolation" in caught.value.next_step
    inside = enclosed(
        ["python"], directory, directory.tree, job("auto") | {"slurm": {"tasks": 1}}, {}, cache(directory)
    )
    assert inside.missing.startswith("not isolated: ")
    assert os.environ.get("FMHA_ISOLATION") in (None, "auto", "require", "off")


def test_root_is_told_that_its_own_harness_gets_no_gpu_under_landlock(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(isolate, "isolation", lambda policy="": isolate.Isolation("landlock"))
    wall = directory.tree / "harness" / "isolate" / "__init__.py"
    wall.parent.mkdir(parents=True)
    wall.touch()
    wanted = job("auto") | {"gpu": {"query": True}}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(HostError, match="gets no GPU as root") as told:
        enclosed([sys.executable, "-c", "x"], directory, directory.tree, wanted, {}, cache(directory))
    assert "--judge" in told.value.next_step
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert enclosed([sys.executable, "-c", "x"], directory, directory.tree, wanted, {}, cache(directory)).whole
