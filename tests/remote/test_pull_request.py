"""The workflow `regress`: a pull request on a GPU host reached with a key of its own, up to the comment under it.

Its shell steps are executed as they stand, in checkouts as the job makes them; the API is a server on loopback.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmha.harness.evidence.comment import MARK
from fmha.harness.git import git_text
from tests.evidence.seeded_history import edit
from tests.harness.support import git
from tests.remote.conftest import Client
from tests.remote.server import client_config, key

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
TOKEN = "of-the-job"


class Comments(BaseHTTPRequestHandler):
    """The part of the API of GitHub and Gitea that concerns comments, for pull request 7 of o/p."""

    kept: dict[int, str]

    def do_GET(self) -> None:
        found = [{"id": number, "body": body} for number, body in self.kept.items()]
        page = int(re.findall(r"[?&]page=(\d+)", self.path)[0])
        self.answer(200, found[50 * (page - 1) : 50 * page])

    def do_POST(self) -> None:
        self.keep(r"/repos/o/p/issues/7/comments", max(self.kept, default=0) + 1)

    def do_PATCH(self) -> None:
        self.keep(r"/repos/o/p/issues/comments/\d+", int(self.path.rpartition("/")[2]))

    def keep(self, path: str, number: int) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}" or not re.fullmatch(path, self.path):
            return self.answer(404, {})
        self.kept[number] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        return self.answer(201, {"id": number})

    def answer(self, code: int, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def comments() -> Iterator[tuple[str, dict[int, str]]]:
    """The API's URL, and what it keeps, by number: 60 comments of others, so that ours is on its second page."""
    kept = dict.fromkeys(range(1, 61), "looks good")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Comments,), {"kept": kept})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", kept
        server.shutdown()
        thread.join()


def jobs(repository: Path) -> dict[str, Any]:
    text = (repository / ".github" / "workflows" / "regress.yml").read_text()
    return dict(yaml.load(text, yaml.BaseLoader)["jobs"])


def carried_out(job: dict[str, Any], workspace: Path, environment: dict[str, str]) -> dict[str, int]:
    """Each shell step's exit code, by its name; `make install` has made what is lent to it."""
    codes = {}
    for step in job["steps"]:
        if "run" in step and step["name"] != "Install":
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            folder = workspace / step.get("working-directory", ".")
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert "Traceback" not in done.stderr, done.stderr
            codes[step["name"]] = done.returncode
    return codes


@pytest.mark.slow
def test_a_pull_request_hears_what_it_made_worse(
    client: Client, repository: Path, tmp_path: Path, comments: tuple[str, dict[int, str]]
) -> None:
    url, kept = comments
    root = client.root
    measured = git_text(root, "rev-parse", "HEAD")
    accepted = client.run("run-matrix", "--host", "real", "--suite", "good", "-q")
    assert accepted.returncode == 0, accepted.stderr
    accepted = client.run("baseline", "accept", "latest", "--why", "the first", "-q")
    assert accepted.returncode == 0, accepted.stderr
    git(root, "add", "-f", "results/baselines")
    git(root, "commit", "-q", "-m", "baseline")
    assert client.run("run-matrix", "--host", "real", "-q", "--approve-protected").returncode == 0

    key(tmp_path / "ci_key")
    line = client.run("hosts", "key", "real", str(tmp_path / "ci_key.pub")).stdout
    keys = client.server.folder / "authorized_keys"
    before = keys.read_text()
    keys.write_text(before + line)
    identity = {"IdentityFile": str(tmp_path / "ci_key"), "IdentityAgent": "none"}
    config = client_config(client.server, tmp_path / "runner", extra=identity)

    workspace = tmp_path / "workspace"
    base = git_text(root, "rev-parse", "HEAD")
    git(root, "clone", "-q", str(root), str(workspace / "base"))
    git(root, "checkout", "-q", "-b", "request")
    edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1 * (kLn2 * 1.00003f)")(root)
    git(root, "commit", "-q", "-a", "-m", "LSE, faster @all")
    git(root, "clone", "-q", str(root), str(workspace / "commit"))
    lent = workspace / "base" / ".venv" / "bin" / "fmha"
    lent.parent.mkdir(parents=True)
    lent.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fmha "$@"\n')
    lent.chmod(0o755)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")
    } | {
        "PYTHONPATH": str(repository),
        "FMHA_SSH_CONFIG": str(config),
        "FMHA_HOST": "real",
        "FMHA_BASE": base,
        "GITHUB_API_URL": url,
        "GITHUB_REPOSITORY": "o/p",
        "GITHUB_TOKEN": TOKEN,
        "NUMBER": "7",
    }
    described = jobs(repository)
    try:
        codes = carried_out(described["regress"], workspace, environment)
        assert codes == {"Regress": 1, "Report": 0}
        assert {"comment.md", "junit.xml", "report.html"} <= {path.name for path in (workspace / "evidence").iterdir()}
        for _ in range(2):
            assert carried_out(described["comment"], workspace, environment) == {"Comment": 0}
    finally:
        keys.write_text(before)
    assert len(kept) == 61
    text = kept[61]
    mark, headline = text.split("\n")[:2]
    assert mark == MARK
    assert re.fullmatch(rf"## REGRESSED against commit {measured[:12]}: (\d status, )?2 numbers", headline)
    assert f"judged by the harness of `{base[:12]}`" in text
    assert text.count("\n- numbers ") == 2
    assert re.search(r"^\*\*.*LSE error.*\*\*$", text, re.MULTILINE)


def test_the_token_that_may_write_is_in_no_job_that_runs_the_request(repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "regress.yml").read_text()
    document = yaml.load(text, yaml.BaseLoader)
    assert document["permissions"] == {}
    assert document["on"] == {"pull_request_target": {"types": ["opened", "synchronize", "reopened"]}}
    regress, comment = document["jobs"]["regress"], document["jobs"]["comment"]
    assert regress["permissions"] == {"contents": "read"}
    assert regress["environment"] == "gpu"
    assert comment["permissions"] == {"contents": "read", "pull-requests": "write"}
    heads = [step for step in comment["steps"] if "head" in str(step)]
    assert not heads


def test_a_comment_that_cannot_be_put_says_why(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text(f"{MARK}\nhello\n")
    environment = os.environ | {
        "GITHUB_API_URL": "http://127.0.0.1:9", "GITHUB_REPOSITORY": "o/p", "GITHUB_TOKEN": "x",
    }  # fmt: skip
    script = repository / "scripts" / "post_comment.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "comment.md", "7"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("post_comment: http://127.0.0.1:9/repos/o/p/issues cannot be reached")
