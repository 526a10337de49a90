"""Kernels of one's own over a real sshd: their repository has no fmha, the one that is installed here goes along."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests.harness.support import git
from tests.integration.test_own_kernels import repository_with
from tests.remote.conftest import Client, fresh_client, lend
from tests.remote.server import Server

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
GUARD = "rmsnorm_rows8_columns256"


@pytest.fixture(scope="module")
def norm(server: Server, public_folder: Path, warm: None) -> Path:
    """RMSNorm's repository, with a host that runs on the emulator and has compiled its packages before."""
    lend(server.home / "fmha", server.home / "norm", server.uid)
    root = repository_with("rmsnorm", public_folder / "norm")
    script = public_folder / "norm-environment.sh"
    packages = next(path for path in map(Path, sys.path) if (path / "numpy").is_dir())
    minor = sys.version_info.minor
    script.write_text(
        f"""set -eu
{server.python} -m venv --without-pip "$FMHA_ENVIRONMENT"
echo {packages} >"$FMHA_ENVIRONMENT"/lib/python3.{minor}/site-packages/here.pth
test -f requirements/cuda.txt && grep -q numpy requirements/run.txt
"""
    )
    host = {
        "kind": "ssh",
        "alias": "gpu",
        "device": "emulator",
        "arch": "sm_90a",
        "folder": "~/norm",  # what is approved is of one repository
        "python": server.python,
        "nvcc": str(find_nvcc().path),
        "environment": {"setup": f"sh {script}", "files": ["requirements/*.txt"]},
        "gpus": {"locks": str(server.folder)},
    }
    with (root / "matrix.yaml").open("a") as file:
        file.write(f"  far: {json.dumps(host)}\n")
    git(root, "commit", "-q", "-a", "-m", "a host")
    return root


@pytest.fixture
def client(norm: Path, server: Server, tmp_path: Path) -> Iterator[Client]:
    with fresh_client(norm, server, tmp_path) as made:
        yield made


def test_a_run_is_judged_there_by_the_installed_fmha(client: Client) -> None:
    done = client.run("run-matrix", "--host", "far", "--json", "--quiet")
    assert done.returncode == ExitCode.PASS, done.stdout + done.stderr
    there = json.loads(done.stdout)
    assert there["verdict"]["passed"] == there["verdict"]["total"] == 14
    assert (there["host"]["name"], there["commit"]["dirty"]) == ("far", False)
    here = json.loads(client.run("run-matrix", "--json", "--quiet").stdout)
    assert there["judge"]["digest"] == here["judge"]["digest"]
    bits = [[item["metrics"]["output_hash"] for item in record["configurations"]] for record in (there, here)]
    assert bits[0] == bits[1]
    (run,) = (path.parent for path in (client.home / "norm" / "runs").glob("*/job.json"))
    assert not (run / "tree" / "fmha").exists()
    again = client.run("run-matrix", "--host", "far", "--case", GUARD)
    assert again.returncode == ExitCode.PASS
    commits = subprocess.run(["git", "for-each-ref", "refs/fmha/installed"], cwd=client.root, capture_output=True)
    assert commits.stdout.count(b"\n") == 1


def detached(client: Client, *arguments: str) -> str:
    done = client.run("run-matrix", "--host", "far", "--detach", "--quiet", *arguments)
    assert done.returncode == ExitCode.INCOMPLETE, done.stderr
    return done.stdout.strip()


def test_a_race_that_is_planted_is_a_hazard_there(client: Client) -> None:
    source = client.root / "rmsnorm.cu"
    assert source.read_text().count("  __syncthreads();\n") == 1
    source.write_text(source.read_text().replace("  __syncthreads();\n", ""))
    git(client.root, "commit", "-q", "-a", "-m", "faster")
    run = detached(client)
    git(client.root, "checkout", "-q", "HEAD~1")  # whatever the checkout is at by then
    done = client.run("attach", run, "--host", "far", "--json", "--quiet")
    assert done.returncode == ExitCode.GATE_FAILED, done.stdout + done.stderr
    statuses = {item["id"]: item["status"] for item in json.loads(done.stdout)["configurations"]}
    assert statuses[GUARD] == "hazard"
    assert set(statuses.values()) == {"hazard", "not-run"}


def test_another_fmha_does_not_take_up_the_run(client: Client) -> None:
    run = detached(client, "--case", GUARD)
    package = client.root / "package"
    checkout = Path(__file__).resolve().parents[2]
    shutil.copytree(checkout / "fmha", package / "fmha", symlinks=False)
    shutil.copytree(checkout / "kernel", package / "fmha" / "kernel")
    (package / "fmha" / "harness" / "text.py").open("a").write("# another\n")
    core = next(path for path in map(Path, sys.path) if (path / "fmha" / "emulator").is_dir() and "site" in path.name)
    for path in (core / "fmha" / "emulator").glob("_core*.so"):
        shutil.copy(path, package / "fmha" / "emulator")
    environment = {"PYTHONPATH": f"{package}:{core}", "FMHA_SSH_CONFIG": str(client.config), "FMHA_HOSTS": ""}
    other = subprocess.run(
        [sys.executable, "-S", "-m", "fmha", "attach", run, "--host", "far"],
        cwd=client.root,
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"PATH": "/usr/bin:/bin"},
    )
    assert other.returncode == ExitCode.USAGE, other.stderr
    assert "judged by another fmha than this one" in other.stderr
    assert client.run("attach", run, "--host", "far").returncode == ExitCode.PASS
