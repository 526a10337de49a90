"""One run on several hosts, over a real sshd. What only answers decide is in tests/harness/test_several.py."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, started

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
SHARED = [f"hd64_t{t}_sk128_causal" for t in range(64, 70)]
FALLBACK = "hd64_t32_sk256"  # of the guard, which runs on every host before its share


@pytest.fixture
def twins(client: Client) -> Client:
    """`twin` is one more host, with the folder and the one GPU of `gpu`."""

    def change(matrix: dict) -> None:
        matrix["hosts"]["twin"] = dict(matrix["hosts"]["gpu"])
        axes = {"head_dim": [64], "t": [*range(64, 70)], "s_k": [128], "mask": ["causal"]}
        matrix["suites"]["shared"] = {"axes": axes}

    client.change_matrix(change)
    return client


def host_of(run: Path) -> str:
    return str(json.loads((run / "job.json").read_text())["work"]["host"])


def places(client: Client) -> dict[str, str]:
    """Of the one record there is."""
    (record,) = client.records()
    return {item["id"]: item["place"] for item in record["configurations"] if item["selected"]}


def test_two_hosts_share_a_run(twins: Client):
    command = ("run-matrix", "--host", "gpu,twin", "--suite", "shared")
    shares = json.loads(twins.run(*command, "--dry-run", "--json").stdout)["shares"]
    done = twins.run(*command)
    assert done.returncode == 0, done.stderr
    assert twins.statuses() == dict.fromkeys([FALLBACK, *SHARED], "pass")
    assert places(twins) == {name: host for host, names in shares.items() for name in names}
    assert [len(names) for names in shares.values()] == [3, 3]
    (record,) = twins.records()
    assert [host["name"] for host in record["host"]["hosts"]] == ["gpu", "twin"]
    by_host = {host_of(run): run for run in twins.runs()}
    for host, names in shares.items():
        assert [name for name in SHARED if started(name)(twins.events(by_host[host]))] == sorted(names)


def test_each_of_two_hosts_runs_everything(twins: Client):
    done = twins.run("run-matrix", "--host", "gpu,twin", "--each", "--suite", "shared", "-q")
    assert done.returncode == 0, done.stderr
    (record,) = twins.records()
    for item in record["configurations"]:
        assert set(item["hashes"]) == {"gpu", "twin"}
        assert len(set(item["hashes"].values())) == 1


def test_a_host_dies_and_the_other_takes_over(twins: Client):
    """While the first has the GPU, the second waits for it; there its supervisor is killed."""
    with twins.server.hold("t32") as hold:
        process = twins.start("run-matrix", "--host", "gpu,twin", "--suite", "shared")
        twins.wait_for(started(FALLBACK))
        assert eventually(lambda: len(twins.runs()) == 2)
        (waiting,) = [run for run in twins.runs() if not started(FALLBACK)(twins.events(run))]
        assert eventually(lambda: (waiting / "supervisor.json").exists())
        os.kill(json.loads((waiting / "supervisor.json").read_text())["pid"], signal.SIGKILL)
        assert eventually(lambda: not [line for line in twins.server.left_over() if waiting.name in line])
        hold.release()
        _, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    dead = host_of(waiting)
    (alive,) = {"gpu", "twin"} - {dead}
    assert places(twins) == dict.fromkeys(SHARED, alive)
    # Whether its own keeper or this client sees the death first decides how it is told.
    lost, silent = f"is lost (run {waiting.name})", f"has no answer for some of its share (run {waiting.name})"
    assert f"fmha: {dead} {lost}" in stderr or f"fmha: {dead} {silent}" in stderr
    assert f"what it has not done goes to {alive}" in stderr
