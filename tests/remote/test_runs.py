"""Runs on a host elsewhere that go well, or are refused before anything has happened."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.remote.conftest import Client, in_state, started

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}


def head(root: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.slow
def test_the_whole_seed_suite_gives_the_numbers_of_the_emulator_here(client: Client, tmp_path: Path):
    """What a kernel covers is bit for bit the same, and the same is missing."""
    here = client.run("run-matrix", "--suite", "seed", "--results", str(tmp_path / "here"))
    there = client.run("run-matrix", "--suite", "seed", "--host", "real", "--results", str(tmp_path / "there"))
    assert here.returncode == there.returncode, there.stderr
    (first,), (second,) = ([*(tmp_path / name).glob("*.json")] for name in ("here", "there"))
    first, second = (json.loads(path.read_text()) for path in (first, second))
    assert first["configurations"]
    for mine, other in zip(first["configurations"], second["configurations"], strict=True):
        for key in ("id", "status", "reasons", "metrics", "findings", "failed_checks"):
            assert mine[key] == other[key], mine["id"]
    assert second["host"]["name"] == "real"
    assert any(item["metrics"] for item in second["configurations"])


def test_a_run_is_followed_judged_and_archived(client: Client):
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD
    (record,) = client.records()
    assert record["commit"]["sha"] == head(client.root)
    assert record["host"]["kind"] == "ssh"
    assert {"checkout", "environment", "build", "queued", "run"} <= record["durations"].keys()
    assert "PASS 2 of 2" in done.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_what_is_not_asked_for_has_no_number_from_elsewhere(client: Client):
    asked = [f"hd64_t1_sk128_out-fp32_stats-{statistics}" for statistics in ("lse", "none")]
    done = client.run("run-matrix", "--host", "real", *(word for name in asked for word in ("--case", name)))
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = client.records()
    metrics = {item["id"]: item["metrics"] for item in record["configurations"]}
    assert [metrics[name]["lse_error"] is None for name in asked] == [False, True]
    assert all(metrics[name][error] is None for name in asked for error in ("row_max_error", "row_sum_error"))


def test_a_detached_run_is_attached_to_and_archived_exactly_once(client: Client):
    with client.server.hold("t32"):
        run = client.detached()
        client.wait_for(started("hd64_t32_sk128"))
        assert client.records() == []
    first = client.run("attach", run)
    assert first.returncode == 0, first.stderr
    again = client.run("attach", run, "--host", "gpu")
    assert again.returncode == 0
    assert [path.name for path in (client.root / "results").iterdir()] == [f"{run}-gpu.json"]


def test_attaching_needs_no_checkout_at_that_commit(client: Client):
    run = client.detached()
    client.change_matrix(lambda matrix: matrix.update(default_suite="faulty"))
    (client.root / "notes").write_text("a dirty tree is no obstacle")
    done = client.run("attach", run)
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD


def test_a_run_on_a_host_that_was_renamed_is_attached_to(client: Client):
    """Its old name is said; the new one leads to it, whatever the run's own matrix.yaml calls the host."""
    run = client.detached()
    client.change_matrix(lambda matrix: matrix["hosts"].update(moved=matrix["hosts"].pop("gpu")))
    lost = client.run("attach", run)
    assert lost.returncode == 2
    assert "gpu" in lost.stderr
    assert "moved" in lost.stderr
    for words in (("logs", run), ("attach", run)):
        done = client.run(*words, "--host", "moved")
        assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD


def test_a_dirty_tree_is_refused_with_its_files(client: Client):
    (client.root / "new file").write_text("x")
    (client.root / "matrix.yaml").open("a").write("\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "'matrix.yaml', 'new file'" in done.stderr
    assert "--snapshot" in done.stderr
    assert client.runs() == []


def test_a_snapshot_touches_neither_branch_nor_index_nor_files(client: Client):
    (client.root / "staged").write_text("staged")
    git(client.root, "add", "staged")
    (client.root / "staged").write_text("and changed since")
    (client.root / "kernel" / "new.h").write_text("// new")
    before = [subprocess.run(words, cwd=client.root, capture_output=True, check=True).stdout for words in STATE]
    done = client.run("run-matrix", "--host", "gpu", "--snapshot")
    assert done.returncode == 0, done.stderr
    assert before == [subprocess.run(words, cwd=client.root, capture_output=True, check=True).stdout for words in STATE]
    (record,) = client.records()
    sha = record["commit"]["sha"]
    assert sha != head(client.root)
    shown = subprocess.run(
        ["git", "show", f"{sha}:staged"], cwd=client.root, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "and changed since"
    (run,) = client.runs()
    assert (run / "tree" / "kernel" / "new.h").read_text() == "// new"


STATE = (
    ["git", "status", "--porcelain=v2", "--branch", "-z"],
    ["git", "diff", "--cached"],
    ["git", "for-each-ref", "refs/heads"],
    ["git", "stash", "list"],
)


def test_a_detached_head_runs(client: Client):
    git(client.root, "checkout", "-q", "--detach")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    (record,) = client.records()
    assert record["commit"]["branch"] is None


def test_a_shallow_clone_is_refused_where_it_cannot_send(client: Client, tmp_path: Path):
    client.change_matrix(lambda matrix: matrix.update(seed=8))
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{client.root}", tmp_path / "shallow"], check=True)
    shutil.rmtree(client.root)
    (tmp_path / "shallow").rename(client.root)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "git fetch --unshallow" in done.stderr


def test_submodules_are_refused(client: Client):
    git(client.root, "update-index", "--add", "--cacheinfo", f"160000,{head(client.root)},third party")
    git(client.root, "commit", "-q", "-m", "a submodule")
    (client.root / "third party").mkdir()
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "submodules" in done.stderr
    assert "'third party'" in done.stderr


def test_files_in_lfs_are_refused(client: Client):
    (client.root / "tests" / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(client.root, "add", ".")
    git(client.root, "commit", "-q", "-m", "LFS")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "LFS" in done.stderr


def test_protected_files_need_approval_once(client: Client):
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    (client.root / "tests" / "unit" / "test_protected.py").write_text("assert 1\n")
    git(client.root, "commit", "-q", "-a", "-m", "weaken a test")
    refused = client.run("run-matrix", "--host", "gpu")
    assert refused.returncode == 2
    assert "'tests/unit/test_protected.py'" in refused.stderr
    assert "--approve-protected" in refused.stderr
    assert len(client.runs()) == 1
    approved = client.run("run-matrix", "--host", "gpu", "-q", "--approve-protected")
    assert approved.returncode == 0, approved.stderr
    git(client.root, "commit", "-q", "--allow-empty", "-m", "later")
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    git(client.root, "checkout", "-q", "HEAD~2")
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0


def protect(client: Client, *paths: str) -> None:
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(protected=list(paths)))


def weaken(client: Client) -> None:
    (client.root / "tests" / "unit" / "test_protected.py").write_text(f"assert 1  # {client.root}\n")
    git(client.root, "commit", "-q", "-a", "-m", "weaken a test")


@pytest.mark.parametrize("others", [(), ("kernel/",)], ids=["nothing", "something else"])
def test_a_commit_cannot_take_the_protection_off_itself(client: Client, others: tuple[str, ...]):
    folder = client.server.home / f"fmha-{client.root.parent.name}"
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=str(folder)))
    client.lend(folder)
    try:
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
        protect(client, *others)
        loosened = client.run("run-matrix", "--host", "gpu", "-q")
        assert loosened.returncode == 2
        assert "'tests/unit/' would not be protected any more" in loosened.stderr
        weaken(client)
        both = client.run("run-matrix", "--host", "gpu", "-q")
        assert both.returncode == 2
        assert "'tests/unit/test_protected.py'" in both.stderr
        assert client.run("run-matrix", "--host", "gpu", "-q", "--approve-protected").returncode == 0
        git(client.root, "commit", "-q", "--allow-empty", "-m", "later")
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
        git(client.root, "checkout", "-q", "HEAD~3")
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    finally:
        client.discard(folder)


def test_protecting_more_approves_nothing_by_the_way(client: Client):
    """A longer list would be one for which nothing was approved yet."""
    folder = client.server.home / "fmha-more"
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=str(folder)))
    client.lend(folder)
    try:
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
        (client.root / "tests" / "unit" / "test_protected.py").write_text("assert 1\n")
        protect(client, "tests/unit/", "kernel/")
        refused = client.run("run-matrix", "--host", "gpu", "-q")
        assert refused.returncode == 2
        assert "'tests/unit/test_protected.py'" in refused.stderr
        git(client.root, "checkout", "-q", "HEAD~", "--", "tests/unit")
        git(client.root, "commit", "-q", "-m", "as it was")
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    finally:
        client.discard(folder)


def test_the_guard_stops_everything_on_the_host_too(client: Client):
    def change(matrix: dict) -> None:
        matrix["suites"]["moved"] = {"axes": {"head_dim": [64, 128], "t": [1], "s_k": [128]}}
        matrix["gates"]["guard"] = {"relative_l2": 0.0}

    client.change_matrix(change)
    done = client.run("run-matrix", "--host", "gpu", "--suite", "moved")
    assert done.returncode == 1, done.stderr
    assert client.statuses() == {"hd64_t1_sk128": "fail", "hd128_t1_sk128": "not-run"}
    (run,) = client.runs()
    assert not started("hd128_t1_sk128")(client.events(run))


def test_nothing_that_a_run_starts_can_gain_privileges(client: Client):
    """no_new_privs is inherited, and makes sudo powerless."""
    with client.server.hold("t1"):
        client.detached()
        run = client.wait_for(started("hd64_t1_sk128"))
        processes = [int(line.split()[0]) for line in client.server.left_over()]
        workers = [pid for pid in processes if "fmha.harness.worker" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert workers
        for pid in workers:
            assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    assert client.run("attach", run.name).returncode == 0


def test_the_environment_is_built_once_and_the_build_cache_shared(client: Client):
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    git(client.root, "commit", "-q", "--allow-empty", "-m", "another commit")
    second = client.run("run-matrix", "--host", "gpu")
    assert second.returncode == 0
    assert "building the environment" not in second.stderr
    assert "from the cache" in second.stderr, second.stderr
    assert in_state("run")(client.events(client.runs()[-1]))


def test_an_environment_is_for_its_device_and_variables(client: Client):
    def change(matrix: dict) -> None:
        for name in ("gpu", "real"):
            matrix["hosts"][name]["env"] = {"WHERE": str(client.root)}

    client.change_matrix(change)
    built = "building the environment"
    assert built in client.run("run-matrix", "--host", "gpu").stderr
    assert built not in client.run("run-matrix", "--host", "gpu").stderr
    assert built in client.run("run-matrix", "--host", "real").stderr
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["env"].update(MORE="1"))
    assert built in client.run("run-matrix", "--host", "gpu").stderr


def test_a_host_keeps_as_many_runs_as_it_is_told_to(client: Client):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(keep={"days": 1, "runs": 2}))
    for _ in range(2):
        assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    first, second = client.runs()
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0
    assert "removed 1 run from the host, " in done.stderr
    assert "keep: {days: 1, runs: 2}" in done.stderr
    assert first not in client.runs()
    assert second in client.runs()
    assert len(client.runs()) == 2
