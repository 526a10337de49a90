"""The exact commit through a shared remote, where that goes wrong, and names that mean harm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.remote.conftest import Client
from tests.remote.server import client_config

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("remote"), pytest.mark.timeout(900)]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}


@pytest.fixture
def shared(client: Client, public_folder: Path, tmp_path: Path) -> Path:
    """A remote that both sides reach, as `origin`; the host is told to fetch from it."""
    path = public_folder / f"shared-{tmp_path.name}.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", path], check=True)
    subprocess.run(["git", "-C", path, "config", "uploadpack.allowAnySHA1InWant", "true"], check=True)
    trust = f"[safe]\n\tdirectory = {path}\n"  # another account owns it
    (client.server.home / ".gitconfig").write_text(trust)
    git(client.root, "remote", "add", "origin", str(path))
    git(client.root, "push", "-q", "origin", "main")
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(sync="remote"))
    return path


def tip(repository: Path, ref: str) -> str:
    done = subprocess.run(["git", "-C", repository, "rev-parse", ref], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_goes_through_the_shared_remote(client: Client, shared: Path):
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert tip(shared, "main") == tip(client.root, "HEAD")
    assert client.statuses() == GOOD


def test_a_detached_head_and_a_snapshot_go_through_it_too(client: Client, shared: Path):
    git(client.root, "checkout", "-q", "--detach")
    (client.root / "note").write_text("in no commit")
    before = tip(shared, "main")
    done = client.run("run-matrix", "--host", "gpu", "--snapshot")
    assert done.returncode == 0, done.stderr
    (record,) = client.records()
    assert tip(shared, f"refs/fmha/commits/{record['commit']['sha']}") == record["commit"]["sha"]
    assert tip(shared, "main") == before


def test_a_push_that_is_no_fast_forward_is_refused(client: Client, shared: Path, tmp_path: Path):
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", shared, other], check=True)
    git(other, "commit", "-q", "--allow-empty", "-m", "came first")
    git(other, "push", "-q", "origin", "main")
    before = tip(shared, "main")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "was rejected" in done.stderr
    assert "fetch and rebase" in done.stderr
    assert tip(shared, "main") == before
    assert client.runs() == []


def test_a_protected_branch_is_refused_in_the_words_of_the_server(client: Client, shared: Path):
    hook = shared / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'main is protected: open a pull request' >&2\nexit 1\n")
    hook.chmod(0o755)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "main is protected: open a pull request" in done.stderr
    assert client.runs() == []


def test_a_commit_that_the_host_does_not_find(client: Client, shared: Path, public_folder: Path, tmp_path: Path):
    stale = public_folder / f"stale-{tmp_path.name}.git"
    subprocess.run(["git", "clone", "-q", "--bare", shared, stale], check=True)
    with (client.server.home / ".gitconfig").open("a") as file:
        file.write(f"\tdirectory = {stale}\n")
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(fetch_url=str(stale)))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert f"commit {tip(client.root, 'HEAD')} is not at the host" in done.stderr
    assert "fetch_url" in done.stderr
    assert client.runs() == []


def test_auto_sends_the_commit_when_the_host_cannot_fetch(client: Client, shared: Path):
    settings = {"sync": "auto", "fetch_url": "/nonexistent/mirror.git"}
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(settings))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD


@pytest.mark.parametrize("who", ["user:secret", "secret"])
def test_a_password_in_the_url_is_told_to_no_host(client: Client, shared: Path, who: str):
    git(client.root, "remote", "set-url", "origin", f"https://{who}@example.invalid/x.git")
    git(client.root, "commit", "-q", "--allow-empty", "-m", "again")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert "password" in done.stderr
    assert "secret" not in done.stderr
    settings = {"fetch_url": "https://example.invalid/x.git"}
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(settings))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "git push to 'origin' failed" in done.stderr
    assert "secret" not in done.stderr


HOSTILE = "a b'c\"d;touch pwned;$(touch pwned)`touch pwned`&|\\\n-x"
BRANCH = "-x';touch${IFS}pwned;$(touch${IFS}pwned)\"&|"


def test_hostile_names_are_only_names(client: Client, tmp_path: Path):
    """In the path here, in the working folder there, in a variable's value, in the alias, in the branch."""
    root = tmp_path / HOSTILE.replace("/", "")
    client.root.rename(root)
    client.root = root
    alias = "-g$(touch${IFS}pwned);'"
    value = HOSTILE.replace("\n", " ")
    folder = "-x a b'c;touch pwned;&|"  # without what nvcc itself would have a shell interpret

    def change(matrix: dict) -> None:
        host = matrix["hosts"]["gpu"]
        host.update(env={"WORDS": value}, folder=f"{client.server.home}/{folder}", alias="gpu")
        host["environment"]["setup"] += f' && test "$WORDS" = "$(cat {client.server.folder}/words)"'

    (client.server.folder / "words").write_text(value)
    client.change_matrix(change)
    git(root, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    git(root, "update-ref", f"refs/heads/{BRANCH}", tip(root, "refs/heads/main"))
    done = client.run("run-matrix", "--host", "gpu", "--filter", "hd=64")
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD
    (record,) = client.records()
    assert record["commit"]["branch"] == BRANCH
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(alias=alias))
    assert client.run("run-matrix", "--host", "gpu").returncode == 2
    for place in (tmp_path, client.server.folder, client.server.home):
        assert not list(place.rglob("pwned")), list(place.rglob("pwned"))
    assert not Path("pwned").exists()


def test_a_path_that_nvcc_would_execute_is_refused(client: Client):
    folder = f"{client.server.home}/$(touch pwned)"
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=folder))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "nvcc would have a shell interpret this path" in done.stderr
    assert not list(client.server.home.rglob("pwned"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "gpu", "--suite", "$(touch pwned)"], "no suite is named"),
        (["--host", "gpu", "--suite", "-x 'y\"\n;touch pwned"], "no suite is named"),
        (["--host", "gpu;touch pwned"], "no host is named"),
        (["--host=-oProxyCommand=touch pwned"], "no host is named"),
        (["--host", "a b'c\"\n$(touch pwned)"], "no host is named"),
        (["--host", "gpu", "--filter", "hd=64;touch pwned"], "hd"),
    ],
)
def test_hostile_arguments_are_refused_by_name(client: Client, arguments: list[str], said: str):
    done = client.run("run-matrix", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (client.root / "pwned").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"env": {"X;touch pwned": "1"}}, "is no name of a variable"),
        ({"env": {"X": "a\ntouch pwned"}}, "characters that do not print"),
        ({"alias": "a\ntouch pwned"}, "characters that do not print"),
        ({"folder": "~/a\ntouch pwned"}, "characters that do not print"),
        ({"python": "python3\ntouch pwned"}, "characters that do not print"),
    ],
)
def test_settings_that_no_shell_may_see_are_refused(client: Client, settings: dict[str, object], said: str):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(settings))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 2
    assert said in done.stderr
    for place in (client.root, client.server.home):
        assert not (place / "pwned").exists()


def test_an_interpreter_with_a_hostile_name_is_only_a_name(client: Client):
    python = client.server.folder / "bin" / "-p y'\";touch pwned;$(touch pwned)"
    python.symlink_to(client.server.python)
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(python=str(python)))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert not list(client.server.home.rglob("pwned"))


@pytest.mark.parametrize("run", ["../../../etc", "$(touch pwned)", "-x", "20261121T101500Z-0123456789ab-89abcdef"])
def test_a_run_that_is_none_is_refused(client: Client, run: str):
    done = client.run("attach", "--host", "gpu", "--", run)
    assert done.returncode == 2
    assert "no run" in done.stderr


def test_a_host_of_another_account_is_not_asked_for_a_password(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other", extra={"User": "nobody;x", "IdentityFile": "none"})
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("fmha: ") or "\nfmha: " in done.stderr
