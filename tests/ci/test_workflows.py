"""The CI workflows: what they may do, and their shell steps executed for real on the emulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmha.harness.archive import Index
from tests.harness.support import git


def workflow(repository: Path, name: str) -> dict[str, Any]:
    text = (repository / ".github" / "workflows" / f"{name}.yml").read_text()
    found: dict[str, Any] = yaml.load(text, yaml.BaseLoader)  # BaseLoader: `on` is a word, not a truth
    return found


def steps(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in document["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", ["tests", "evidence", "publish", "wheels"])
def test_what_a_workflow_may_not_do(repository: Path, name: str) -> None:
    document = workflow(repository, name)
    assert document["permissions"] == {"contents": "read"}
    for step in steps(document):
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
        else:
            assert "${{" not in step["run"], "text reaches the shell through the environment"
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] == "false"


def test_a_pull_request_needs_the_label(repository: Path) -> None:
    document = workflow(repository, "evidence")
    assert set(document["on"]) == {"workflow_dispatch", "pull_request_target"}
    assert document["on"]["pull_request_target"] == {"types": ["labeled"]}
    (job,) = document["jobs"].values()
    assert job["if"] == "github.event_name == 'workflow_dispatch' || github.event.label.name == 'run-b200'"
    base, commit, install, *_ = job["steps"]
    assert commit["with"]["ref"] == "${{ github.event.pull_request.head.sha || github.sha }}"
    default = "github.event.repository.default_branch"
    assert base["with"]["ref"] == f"${{{{ github.event.pull_request.base.sha || {default} }}}}"
    assert install["run"] == "make -C base install", "nothing of a pull request runs beside the runner's key"


@pytest.mark.parametrize(("name", "job"), [("evidence", "matrix"), ("regress", "regress")])
def test_a_job_that_reaches_a_host_waits_for_a_reviewer(repository: Path, name: str, job: str) -> None:
    """A label says nothing of who set it, or of which commit was read."""
    assert workflow(repository, name)["jobs"][job]["environment"] == "gpu"


@pytest.mark.parametrize("name", ["evidence", "regress"])
def test_the_host_that_the_workflows_take_is_declared(repository: Path, name: str) -> None:
    (job, *_) = workflow(repository, name)["jobs"].values()
    (host,) = re.findall(r"^(\w+)$|'(\w+)' }}$", job["env"]["FMHA_HOST"])
    declared = yaml.safe_load((repository / "matrix.yaml").read_text())["hosts"]
    assert declared["".join(host)]["kind"] == "ssh"


def test_only_the_job_that_has_nothing_else_may_write_pages(repository: Path) -> None:
    jobs = workflow(repository, "publish")["jobs"]
    assert "permissions" not in jobs["site"]
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    (step,) = jobs["deploy"]["steps"]
    assert step["uses"].startswith("actions/deploy-pages@")


def test_the_tests_run_on_every_python_that_the_package_names(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    kinds = " ".join(project["project"]["classifiers"])
    named = re.findall(r"Python :: (3\.\d+)", kinds)
    tested = workflow(repository, "tests")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert named
    assert set(named) <= set(tested)  # one is tested before it is named
    assert [f"cp{minor.replace('.', '')}-*" for minor in tested] == project["tool"]["cibuildwheel"]["build"]


def test_the_tests_are_what_ci_run_calls(repository: Path) -> None:
    assert workflow(repository, "tests")["jobs"]["tests"]["steps"][-1]["run"] == ".ci/run"


@pytest.mark.nvcc
@pytest.mark.slow
def test_the_steps_of_the_evidence_job(repository: Path, tmp_path: Path) -> None:
    """In a clone with the kernel, on the emulator; `make install` is what made the .venv that is lent to it."""
    root = tmp_path / "commit"
    shutil.copytree(repository / "kernel", root / "kernel")
    matrix = yaml.safe_load((repository / "matrix.yaml").read_text())
    small = {"small": {"axes": {"head_dim": [64], "t": [32], "s_k": [256]}}}
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix | {"suites": small, "default_suite": "small"}))
    (root / ".gitignore").write_text("/.fmha/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    script = tmp_path / "base" / ".venv" / "bin" / "fmha"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m fmha "$@"\n')
    script.chmod(0o755)
    document = workflow(repository, "evidence")
    (job,) = document["jobs"].values()
    assert set(job["env"]) == {"FMHA_HOST", "FMHA_SUITE", "FMHA_JUDGE", "PIP_EXTRA_INDEX_URL"}
    summary = tmp_path / "summary.md"
    environment = os.environ | {
        "PYTHONPATH": str(repository),
        "FMHA_HOST": "emulator",
        "FMHA_SUITE": "small",
        "FMHA_JUDGE": "own",  # a clone with the kernels alone has no other
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    for step in job["steps"]:
        if "run" in step and step["name"] != "Install":
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            ran = subprocess.run(
                command,
                cwd=tmp_path / step["working-directory"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
    uploaded = tmp_path / job["steps"][-1]["with"]["path"]
    with Index(uploaded) as index:
        assert [row.word for row in index.runs()] == ["PASS"]
    assert {"junit.xml", "report.html"} <= {path.name for path in uploaded.iterdir()}
    assert summary.read_text().startswith("## PASS 1 of 1")
