"""Speed in regress: two commits built and timed beside each other on a host elsewhere, by a clock of known truth."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fmha.harness import archive
from fmha.harness.archive.record import Acceptance
from fmha.harness.evidence import baseline
from tests.harness.support import git
from tests.remote.conftest import Client

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]
IDS = ["hd64_t1_sk128", "hd64_t32_sk128"]
SMI = """#!/bin/sh
case "$1" in
*compute-apps*) ;;
*) printf 'GPU-aaaaaaaa-0000, 0, Stub 1, 570.1, 10.0, Disabled, Default\\n' ;;
esac
"""
SLEEP = '    asm volatile("nanosleep.u32 {};");\n    extern __shared__'


@pytest.fixture
def timed(client: Client) -> Client:
    """The host has a GPU with a clock, and a baseline: the commit that is checked out."""
    smi = client.server.folder / "bin" / "nvidia-smi-one"
    smi.write_text(SMI)
    smi.chmod(0o755)

    def change(matrix: dict[str, Any]) -> None:
        matrix["hosts"]["gpu"]["device"] = "tests.remote.devices:TimedDevice"
        matrix["hosts"]["gpu"]["gpus"].update(nvidia_smi=str(smi))

    client.change_matrix(change)
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    (path,) = (client.root / "results").glob("*.json")
    accept(client, path)
    return client


def accept(client: Client, path: Path) -> None:
    """As `fmha baseline accept`, without the ten runs that measure the noise."""
    record = archive.read(path)
    taken = Acceptance(
        why="start", accepted=datetime.now(UTC), by="t", replaces=None, deterministic=True, seeds=[], noise={}
    )
    there = baseline.path_of(baseline.name_of(record), client.root / "results")
    assert there.name == "stub-1.json"
    there.parent.mkdir(parents=True, exist_ok=True)
    archive.replace(archive.dumps(record.model_copy(update={"acceptance": taken})).encode(), there)
    git(client.root, "add", "results/baselines")
    git(client.root, "commit", "-q", "-m", "baseline")


def edit(client: Client, change: Callable[[str], str]) -> None:
    """Commits a change of the kernel."""
    path = client.root / "kernel" / "sm100" / "fmha_fwd.cu"
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    git(client.root, "commit", "-q", "-a", "-m", "change")


def slowed(nanoseconds: int) -> Callable[[str], str]:
    return lambda text: text.replace("    extern __shared__", SLEEP.format(nanoseconds))


def regress(client: Client, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = client.run("regress", "--host", "gpu", "--json", "-q", *arguments)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {item["id"]: item["verdict"] for item in found["speeds"]}


def test_a_commit_that_changes_nothing_is_the_same(timed: Client):
    edit(timed, lambda text: f"// Another comment.\n{text}")
    done, found = regress(timed)
    assert done.returncode == 0, found
    assert verdicts(found) == dict.fromkeys(IDS, "SAME")
    assert found["notes"] == ["baseline stub-1 is not signed"]
    assert found["speeds"][0]["base_seconds"] == pytest.approx(10e-6, rel=0.01)
    assert found["speeds"][0]["new_clock"] == 1980
    record = json.loads(Path(found["run"]).read_text())
    assert record["host"]["gpu"] == {"name": "Stub 1", "uuid": "GPU-aaaaaaaa-0000", "driver": "570.1"}
    timing = record["configurations"][0]["timing"]
    assert timing["beside"] == found["baseline"] != record["commit"]["sha"]
    assert len(timing["seconds"]) == len(timing["beside_seconds"]) == 40


def test_a_slower_commit_is_a_regression_and_a_faster_one_is_none(timed: Client):
    edit(timed, slowed(500))
    done, found = regress(timed)
    assert done.returncode == found["exit_code"] == 1
    assert verdicts(found) == dict.fromkeys(IDS, "SLOWER")
    assert [(item["kind"], item["subject"]) for item in found["regressions"]] == [("speed", name) for name in IDS]
    assert found["speeds"][0]["change"] == pytest.approx(0.05, abs=0.005)
    shown = timed.run("compare", "baseline:stub-1", "latest")
    assert "speed: 2 SLOWER" in shown.stderr + shown.stdout
    accept(timed, Path(found["run"]))
    git(timed.root, "revert", "--no-edit", "HEAD~1")
    done, found = regress(timed)
    assert done.returncode == 0
    assert verdicts(found) == dict.fromkeys(IDS, "FASTER")


def test_the_baseline_need_be_no_ancestor(timed: Client):
    path = timed.root / "kernel" / "sm100" / "fmha_fwd.cu"
    path.write_text(slowed(500)(path.read_text()))
    git(timed.root, "reset", "-q", "--soft", "HEAD~2")
    git(timed.root, "commit", "-q", "-a", "-m", "another")
    _, found = regress(timed)
    assert verdicts(found) == dict.fromkeys(IDS, "SLOWER")


def test_what_cannot_be_timed_is_said(timed: Client):
    """A baseline's commit that says nothing of its kernels, one whose kernel does not build, and one that is gone."""
    for change, words in {
        "raise SystemExit('broken')\n": "its harness does not say how its kernels are launched: broken",
        "": "does not build",
    }.items():
        if change:
            (timed.root / "harness" / "kernel_side" / "offer.py").write_text(change)
        else:
            (timed.root / "kernel" / "include" / "fmha_params.h").open("a").write("#error nothing\n")
        git(timed.root, "commit", "-q", "-a", "-m", "broken")
        broken = head(timed)
        git(timed.root, "revert", "--no-edit", "HEAD")
        hold_against(timed, broken)
        done, found = regress(timed)
        assert done.returncode == 0, found
        assert found["speeds"] == []
        assert any(words in note for note in found["notes"]), found["notes"]
    hold_against(timed, "1" * 40)
    _, found = regress(timed)
    assert any("no baseline of this host was known whose commit is in this clone" in note for note in found["notes"])


def hold_against(client: Client, sha: str) -> None:
    """The baseline as if it had been made of another commit."""
    path = client.root / "results" / "baselines" / "stub-1.json"
    record = archive.read(path)
    other = record.model_copy(update={"commit": record.commit.model_copy(update={"sha": sha})})
    archive.replace(archive.dumps(other).encode(), path)
    git(client.root, "commit", "-q", "-a", "-m", "baseline")


def head(client: Client) -> str:
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=client.root, capture_output=True, text=True, check=True)
    return said.stdout.strip()
