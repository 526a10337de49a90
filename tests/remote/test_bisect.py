"""A bisection that tests several commits at a time, on hosts over a real sshd."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, started

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
COMMITS = 9  # the first is good
CULPRIT = 5
HELD = "hd64_t1_sk128"


@pytest.fixture
def history(client: Client) -> Client:
    """Commits of which one drops a configuration. `twin` is a host of its own."""

    def begin(matrix: dict) -> None:
        # Each commit has a matrix.yaml of its own, and so a harness that is enclosed as a whole: what is held is not
        # seen from there, and a run would be over by the time that it is looked for.
        matrix["hosts"]["gpu"]["isolation"] = "off"
        gpus = matrix["hosts"]["gpu"]["gpus"]
        matrix["hosts"]["twin"] = matrix["hosts"]["gpu"] | {"gpus": {"locks": f"{gpus['locks']}/twin"}}

    client.change_matrix(begin)
    for place in range(COMMITS):
        client.change_matrix(lambda matrix, place=place: matrix["limits"].update(build_seconds=200 + place))
        if place == CULPRIT:
            client.change_matrix(lambda matrix: matrix["suites"]["good"]["axes"].update(t=[1]))
            git(client.root, "tag", "culprit")
    return client


def bisect(hosts: str, *more: str) -> tuple[str, ...]:
    return ("bisect", f"HEAD~{COMMITS}", "HEAD", "--for", "not-run", "--host", hosts, "--json", *more)


def running(client: Client) -> list[Path]:
    """Runs that have begun the configuration that is held."""
    return [run for run in client.runs() if started(HELD)(client.events(run))]


def commit_of(run: Path) -> str:
    return str(json.loads((run / "job.json").read_text())["sha"])


def test_two_hosts_test_two_commits_at_a_time(history: Client):
    with history.server.hold("t1"):
        process = history.start(*bisect("gpu,twin"))
        assert eventually(lambda: len(running(history)) == 2)
    stdout, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    found = json.loads(stdout)
    culprit = (history.root / ".git/refs/tags/culprit").read_text().strip()
    assert found["commit"] == culprit
    checked_out, _, told = found["again"].partition(" && fmha run-matrix --host ")
    assert checked_out == f"git checkout {culprit[:12]}"
    assert told.split()[0] in ("gpu", "twin"), "the host that ran it, whichever of the two"
    runs = [commit_of(run) for run in history.runs()]
    assert len(set(runs)) == len(runs) == found["commits_run"], "a commit was run twice"
    # Both ends in one round, then thirds of ten and of four, at the most.
    assert len(runs) <= 2 + 2 + 2 + 2
    again = history.run(*bisect("gpu,twin"))
    assert json.loads(again.stdout)["commit"] == culprit
    assert len(history.runs()) == len(runs)


def test_one_host_tests_two_commits_at_a_time(history: Client):
    """Which have one device between them, and wait for each other there."""
    done = history.run(*bisect("gpu", "--at-once", "2"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"] == (history.root / ".git/refs/tags/culprit").read_text().strip()


def test_a_host_dies_in_a_bisection_and_the_other_goes_on(history: Client):
    with history.server.hold("t1"):
        process = history.start(*bisect("gpu,twin"))
        assert eventually(lambda: len(running(history)) == 2)
        dead = running(history)[0]
        os.kill(json.loads((dead / "supervisor.json").read_text())["pid"], signal.SIGKILL)
        assert eventually(lambda: not [line for line in history.server.left_over() if dead.name in line])
    stdout, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["commit"] == (history.root / ".git/refs/tags/culprit").read_text().strip()
    host = json.loads((dead / "job.json").read_text())["work"]["host"]
    assert f"{host} is lost: " in stderr
    assert f"the other hosts test {commit_of(dead)[:12]}" in stderr


def test_hosts_that_cannot_share_a_bisection(history: Client):
    for hosts, words in {
        "gpu,real": "gpu runs ",
        "gpu,emulator": "emulator keeps no runs",
        "gpu,gpu": "a name is empty or repeated",
    }.items():
        done = history.run(*bisect(hosts))
        assert done.returncode == 2
        assert words in done.stderr
