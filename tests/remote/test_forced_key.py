"""A key that can do nothing but run commits: what it does, and what it does not do for whoever has stolen it."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.git import git_text
from fmha.harness.hosts.shipment import preamble
from tests.harness.support import git
from tests.integration.processes import eventually
from tests.remote.conftest import Client, fresh_client
from tests.remote.server import Server, client_config, free_port, key
from tests.remote.test_hostile_trees import WHO, Tree, made, tree_of

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]


TIGHT: dict[str, object] = {"seconds": 2, "workers": 1, "random_cases": 3, "runs": 1, "pack_bytes": 64}
MORE = (  # than a key may ask for of a host whose owner says nothing, and than of one that is TIGHT
    ("limits.build_seconds", 14401, 3),
    ("limits.total_seconds", 14401, 3),
    ("work.workers", 1024, 2),
    ("work.request.random_cases", 1001, 4),
    ("order.request.random_cases", 1001, 4),
    ("gpu.count", 2, 2),
)


@dataclass
class Limited:
    client: Client
    config: Path  # of ssh, with the limited key

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.client.run(*arguments, FMHA_SSH_CONFIG=str(self.config))

    def ssh(self, *words: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", *words]
        return subprocess.run(command, input=said, capture_output=True, timeout=60, check=False)

    def asks(self, request: dict[str, Any], more: bytes = b"") -> dict[str, Any]:
        """The agent's answer to a request that no client of ours would make, and to what is said after it."""
        said = preamble("/nonexistent") + json.dumps({**request, "silence": 20.0}).encode() + b"\n" + more
        lines = self.ssh("gpu", "python3 whatever", said=said).stdout.splitlines()
        answers = [json.loads(line) for line in lines[1:]]
        return next(answer for answer in answers if not answer.keys() & {"beat", "send"})


@pytest.fixture(scope="module")
def stolen(template: Path, server: Server, warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """A key whose line is that of the host's settings, in a checkout that no test changes."""
    with limited_key(template, server, tmp_path_factory.mktemp("stolen"), "auto", {}) as made:
        yield made


@pytest.fixture(scope="module")
def tight(template: Path, server: Server, warm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """One whose host's owner lets it take little. Its runs see what holds them, being in no sandbox."""
    with limited_key(template, server, tmp_path_factory.mktemp("tight"), "off", TIGHT) as made:
        yield made


@contextlib.contextmanager
def limited_key(
    template: Path, server: Server, folder: Path, isolation: str, most: dict[str, object]
) -> Iterator[Limited]:
    key(folder / "ci_key")
    with fresh_client(template, server, folder) as client:
        client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(key=most))
        done = client.run("hosts", "key", "gpu", str(folder / "ci_key.pub"), "--isolation", isolation)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith('restrict,command="')
        assert done.stdout.count("\n") == 1
        keys = server.folder / "authorized_keys"
        before = keys.read_text()
        keys.write_text(before + done.stdout)
        extra = {"IdentityFile": str(folder / "ci_key"), "IdentityAgent": "none"}
        try:
            yield Limited(client, client_config(server, folder / "limited", extra=extra))
        finally:
            keys.write_text(before)


@pytest.fixture
def limited(client: Client, stolen: Limited) -> Limited:
    """The same key in a checkout of the test's own."""
    return Limited(client, stolen.config)


def test_it_runs_commits(limited: Limited):
    git(limited.client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
    done = limited.run("run-matrix", "--host", "gpu", "--detach", "-q")
    assert done.returncode == 4, done.stderr
    run = done.stdout.strip()
    assert limited.run("attach", run).returncode == 0
    assert run in limited.run("ps").stdout
    assert limited.run("logs", run, "--host", "gpu").returncode == 0
    assert limited.run("doctor", "--host", "gpu").returncode == 0
    assert limited.run("cancel", run).returncode == 0


def test_the_owner_says_what_isolates_its_runs(limited: Limited):
    """The key's line was made with `--isolation auto`; what a request asks for instead counts for nothing."""
    limited.client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(isolation="off"))
    done = limited.run("run-matrix", "--host", "gpu", "-q", "--judge", "own")
    assert done.returncode == 0, done.stderr
    run = limited.client.runs()[-1]
    assert json.loads((run / "job.json").read_text())["isolation"] == "auto"
    (said,) = [event for event in limited.client.events(run) if event["kind"] == "isolation"]
    assert "switched off" not in str(said["missing"])


def test_it_is_no_shell_and_carries_no_file_and_no_connection(stolen: Limited, tmp_path: Path):
    (tmp_path / "file").write_text("of ours")
    port = free_port()
    for command in (("gpu", "id"), ("gpu",), ("gpu", "cat /etc/passwd"), ("gpu", "internal-sftp")):
        done = stolen.ssh(*command)
        assert done.returncode == 1, command
        assert b"this key is for fmha alone" in done.stderr
        assert done.stdout == b""
    assert stolen.ssh("-s", "gpu", "sftp").returncode == 255
    assert stolen.ssh("-N", "-W", f"127.0.0.1:{stolen.client.server.port}", "gpu").returncode == 255
    forward = stolen.ssh("-o", "ExitOnForwardFailure=yes", "-N", "-R", f"{port}:127.0.0.1:22", "gpu")
    assert forward.returncode == 255
    copied = ["scp", "-q", "-F", str(stolen.config), str(tmp_path / "file"), "gpu:stolen"]
    assert subprocess.run(copied, capture_output=True, timeout=60, check=False).returncode != 0
    assert not (stolen.client.home / "stolen").exists()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("environment", {"setup": "touch /tmp/owned", "files": []}),
        ("python", "/usr/bin/env"),
        ("env", {"LD_PRELOAD": "/tmp/x.so"}),
        ("nvcc", "/bin/sh"),
        ("protected", []),
        ("device", "os:system"),
        ("gpus", {"nvidia_smi": "/bin/sh"}),
    ],
)
def test_it_chooses_no_setting(setting: str, value: object, limited: Limited):
    limited.client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update({setting: value}))
    done = limited.run("run-matrix", "--host", "gpu", "-q", "--judge", "own")
    assert done.returncode == 2
    assert f"this key may not choose {setting}" in done.stderr
    if setting == "gpus":
        assert "this key may not choose gpus" in limited.run("hosts").stdout


def test_it_fetches_from_nowhere_else(limited: Limited):
    def change(matrix: dict[str, Any]) -> None:
        matrix["hosts"]["gpu"].update(sync="remote", fetch_url="ext::sh -c touch% /tmp/owned")

    limited.client.change_matrix(change)
    git(limited.client.root, "init", "-q", "--bare", str(limited.client.root.parent / "origin.git"))
    git(limited.client.root, "remote", "add", "origin", str(limited.client.root.parent / "origin.git"))
    done = limited.run("run-matrix", "--host", "gpu", "-q", "--judge", "own")
    assert done.returncode == 2
    assert "this key may not choose fetch_url" in done.stderr


def test_it_approves_nothing(limited: Limited):
    client = limited.client
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    (client.root / "tests" / "unit" / "test_protected.py").write_text(f"assert 1  # {client.root}\n")
    with (client.root / "harness" / "judge" / "status.py").open("a") as file:
        file.write("# another judge\n")
    git(client.root, "commit", "-q", "-a", "-m", "weaken a test")
    done = limited.run("run-matrix", "--host", "gpu", "-q")
    assert done.returncode == 2
    assert "'tests/unit/test_protected.py'" in done.stderr
    done = limited.run("run-matrix", "--host", "gpu", "-q", "--approve-protected")
    assert done.returncode == 2
    assert "this key may not approve" in done.stderr
    git(client.root, "checkout", "-q", "HEAD~")
    git(client.root, "commit", "-q", "--allow-empty", "-m", "only the judge is changed")
    done = limited.run("run-matrix", "--host", "gpu", "-q", "--judge", "main")
    assert done.returncode == 2
    assert "'tests/unit/test_protected.py'" in done.stderr
    with emptied(client.home / "fmha" / "approved"):
        done = limited.run("run-matrix", "--host", "gpu", "-q")
        assert done.returncode == 2
        assert "nothing has been approved here yet" in done.stderr


@contextlib.contextmanager
def emptied(folder: Path) -> Iterator[None]:
    away = folder.rename(folder.with_name("away"))
    try:
        yield
    finally:
        for path in folder.glob("*"):
            path.unlink()
        if folder.exists():
            folder.rmdir()
        away.rename(folder)


def job_of(client: Client) -> dict[str, Any]:
    """A job as the client makes it, of a run that the host does not have."""
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    job: dict[str, Any] = json.loads((client.runs()[-1] / "job.json").read_text())
    stamp, sha, _ = job["run"].split("-")
    return job | {"run": f"{stamp}-{sha}-{'0' * 8}"}


@pytest.mark.parametrize("field", ["sha", "judge", "beside"])
def test_a_commit_that_is_an_option_for_git_is_refused(field: str, limited: Limited):
    """The thesis is the account's own, and the account is whose key it is."""
    thesis = limited.client.home / "thesis.txt"
    thesis.write_text("years of work")
    thesis.chmod(0o666)
    job = job_of(limited.client)
    runs = limited.client.runs()
    for bad in (f"--output={thesis}", f"{job['sha']}:matrix.yaml", "HEAD"):
        answer = limited.asks({"op": "start", "job": job | {field: bad}, "follow": False})
        assert f"job.{field} is no commit" in answer["error"] or f"{field} has more than 40 char" in answer["error"]
        assert answer["usage"]
    assert thesis.read_text() == "years of work"
    assert limited.client.runs() == runs


def changed(job: dict[str, Any], field: str, value: object) -> dict[str, Any]:
    """The job with another value in that place."""
    made = copy.deepcopy(job)
    *above, name = field.split(".")
    section = made
    for part in above:
        section = section[part]
    section[name] = value
    return made


def modest(job: dict[str, Any]) -> dict[str, Any]:
    """The job as one would ask that knows what a TIGHT host lets it."""
    return changed(changed(job, "limits.build_seconds", 1), "limits.total_seconds", 1)


@pytest.mark.parametrize(("field", "much", "more"), MORE)
def test_it_takes_no_more_of_the_host_than_its_owner_lets_it(
    field: str, much: float, more: float, limited: Limited, tight: Limited
):
    job = job_of(limited.client)
    runs = limited.client.runs()
    for asked, given in ((limited.asks, changed(job, field, much)), (tight.asks, changed(modest(job), field, more))):
        answer = asked({"op": "start", "job": given, "follow": False})
        assert "this key may not ask for" in answer["error"], answer
        assert field.rpartition(".")[2] in answer["error"]
        assert "fmha hosts key" in answer["next"]
        assert answer["usage"]
    assert limited.client.runs() == runs


def test_a_person_is_told_which_setting_bounds_a_key(limited: Limited):
    done = limited.run("run-matrix", "--host", "gpu", "--suite", "random", "--cases", "1001")
    assert done.returncode == 2
    said = "this key may not ask for random_cases of 1001: 1000 is the most, as the host's key.random_cases has it"
    assert said in done.stderr
    assert "fmha hosts key" in done.stderr


def test_what_a_job_leaves_open_is_as_the_owner_has_it(tight: Limited, client: Client):
    job = modest(job_of(client))
    assert job["work"]["workers"] == 0
    assert tight.asks({"op": "start", "job": job, "follow": False}) == {"started": job["run"]}
    stored = json.loads((client.home / "fmha" / "runs" / job["run"] / "job.json").read_text())
    assert stored["work"]["workers"] == 1
    assert stored["key"] == TIGHT


def test_a_run_of_it_ends_when_its_time_is_over(tight: Limited, client: Client):
    """However much it says meanwhile that it is alive; nor does another of such a key begin beside it."""
    job = modest(job_of(client))
    run = client.home / "fmha" / "runs" / job["run"]
    with client.server.hold("t1"):
        assert tight.asks({"op": "start", "job": job, "follow": False}) == {"started": job["run"]}
        second = changed(job, "run", job["run"][:-1] + "1")
        answer = tight.asks({"op": "start", "job": second, "follow": False})
        assert "as many runs of keys that can only run commits are here as may be at once, 1" in answer["error"]
        assert tight.asks({"op": "start", "job": job, "follow": False}) == {"started": job["run"]}  # asked again
        assert eventually(lambda: (run / "status.json").exists())
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert "a key that can only run commits has 2 s for one" in status["reason"]
    assert "key.seconds" in status["next_step"]
    assert not (run.parent / second["run"]).exists()


def test_it_sends_no_more_than_its_owner_takes(tight: Limited, client: Client):
    job = modest(job_of(client))
    git(client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
    sha = git_text(client.root, "rev-parse", "HEAD")
    job |= {"sha": sha, "run": job["run"].replace(job["sha"][:12], sha[:12])}
    offer = json.dumps({"pack": "0" * 64, "bytes": 65}).encode() + b"\n"
    answer = tight.asks({"op": "start", "job": job, "follow": False}, offer)
    assert "this key may not send 65 bytes: 64 is the most, as the host's key.pack_bytes has it" in answer["error"]


def test_a_tree_made_by_hand_writes_nothing_outside(limited: Limited):
    """A link and a folder of one name: what is below the folder would go where the link leads."""
    client, home = limited.client, limited.client.home
    job = job_of(client)
    before = sorted(home.iterdir())
    names = subprocess.run(
        ["git", "ls-tree", "-z", "HEAD"], cwd=client.root, capture_output=True, check=True
    ).stdout.split(b"\0")[:-1]
    tree: Tree = [("100644", b"rc", b"touch owned")]
    parts = [(line.split()[0].decode(), line.partition(b"\t")[2], line.split()[2].decode()) for line in names]
    sub = [("120000", b"zz", made(client.root, "blob", str(home / ".ssh").encode()))]
    sub += [("40000", b"zz", tree_of(client.root, tree))]
    kernel = raw(client.root, sub)
    root = raw(client.root, [(m.lstrip("0"), n, kernel if n == b"kernel" else sha) for m, n, sha in parts])
    sha = subprocess.run(
        ["git", "commit-tree", "-p", "HEAD", "-m", "x", root], cwd=client.root, capture_output=True, text=True,
        check=True, env=os.environ | WHO,
    ).stdout.strip()  # fmt: skip
    git(client.root, "update-ref", "refs/heads/evil", sha)
    # git's own checks take it neither by a fetch nor from a client: the objects are there as if they came before them.
    repository = home / "fmha" / "repository.git"
    subprocess.run(["cp", "-a", f"{client.root}/.git/objects/.", f"{repository}/objects"], check=True)
    git(repository, "-c", "safe.directory=*", "update-ref", f"refs/fmha/commits/{sha}", sha)
    subprocess.run(["chown", "-R", str(client.server.uid), str(repository)], check=True)
    job |= {"sha": sha, "run": job["run"].replace(job["sha"][:12], sha[:12])}
    limited.asks({"op": "start", "job": job, "follow": False})
    run = home / "fmha" / "runs" / str(job["run"])
    assert eventually(lambda: (run / "status.json").exists())
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert "the commit has two entries of one name: 'kernel/zz'" in status["reason"]
    assert sorted(home.iterdir()) == before
    assert not (run / "tree").exists()


def raw(root: Path, entries: list[tuple[str, bytes, str]]) -> str:
    data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
    return made(root, "tree", data)


@pytest.mark.parametrize("operation", ["clean", "key", "release", "reserve", "nonsense"])
def test_other_requests_are_refused(operation: str, stolen: Limited):
    request = {"op": operation, "policy": {}, "age_seconds": 0, "size_bytes": 0, "dry": False}
    assert stolen.asks(request)["error"] == f"this key may not {operation}"


def test_another_version_of_fmha_is_told_so(stolen: Limited):
    first, spec, rest = preamble("/nonexistent").split(b"\n", 2)
    other = json.loads(spec) | {"digest": "0" * 32}
    said = b"\n".join([first, json.dumps(other).encode(), rest]) + b'{"op":"list","silence":20}\n'
    answer = json.loads(stolen.ssh("gpu", "x", said=said).stdout.splitlines()[1])
    assert "another version of fmha" in answer["error"]
    assert "fmha hosts key" in answer["next"]


@pytest.mark.parametrize("size", [-1, 1 << 40, "many", 10_000])
def test_what_is_no_client_starts_nothing(size: object, stolen: Limited):
    spec = json.dumps({"size": size, "digest": "0" * 32, "folder": "/", "greeting": "x"}).encode()
    done = stolen.ssh("gpu", "x", said=b"1\n" + spec + b"\nabc")
    assert done.returncode == 1
    assert done.stdout == b""


def test_more_than_any_client_sends_is_refused_before_it_comes(stolen: Limited):
    """The connection stays open and carries nothing: an answer shows that no byte was waited for."""
    command = ["ssh", "-F", str(stolen.config), "-o", "BatchMode=yes", "gpu", "x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b'1\n{"size": 16777216, "digest": "x"}\n')
        process.stdin.flush()
        try:
            assert process.wait(timeout=60) == 1
        finally:
            process.kill()


@pytest.mark.parametrize("text", ["", "rubbish", "-----BEGIN OPENSSH PRIVATE KEY-----\n", 'command="x" ssh-rsa AAAA'])
def test_only_a_public_key_gets_a_line(text: str, client: Client, tmp_path: Path):
    (tmp_path / "key").write_text(text)
    done = client.run("hosts", "key", "gpu", str(tmp_path / "key"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "key" in done.stderr
