"""The exact commit through a shared remote, where that goes wrong, and names that mean harm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.remote.conftest import Client
from tests.remote.server import client_config

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
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
    assert "the host fetches the commit" in done.stderr
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
    git(client.root, "push", "-q", "origin", "main")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD


def auto(client: Client) -> None:
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(sync="auto"))


def refs(repository: Path) -> str:
    return subprocess.run(["git", "-C", repository, "for-each-ref"], capture_output=True, text=True, check=True).stdout


def test_auto_pushes_nothing(client: Client, shared: Path):
    auto(client)
    before = refs(shared)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert refs(shared) == before
    assert "pushing" not in done.stderr


def test_auto_lets_the_host_fetch_what_was_pushed(client: Client, shared: Path):
    """The client's git would fail to pack: what the host has, it has fetched."""
    auto(client)
    git(client.root, "push", "-q", "origin", "main:elsewhere")
    before = refs(shared)
    broken = client.server.folder / "small" / "git"
    broken.write_text('#!/bin/sh\ncase " $* " in *" pack-objects "*) exit 1;; esac\nexec /usr/bin/git "$@"\n')
    broken.chmod(0o755)
    done = client.run("run-matrix", "--host", "gpu", PATH=f"{broken.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert refs(shared) == before


@pytest.mark.parametrize("more", [(), ("-q",)])
def test_what_is_pushed_and_where_is_said_before(client: Client, shared: Path, more: tuple[str, ...]):
    """Even by a quiet command, and though the push fails. Tags are not pushed, whatever is configured."""
    hook = shared / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\ncat >$GIT_DIR/seen\nexit 1\n")
    hook.chmod(0o755)
    git(client.root, "tag", "-a", "secret-plans", "-m", "not for others")
    git(client.root, "config", "push.followTags", "true")
    sha = tip(client.root, "HEAD")
    done = client.run("run-matrix", "--host", "gpu", *more)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    said = f"fmha: pushing commit {sha[:12]} to origin ({shared}) as refs/heads/main"
    assert said in lines
    assert lines.index(said) < next(number for number, line in enumerate(lines) if "was rejected" in line)
    assert (shared / "seen").read_text().split() == [tip(shared, "main"), sha, "refs/heads/main"]


def test_every_place_that_is_pushed_to_is_named(client: Client, shared: Path, tmp_path: Path):
    """One remote may have several, and none of them the one that is fetched from. Their passwords are not said."""
    git(client.root, "remote", "set-url", "--add", "--push", "origin", str(tmp_path / "nowhere.git"))
    git(client.root, "remote", "set-url", "--add", "--push", "origin", "https://me:secret@example.invalid/x.git")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert f"to origin ({tmp_path}/nowhere.git, https://example.invalid/x.git) as refs/heads/main" in done.stderr
    assert "secret" not in done.stderr


def test_the_users_own_pre_push_hook_has_its_say(client: Client, shared: Path):
    hook = client.root / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'error: it has a secret' >&2\nexit 1\n")
    hook.chmod(0o755)
    before = refs(shared)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode != 0
    assert "it has a secret" in done.stderr
    assert refs(shared) == before


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n"
LEFT_OUT = {
    ".env": "TOKEN=1",
    "deploy/.env.production": "TOKEN=1",
    "server.pem": "x",
    "keys/id_ed25519": "x",
    ".aws/config": "x",
    "notes.txt": f"to reach it\n{KEY}",
    "token": "ghp_" + 36 * "a",
}
TAKEN = {".env.example": "TOKEN=", "environment.py": "", "keyboard.txt": "qwerty", "a\nb": "", "id_ed25519.pub": "x"}


def test_a_snapshot_leaves_out_secrets_and_says_what_it_takes(client: Client):
    for name, text in {**LEFT_OUT, **TAKEN, "ignored": "x", "inner/file": "x"}.items():
        (client.root / name).parent.mkdir(parents=True, exist_ok=True)
        (client.root / name).write_text(text)
    (client.root / "link.pem").symlink_to("/etc/hostname")
    with (client.root / ".git" / "info" / "exclude").open("a") as file:
        file.write("/ignored\n")
    git(client.root / "inner", "init", "-q")
    git(client.root / "inner", "add", ".")
    git(client.root / "inner", "commit", "-q", "-m", "another project")
    run = client.detached("--snapshot")
    sha = tip(client.root, "refs/fmha/snapshots/" + client_sha(client))
    listed = subprocess.run(
        ["git", "diff", "--name-only", "-z", "HEAD", sha], cwd=client.root, capture_output=True, text=True, check=True
    )
    assert set(filter(None, listed.stdout.split("\0"))) == set(TAKEN)
    (client.root / "another").write_text("x")
    again = client.run("run-matrix", "--host", "gpu", "--snapshot", "-q")
    assert again.returncode == 0, again.stderr
    took, left = [line for line in again.stderr.splitlines() if line.startswith("fmha: the snapshot")]
    for name in [*TAKEN, "another"]:
        assert repr(name) in took
    for name in [*LEFT_OUT, "link.pem", "inner/"]:
        assert repr(name) in left
    assert "ignored" not in took + left.partition(":")[2].rpartition(":")[0]
    assert client.run("attach", run).returncode == 0


def client_sha(client: Client) -> str:
    """The one snapshot that there is."""
    listed = subprocess.run(
        ["git", "for-each-ref", "--format=%(objectname)", "refs/fmha/snapshots"],
        cwd=client.root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.strip()


def test_a_secret_in_a_file_of_the_commit_is_refused(client: Client):
    """It cannot be left out; a key that the commit has already, for a test say, is no reason to."""
    (client.root / "fixture").write_text(KEY)
    git(client.root, "add", "fixture")
    git(client.root, "commit", "-q", "-m", "a key for tests")
    (client.root / "fixture").write_text(f"{KEY}longer\n")
    with (client.root / "matrix.yaml").open("a") as file:
        file.write(f"# hf_{30 * 'a'}\n")
    done = client.run("run-matrix", "--host", "gpu", "--snapshot")
    assert done.returncode == 2
    assert "'matrix.yaml' has a Hugging Face token that the commit has not" in done.stderr
    assert client_sha(client) == ""
    git(client.root, "checkout", "-q", "matrix.yaml")
    assert client.run("run-matrix", "--host", "gpu", "--snapshot", "-q").returncode == 0


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
