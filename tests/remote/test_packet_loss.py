"""Packets lost between client and host: nobody is told, so only time limits notice."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, fresh_client, in_state, make_template, started
from tests.remote.network import SERVER, Network, network
from tests.remote.server import Server, serving
from tests.remote.test_connection_faults import GOOD, held_at, reached

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
SILENCE_SECONDS = 4


@pytest.fixture(scope="module")
def between() -> Iterator[Network]:
    with network() as made:
        yield made


@pytest.fixture(scope="module")
def far(between: Network, public_folder: Path, repository: Path) -> Iterator[tuple[Path, Server]]:
    """A server in a network of its own, with its caches filled, and a project to run on it."""
    folder = public_folder / "far"
    with serving(folder / "server", between.server, SERVER) as server:
        root = make_template(folder, repository, server)
        with fresh_client(root, server, folder / "first", between.client) as first:
            first.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(silence_seconds=SILENCE_SECONDS))
            done = first.run("run-matrix", "--host", "gpu")
            assert done.returncode == 0, done.stderr
        shutil.rmtree(first.root / "results")
        yield first.root, server


@pytest.fixture
def client(far: tuple[Path, Server], between: Network, tmp_path: Path) -> Iterator[Client]:
    root, server = far
    with fresh_client(root, server, tmp_path, between.client, {"ConnectTimeout": "3"}) as made:
        yield made
        between.heal()


def until(stream: IO[str] | None, words: str) -> str:
    """Reads to the line that has the words, and returns all that was read."""
    assert stream is not None
    said = ""
    while words not in said and (line := stream.readline()):
        said += line
    assert words in said, said
    return said


def agents(client: Client) -> list[str]:
    """The agents on the host that still serve a connection; keeper and supervisor come from one, in another session."""
    found = []
    for line in client.server.left_over():
        pid = int(line.split()[0])
        with contextlib.suppress(psutil.Error):
            if "sys.stdin.buffer.readline" in line and psutil.Process(pid).parent().name() == "sshd":
                found.append(line)
    return found


def test_no_packet_arrives_when_it_connects(client: Client, between: Network):
    between.cut()
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert f"cannot reach {SERVER} port {client.server.port}: Connection timed out" in done.stderr
    assert client.runs() == []


@pytest.mark.parametrize(
    "stage", ["git", *(pytest.param(at, marks=pytest.mark.nightly) for at in ("setup", "nvcc", "t1", "t32"))]
)
def test_packets_are_lost_for_a_while(client: Client, between: Network, stage: str):
    """While the commit travels, in the environment's set-up, in the build, and while configurations run."""
    with held_at(client, stage) as (process, hold):
        between.cut()
        said = until(process.stderr, "trying again")
        assert f"nothing came for {SILENCE_SECONDS} s" in said
        hold.release()
        between.heal()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, said + stderr
    assert client.statuses() == GOOD
    assert len(client.runs()) == 1


@pytest.mark.parametrize("stage", ["git", "t1"])
def test_a_host_that_has_nothing_to_say_is_not_lost(client: Client, stage: str):
    """While it receives the commit, and while a configuration runs, for longer than the silence that it may keep."""
    git(client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
    reached(client, stage)
    with client.server.hold(stage):
        process = client.start("run-matrix", "--host", "gpu")
        if stage == "git":
            assert eventually(lambda: reached(client, stage))
        else:
            client.wait_for(started("hd64_t1_sk128"))
        start = time.monotonic()
        eventually(lambda: process.poll() is not None or time.monotonic() - start > 2 * SILENCE_SECONDS)
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    assert "trying again" not in stderr


def test_packets_are_lost_while_the_results_are_fetched(client: Client, between: Network):
    """The run ends while nobody can hear of it."""
    with client.server.hold("t32") as hold:
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t32_sk128"))
        between.cut()
        hold.release()
        assert eventually((run / "status.json").exists)
        said = until(process.stderr, "trying again")
        between.heal()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, said + stderr
    assert client.statuses() == GOOD
    assert len(client.records()) == 1


def test_packets_are_lost_for_longer_than_the_client_is_patient(client: Client, between: Network):
    """It gives up and says how to go on; the agent at the other end goes too, the run does not."""
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(reconnect_seconds=2))
    with client.server.hold("t1"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t1_sk128"))
        between.cut()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 3
        assert "the run goes on without us" in stderr
        assert f"fmha attach {run.name}" in stderr
        assert eventually(lambda: not agents(client)), agents(client)
        between.heal()
    done = client.run("attach", run.name)
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD
    assert in_state("run")(client.events(run))
