"""A commit that brings its own judge, over a real sshd: it is judged by the one that it branched from."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from fmha.harness.errors import ExitCode
from tests.evidence.seeded_history import edit
from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
ONE = ("--host", "real", "--suite", "proven", "--filter", "t=32,sk=128")


def lse_in_base_2(client: Client) -> None:
    """The kernel writes another LSE, the reference expects it, and the tests that would say so are gone."""
    edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1")(client.root)
    reference = client.root / "harness" / "judge" / "oracle" / "reference.py"
    text, count = re.subn(r"np\.log\(row_sum\)", "np.log2(row_sum)", reference.read_text())
    assert count == 1
    reference.write_text(text)
    shutil.rmtree(client.root / "tests" / "kernel")


@pytest.mark.slow
def test_a_pull_request_that_alters_its_own_judge_is_not_green(client: Client) -> None:
    git(client.root, "checkout", "-q", "-b", "request")
    lse_in_base_2(client)
    git(client.root, "commit", "-q", "-a", "-m", "LSE, faster")
    ran = client.run("run-matrix", *ONE)
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stdout + ran.stderr
    assert "judge changed: harness/judge/oracle/reference.py" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("FAIL the commit changes its own judge, and nobody accepted that")
    (record,) = client.records()
    assert record["judge"]["changed"] == ["harness/judge/oracle/reference.py"]
    (item,) = record["configurations"]
    assert item["status"] == "fail"
    assert {check["name"] for check in item["failed_checks"]} == {"lse_error"}
    accepted = client.run("run-matrix", *ONE, "--accept-judge", "base 2 is what users asked for", "--json")
    assert json.loads(accepted.stdout)["judge"]["accepted"] == "base 2 is what users asked for"
    assert accepted.returncode == ExitCode.GATE_FAILED, "accepting the judge does not make the kernel right"


def test_a_commit_that_only_launches_otherwise_brings_its_launcher(client: Client) -> None:
    """The parameter struct's other half may change with the kernel, and it cannot reach the judge from there."""
    git(client.root, "checkout", "-q", "-b", "request")
    launch = client.root / "harness" / "kernel_side" / "launch.py"
    reach = "import fmha.harness.judge.oracle.measure as judge\njudge.measure = lambda *_: 1 / 0\n"
    launch.write_text(launch.read_text() + reach)
    git(client.root, "commit", "-q", "-a", "-m", "Reach for the judge")
    ran = client.run("run-matrix", *ONE)
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    assert "judge changed" not in ran.stdout
    (record,) = client.records()
    assert record["judge"]["changed"] == []
    assert len(record["judge"]["commit"]) == 40


def test_a_verdict_says_when_the_commits_own_harness_gave_it(client: Client) -> None:
    """Which ran on the host in a sandbox as a whole, or outside of any. With another judge nothing of the commit
    decides, and a harness that is the default branch's is none of its own."""
    of_main = client.run("attach", client.detached())
    assert (of_main.returncode, of_main.stdout.splitlines()[-1]) == (ExitCode.PASS, "PASS 2 of 2"), of_main.stderr
    git(client.root, "checkout", "-q", "-b", "request")
    gate = client.root / "harness" / "judge" / "gate.py"
    gate.write_text(f"{gate.read_text()}# as before\n")
    git(client.root, "commit", "-q", "-a", "-m", "Say something in the judge")
    says = "PASS 2 of 2 (by the commit's own harness)"
    own = client.run("run-matrix", "--host", "gpu", "--judge", "own")
    assert (own.returncode, own.stdout.splitlines()[-1]) == (ExitCode.PASS, says), own.stderr
    run = client.detached("--judge", "own")
    attached = client.run("attach", run)
    assert (attached.returncode, attached.stdout.splitlines()[-1]) == (ExitCode.PASS, says), attached.stderr
    other = client.run("run-matrix", "--host", "gpu", "--accept-judge", "a comment")
    assert (other.returncode, other.stdout.splitlines()[-1]) == (ExitCode.PASS, "PASS 2 of 2"), other.stderr
    found = [record["host"]["own_harness_enclosed"] for record in client.records()]  # type: ignore[index]
    assert sorted(found) == [False, False, True, True]
