"""Faults of the connection: nothing is lost, nothing is run twice, and nobody is trusted by accident."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, fresh_client, in_state, started
from tests.remote.server import Hold, Server, client_config, free_port, key

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}


def reached(client: Client, name: str) -> bool:
    path = client.server.folder / "reached" / name
    if path.exists():
        path.unlink()
        return True
    return False


def slow_setup(client: Client) -> None:
    """An environment of its own, whose making can be held."""
    marker = client.server.folder / "hold" / "setup"

    def change(matrix: dict) -> None:
        setup = matrix["hosts"]["gpu"]["environment"]["setup"]
        hold = f"touch {client.server.folder}/reached/setup; while [ -e {marker} ]; do sleep 0.02; done"
        matrix["hosts"]["gpu"]["environment"]["setup"] = f"{setup} && {hold} # {client.root}"

    client.change_matrix(change)


@contextlib.contextmanager
def held_at(client: Client, stage: str) -> Iterator[tuple[subprocess.Popen[str], Hold]]:
    """A run that waits at `stage` until it is released: git, setup, nvcc, or a configuration's t."""
    if stage == "nvcc":
        client.fresh_kernel()
    else:
        git(client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
    if stage == "setup":
        slow_setup(client)
    reached(client, stage)
    with client.server.hold(stage) as hold:
        process = client.start("run-matrix", "--host", "gpu")
        if stage.startswith("t"):
            client.wait_for(started(f"hd64_{stage}_sk128"))
        else:
            assert eventually(lambda: reached(client, stage))
        yield process, hold


@pytest.mark.parametrize("stage", ["git", "setup", "nvcc", "t1", "t32"])
def test_the_connection_is_cut(client: Client, stage: str):
    """At the transfer of the commit, in the environment's set-up, in the build, and while configurations run."""
    with held_at(client, stage) as (process, hold):
        assert client.server.cut()
        hold.release()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    assert "trying again" in stderr
    assert client.statuses() == GOOD
    assert len(client.runs()) == 1


BREAKING = """\
import os, select, socket, sys
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left = 1_500_000  # bytes of a connection, then it breaks
while left > 0:
    ready, _, _ = select.select([0, to], [], [])
    if 0 in ready:
        data = os.read(0, 1 << 14)
        left -= len(data)
        if not data:
            break
        to.sendall(data)
    if to in ready:
        data = to.recv(1 << 16)
        if not data:
            break
        os.write(1, data)
"""


def test_a_commit_that_no_connection_is_long_enough_for_arrives(
    template: Path, server: Server, warm: None, tmp_path: Path
):
    """Each brings what the one before has not. Another client's upload of the same commit is gone on with as well."""
    (tmp_path / "breaking.py").write_text(BREAKING)
    proxy = {"ProxyCommand": f"{sys.executable} {tmp_path}/breaking.py {server.port}"}
    with fresh_client(template, server, tmp_path, options=proxy) as client:
        (client.root / "weights").write_bytes(random.Random(0).randbytes(4_000_000))
        git(client.root, "add", "weights")
        git(client.root, "commit", "-q", "-m", "large")
        incoming = client.home / "fmha" / "incoming"
        first = client.start("run-matrix", "--host", "gpu")
        assert eventually(lambda: sum(path.stat().st_size for path in incoming.glob("*.pack")) > 500_000)
        first.kill()
        done = client.run("run-matrix", "--host", "gpu")
        assert done.returncode == 0, done.stderr
        assert client.statuses() == GOOD
        (upload, *_) = re.findall(r"(\d+) of (\d+) bytes of the commit are there from before", done.stderr)
        assert 500_000 < int(upload[0]) < int(upload[1])
        assert not [*incoming.iterdir()]


@pytest.mark.parametrize("stage", ["checkout", "setup", "nvcc"])
def test_a_run_that_is_cancelled_before_it_has_measured_anything_is_archived(client: Client, stage: str):
    """In the checkout, in the environment's set-up, and in the build."""
    if stage == "checkout":
        git(client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
        holding = client.server.wrap("git", shutil.which("git") or "", "worktree")
        reached(client, "git")
        name = "git"
    else:
        slow_setup(client) if stage == "setup" else client.fresh_kernel()
        reached(client, stage)
        name = stage
    try:
        with client.server.hold(name):
            process = client.start("run-matrix", "--host", "gpu")
            assert eventually(lambda: reached(client, name))
            (run,) = client.runs()
            cancelled = client.run("cancel", run.name)
            assert cancelled.returncode == 0, cancelled.stderr
            _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
            client.settle()
    finally:
        if stage == "checkout":
            client.server.wrap("git", str(shutil.which("git")), "index-pack")
            assert holding.exists()
    assert process.returncode == 4, stderr
    assert set(client.statuses().values()) == {"not-run"}
    (record,) = client.records()
    assert "gpu: cancelled" in str(record)
    assert client.run("attach", run.name).returncode == 4
    assert client.records() == [record]


@pytest.mark.parametrize("what", ["our key is revoked", "the host has another key"])
def test_a_login_that_stops_working_in_a_run_names_it_and_how_to_attach(client: Client, what: str):
    server = client.server
    keys = server.folder / "authorized_keys"
    known = client.config.parent / "known_hosts"
    before = (keys.read_text(), known.read_text())
    with server.hold("t1"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t1_sk128"))
        if what == "our key is revoked":
            keys.write_text("")
        else:
            key(server.folder / "another")
            words = (server.folder / "another.pub").read_text().split()
            known.write_text(f"[{server.address}]:{server.port} {words[0]} {words[1]}\n")
        assert server.cut()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        keys.write_text(before[0])
        known.write_text(before[1])
    assert process.returncode in (2, 3), stderr
    last = stderr.strip().splitlines()[-1]
    assert f"run {run.name} goes on without us" in last
    assert f"fmha attach {run.name}" in last
    assert client.run("attach", run.name).returncode == 0


def test_the_connection_is_cut_while_the_run_waits_for_its_gpu(client: Client):
    with client.server.hold("t1") as hold:
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        second = client.start("run-matrix", "--host", "gpu")
        client.wait_for(lambda events: any(event["kind"] == "waiting" for event in events))
        assert client.server.cut()
        hold.release()
        _, stderr = second.communicate(timeout=DEADLINE_SECONDS)
    assert second.returncode == 0, stderr
    assert "trying again" in stderr
    assert f"held by run {first}" in stderr
    assert client.statuses() == GOOD


def test_the_server_is_away_for_a_while(client: Client):
    with client.server.hold("t1") as hold:
        process = client.start("run-matrix", "--host", "gpu")
        client.wait_for(started("hd64_t1_sk128"))
        client.server.down()
        hold.release()
        assert process.stderr is not None
        said = ""
        while "cannot reach" not in said and (line := process.stderr.readline()):
            said += line
        client.server.start()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, said + stderr
    assert client.statuses() == GOOD


@pytest.mark.parametrize("stage", ["nvcc", "t32"])
def test_the_client_is_killed_and_attached_again(client: Client, stage: str):
    if stage == "nvcc":
        client.fresh_kernel()
    reached(client, stage)
    with client.server.hold(stage):
        process = client.start("run-matrix", "--host", "gpu")
        if stage == "nvcc":
            assert eventually(lambda: reached(client, stage))
            run = client.wait_for(in_state("build"))
        else:
            run = client.wait_for(started("hd64_t32_sk128"))
        process.kill()
        process.wait()
    done = client.run("attach", run.name)
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_client_that_is_told_to_end_leaves_the_run_alone(client: Client, number: signal.Signals):
    with client.server.hold("t1"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t1_sk128"))
        process.send_signal(number)
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 4
        assert f"fmha attach {run.name} --host gpu" in stderr
    assert client.run("attach", run.name).returncode == 0
    assert client.statuses() == GOOD


RUN = f"20260101T000000Z-{'0' * 12}-{'0' * 8}"


def test_an_unknown_host_is_refused_with_the_command_that_accepts_it(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other")
    (tmp_path / "other" / "known_hosts").write_text("")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "is unknown" in done.stderr
    assert "ssh gpu true" in done.stderr
    for other in (
        ("ps",),
        ("ps", "--host", "gpu"),
        ("hosts",),
        ("doctor", "--host", "gpu"),
        ("logs", RUN, "--host", "gpu"),
    ):
        assert client.run(*other).returncode == 3, other  # one exit code, whatever is asked
    assert (tmp_path / "other" / "known_hosts").read_text() == ""
    assert client.runs() == []


def test_a_changed_host_key_is_refused_with_the_command_that_forgets_the_old_one(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other")
    key(tmp_path / "impostor")
    kind, data = (tmp_path / "impostor.pub").read_text().split()[:2]
    known = tmp_path / "other" / "known_hosts"
    known.write_text(f"[127.0.0.1]:{client.server.port} {kind} {data}\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "has CHANGED" in done.stderr
    name = f"[127.0.0.1]:{client.server.port}"
    assert f"ssh-keygen -R '{name}' -f {known}" in done.stderr
    subprocess.run(["ssh-keygen", "-R", name, "-f", known], check=True, capture_output=True)
    assert known.read_text() == ""


def test_lines_of_known_hosts_that_are_for_others_do_no_harm(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other")
    known = tmp_path / "other" / "known_hosts"
    odd = (
        "# a comment\n\n@cert-authority *.example.com ssh-ed25519 AAAA\nbroken ssh-ed25519 AAA\nx ssh-unheard-of AAAA\n"
    )
    known.write_text(odd + known.read_text())
    assert client.run("ps", "--host", "gpu").returncode == 0


def test_a_revoked_host_key_is_refused(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other")
    kind, data = (client.server.folder / "host_key.pub").read_text().split()[:2]
    with (tmp_path / "other" / "known_hosts").open("a") as file:
        file.write(f"@revoked * {kind} {data}\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "is REVOKED" in done.stderr
    assert client.runs() == []


def test_keys_that_are_not_accepted(client: Client, tmp_path: Path):
    key(tmp_path / "stranger")
    client.config = client_config(client.server, tmp_path / "other", extra={"IdentityFile": str(tmp_path / "stranger")})
    done = client.run("hosts")
    assert done.returncode == 3
    assert "accepts none of the keys" in done.stdout


def test_nobody_listens(client: Client, tmp_path: Path):
    client.config = client_config(client.server, tmp_path / "other", extra={"Port": str(free_port())})
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "cannot reach 127.0.0.1" in done.stderr
    assert "trying again" not in done.stderr


def test_a_jump_host_is_used_and_its_key_checked(client: Client, tmp_path: Path):
    config = client_config(client.server, tmp_path / "other", extra={"ProxyJump": "jump"})
    entry = config.read_text().replace("Host gpu", "Host jump").replace("  ProxyJump jump\n", "")
    config.write_text(config.read_text() + entry)
    client.config = config
    before = client.server.log().count("Accepted publickey")
    assert client.run("ps").returncode == 0
    assert client.server.log().count("Accepted publickey") - before == 4  # `gpu` and `real`, each through the jump


def test_an_agent_holds_the_key_and_is_not_forwarded(client: Client, tmp_path: Path):
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        assert eventually(socket.exists)
        environment = os.environ | {"SSH_AUTH_SOCK": str(socket)}
        user_key = client.server.folder / "user_key"
        subprocess.run(["ssh-add", "-q", user_key], env=environment, check=True)
        client.config = client_config(
            client.server,
            tmp_path / "other",
            extra={"IdentityFile": "none", "IdentitiesOnly": "no", "ForwardAgent": "yes"},
        )
        with client.server.hold("t1"):
            process = client.start("run-matrix", "--host", "gpu", SSH_AUTH_SOCK=str(socket))
            client.wait_for(started("hd64_t1_sk128"))
            for line in client.server.left_over():
                assert b"SSH_AUTH_SOCK" not in Path(f"/proc/{line.split()[0]}/environ").read_bytes()
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        agent.terminate()
        agent.wait()
