"""Runs on a cluster: a real Slurm with two nodes on loopback, and what goes wrong there, for real."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import DEVICE, Client, started
from tests.remote.server import MARK
from tests.remote.slurm import NODES, Slurm, cluster

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("connection"), pytest.mark.timeout(900)]
SLOW = "hd64_t65_sk128"
MANY = {"head_dim": [64], "t": [*range(64, 72)], "s_k": [128]}


@pytest.fixture(scope="module")
def slurm(public_folder: Path) -> Iterator[Slurm]:
    with cluster(public_folder / "slurm") as running:
        yield running


@pytest.fixture
def login(client: Client, slurm: Slurm, public_folder: Path) -> Iterator[Client]:
    """A client on the login node of the cluster, which is this machine."""
    client.home = public_folder / "login"
    folder = client.home / "fmha"

    def change(matrix: dict) -> None:
        matrix["suites"]["many"] = {"axes": MANY}
        matrix["default_suite"] = "many"
        matrix["hosts"]["cluster"] = {
            "kind": "slurm",
            "device": DEVICE,
            "folder": str(folder),
            "python": sys.executable,
            "nvcc": matrix["hosts"]["gpu"]["nvcc"],
            "env": {"SLURM_CONF": str(slurm.config), MARK: str(client.server.folder)},
            "environment": {"setup": ""},
            "sync": "direct",
            "protected": [],
            "slurm": {"login": "here", "tasks": 2, "time": "5", "late_seconds": 4},
        }

    client.change_matrix(change)
    yield client
    assert not eventually_left(slurm)
    for node in NODES:
        if node not in slurm.daemons:
            slurm.start(node)
    assert eventually(slurm.ready)


def eventually_left(slurm: Slurm) -> list[str]:
    eventually(lambda: not slurm.left_over())
    return [" ".join(process.cmdline()) for process in slurm.left_over()]


def numbers(record: dict) -> dict[str, str]:
    return {item["id"]: item["metrics"]["output_hash"] for item in record["configurations"]}


def notes(client: Client) -> str:
    return "\n".join(
        str(event["text"]) for run in client.runs() for event in client.events(run) if event["kind"] == "note"
    )


def node_of_the_slow(client: Client, slurm: Slurm) -> str:
    """The node that runs SLOW, which is held."""
    (run,) = client.runs()
    (path,) = [
        path
        for path in run.glob("cluster/*/*/tasks/*/events.jsonl")
        if f'"started","config":"{SLOW}"' in path.read_text()
    ]
    return str(json.loads(path.read_text().splitlines()[0])["node"])


def finished(client: Client, process: object, code: int = 0) -> dict:
    stdout, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)  # type: ignore[attr-defined]
    assert process.returncode == code, stdout + stderr  # type: ignore[attr-defined]
    (record,) = client.records()
    return record


def test_two_nodes_measure_what_one_machine_does(login: Client, slurm: Slurm):
    alone = login.run("run-matrix", "--host", "gpu", "--drawn", "5")
    assert alone.returncode == 0, alone.stderr
    (here,) = login.records()
    for path in (login.root / "results").glob("*.json"):
        path.unlink()
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--drawn", "5")
        login.wait_for(
            lambda events: (
                sum(event.get("kind") == "event" and event["event"]["event"] == "result" for event in events) == 7
            )
        )
    there = finished(login, process)
    assert numbers(there) == numbers(here)
    assert {item["place"] for item in there["configurations"]} == set(NODES)
    assert "Slurm job" in notes(login)


def test_a_node_that_dies_costs_no_configuration(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        dead = node_of_the_slow(login, slurm)
        slurm.kill(dead)
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
    assert slow["place"] in set(NODES) - {dead}
    assert f"{SLOW} is run again" in notes(login)


def test_a_task_that_is_requeued_runs_again(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--workers", "1")
        login.wait_for(started(SLOW))
        (job,) = slurm.ask("squeue", "--noheader", "--format=%A").split()
        slurm.ask("scontrol", "requeue", job)
        assert eventually(lambda: not slurm.left_over())
    slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")


def test_what_is_cancelled_from_outside_is_not_run_again(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--workers", "1")
        login.wait_for(started(SLOW))
        slurm.ask("scancel", *slurm.ask("squeue", "--noheader", "--format=%A").split())
        record = finished(login, process, 4)
    statuses = login.statuses()
    assert statuses[SLOW] == "not-run"
    assert set(statuses.values()) == {"pass", "not-run"}
    (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
    assert "cancelled from outside" in slow["reasons"][0]


def test_a_controller_that_is_restarted_is_waited_for(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        slurm.kill("slurmctld")
        assert eventually(lambda: "Slurm does not answer" in notes(login))
        slurm.start("slurmctld")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert eventually(slurm.ready)


def test_a_drained_cluster_is_waited_for_and_the_reason_told(login: Client, slurm: Slurm):
    slurm.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=DRAIN", "Reason=test")
    process = login.start("run-matrix", "--host", "cluster")
    assert eventually(lambda: "tasks wait: " in notes(login)), notes(login)
    slurm.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME")
    finished(login, process)


def test_cancel_ends_the_array(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW)).name
        done = login.run("cancel", run, "--host", "cluster")
        assert done.returncode == 0, done.stderr
        assert not eventually_left(slurm)
        finished(login, process, 4)
    assert login.statuses()[SLOW] == "not-run"


def test_a_client_that_leaves_finds_everything(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW)).name
        process.kill()
        process.wait()
    assert login.run("attach", run, "--host", "cluster").returncode == 0
    assert set(login.statuses().values()) == {"pass"}


def test_the_array_ends_with_the_run_whose_supervisor_is_killed(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW))
        os.kill(json.loads((run / "supervisor.json").read_text())["pid"], signal.SIGKILL)
        assert not eventually_left(slurm)
        finished(login, process, 3)
    assert login.statuses()[SLOW] == "infra-error"


def test_what_slurm_refuses_is_told_in_its_words(login: Client, slurm: Slurm):
    (good,) = [line for line in login.run("doctor", "--host", "cluster").stdout.splitlines() if "slurm" in line]
    assert "partitions main" in good
    login.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(partition="nobody"))
    assert "no partition is named nobody" in login.run("doctor", "--host", "cluster").stdout
    done = login.run("run-matrix", "--host", "cluster")
    assert done.returncode == 3
    assert "Slurm refuses the job" in done.stderr
    assert "invalid partition" in done.stderr.lower()
