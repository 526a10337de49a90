"""Whatever `ssh host` logs in to, `fmha` logs in to: keys, certificates, known_hosts in all its forms, open sockets."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.figures import limits
from tests.forked import fmha
from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.server import Server, client_config, key, serving

pytestmark = [pytest.mark.timeout(300)]
MATRIX = """\
default_suite: good
seed: 0
suites: {{good: {{axes: {{head_dim: [64], t: [1], s_k: [128]}}}}}}
gates:
  default: {limits}
guard: {{head_dim: 64, fallback: {{t: 1, s_k: 128}}}}
limits: {{build_seconds: 9, configuration_silence_seconds: 9, configuration_total_seconds: 9}}
hosts: {{gpu: {{kind: ssh, python: {python}}}}}
"""


@pytest.fixture(scope="module")
def server(public_folder: Path) -> Iterator[Server]:
    """Two logins at once and no more, a certificate of its own, and users by their certificates."""
    more = "MaxStartups 2:100:2\nHostCertificate {folder}/host_key-cert.pub\nTrustedUserCAKeys {folder}/ca.pub\n"
    folder = public_folder / "forms"
    with serving(folder, more=more) as running:
        key(folder / "ca")
        sign = ["ssh-keygen", "-q", "-s", folder / "ca", "-I", "test", "-n"]
        subprocess.run([*sign, "127.0.0.1", "-h", folder / "host_key.pub"], check=True, capture_output=True)
        key(folder / "certified")
        subprocess.run([*sign, running.account, folder / "certified.pub"], check=True, capture_output=True)
        running.down()
        running.start()
        yield running


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "matrix.yaml").write_text(MATRIX.format(limits=limits(), python=server.python))
    git(root, "init", "-q", "-b", "main")
    return root


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        assert eventually(socket.exists)
        yield socket
    finally:
        process.terminate()
        process.wait()


def start(project: Path, config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fmha", "ps", "--host", "gpu"],
        cwd=project, env=os.environ | {"FMHA_SSH_CONFIG": str(config)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def asks(project: Path, config: Path, *words: str, **environment: str) -> tuple[int, str]:
    """The exit code of `fmha ps`, and what it says."""
    env = os.environ | {"FMHA_SSH_CONFIG": str(config)} | environment
    done = fmha(*(words or ("ps", "--host", "gpu")), cwd=project, env=env, timeout=DEADLINE_SECONDS)
    return done.returncode, done.stdout + done.stderr


def configured(server: Server, tmp_path: Path, **options: str) -> Path:
    return client_config(server, tmp_path / "ssh", extra=options)


def ed25519(server: Server) -> str:
    return " ".join((server.folder / "host_key.pub").read_text().split()[:2])


def added(agent: Path, path: Path) -> Mapping[str, str]:
    environment = {"SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", path], env=os.environ | environment, check=True)
    return environment


@pytest.mark.parametrize("form", ["private key beside it", "public key alone"])
def test_identities_only_with_a_key_of_the_agent(server: Server, project: Path, agent: Path, tmp_path: Path, form: str):
    environment = added(agent, server.folder / "user_key")
    public = shutil.copy(server.folder / "user_key.pub", tmp_path / "mine.pub")
    name = str(tmp_path / "mine") if form == "private key beside it" else public
    code, said = asks(project, configured(server, tmp_path, IdentityFile=name), **environment)
    assert code == 0, said


def test_a_certificate_of_a_user(server: Server, project: Path, tmp_path: Path):
    config = configured(server, tmp_path, IdentityFile=str(server.folder / "certified"))
    code, said = asks(project, config)
    assert code == 0, said


@pytest.mark.parametrize("form", ["wildcard", "hashed", "certificate", "ten thousand others"])
def test_known_hosts_in_every_form(server: Server, project: Path, tmp_path: Path, form: str):
    config = configured(server, tmp_path)
    known = tmp_path / "ssh" / "known_hosts"
    if form == "wildcard":
        known.write_text(f"[127.0.*]:{server.port} {ed25519(server)}\n")
    elif form == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
        assert known.read_text().startswith("|1|")
    elif form == "certificate":
        authority = " ".join((server.folder / "ca.pub").read_text().split()[:2])
        known.write_text(f"@cert-authority [127.0.0.1]:{server.port},127.0.0.1 {authority}\n")
    else:
        hosts = random.Random(0).sample(range(1 << 24), 10_000)
        others = "".join(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255} {ed25519(server)}\n" for n in hosts)
        known.write_text(others)
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
        known.write_text(known.read_text() + f"[127.0.0.1]:{server.port} {ed25519(server)}\n")
    code, said = asks(project, config)
    assert code == 0, said


@pytest.mark.parametrize("setting", ["no", "accept-new"])
def test_a_host_that_the_users_own_settings_accept(server: Server, project: Path, tmp_path: Path, setting: str):
    config = configured(server, tmp_path, StrictHostKeyChecking=setting)
    (tmp_path / "ssh" / "known_hosts").write_text("")
    code, said = asks(project, config)
    assert code == 0, said
    assert (tmp_path / "ssh" / "known_hosts").read_text()


def test_a_socket_that_the_users_own_ssh_holds_open(server: Server, project: Path, tmp_path: Path):
    """Whatever it took to log in was done once, by somebody."""
    config = configured(server, tmp_path)
    with opened_socket(config) as socket:
        keyless = configured(
            server, tmp_path, IdentityFile="none", ControlPath=str(socket), ControlMaster="auto", ControlPersist="yes"
        )
        code, said = asks(project, keyless)
        assert code == 0, said
    code, said = asks(project, keyless)
    assert code == 3
    assert "accepts none of the keys" in said
    assert not socket.exists()  # no master of ours stays behind


@contextlib.contextmanager
def opened_socket(config: Path) -> Iterator[Path]:
    """A socket over which an ssh of the user's is logged in."""
    socket = Path("/tmp") / f"fmha-{os.getpid()}-{random.getrandbits(32):x}"
    master = subprocess.Popen(["ssh", "-F", config, "-M", "-S", socket, "-N", "gpu"], stdin=subprocess.DEVNULL)
    try:
        assert eventually(socket.exists)
        yield socket
    finally:
        master.terminate()
        master.wait()
        socket.unlink(missing_ok=True)


def log_in(connection: Any, known: Path, policy: Any) -> None:
    """As careful as it can be told to be."""
    connection.client.set_missing_host_key_policy(policy)
    connection.client.load_host_keys(str(known))
    connection.open()


@pytest.mark.parametrize("form", ["certificate of the host", "open socket", "unknown host"])
def test_what_fabric_cannot_do(server: Server, project: Path, tmp_path: Path, form: str):
    """Why OpenSSH's own client carries the bytes and no fabric.Connection: it knows neither certificates of hosts nor
    sockets that are open, and by itself it runs a command on a host that nobody knows. Where it can do one of these
    some day, this says so."""
    fabric = pytest.importorskip("fabric", reason="pip install fabric, to see what it cannot do")
    paramiko = pytest.importorskip("paramiko")
    config = configured(server, tmp_path)
    known = tmp_path / "ssh" / "known_hosts"
    with contextlib.ExitStack() as stack:
        if form == "certificate of the host":
            authority = " ".join((server.folder / "ca.pub").read_text().split()[:2])
            known.write_text(f"@cert-authority [127.0.0.1]:{server.port},127.0.0.1 {authority}\n")
        elif form == "open socket":
            socket = stack.enter_context(opened_socket(config))
            key(tmp_path / "nobodys")
            config = configured(server, tmp_path, IdentityFile=str(tmp_path / "nobodys"), ControlPath=str(socket))
        else:
            known.write_text("")
        code, said = asks(project, config)
        assert code == (3 if form == "unknown host" else 0), said
        settings = fabric.Config(runtime_ssh_path=str(config))
        options = {"allow_agent": False, "look_for_keys": False}
        connection = stack.enter_context(fabric.Connection("gpu", config=settings, connect_kwargs=options))
        if form == "unknown host":
            assert connection.run("true", hide=True, in_stream=False).ok
            return
        with pytest.raises((paramiko.SSHException, paramiko.hostkeys.InvalidHostKey)):
            log_in(connection, known, paramiko.RejectPolicy())


def test_more_clients_at_once_than_the_server_lets_in(server: Server, project: Path, tmp_path: Path):
    config = configured(server, tmp_path)
    clients = [start(project, config) for _ in range(8)]
    said = [process.communicate(timeout=4 * DEADLINE_SECONDS)[1] for process in clients]
    assert [process.returncode for process in clients] == [0] * 8, said


def test_settings_that_would_make_ssh_do_something_else_do_nothing(server: Server, project: Path, tmp_path: Path):
    config = configured(
        server, tmp_path, RemoteCommand="touch pwned", RequestTTY="force", PermitLocalCommand="yes",
        LocalCommand=f"touch {tmp_path}/pwned", ForwardX11="yes", LogLevel="DEBUG3", LocalForward="1 127.0.0.1:1",
        EscapeChar="~",
    )  # fmt: skip
    code, said = asks(project, config)
    assert code == 0, said
    assert not list(tmp_path.rglob("pwned"))
    assert not list(server.home.rglob("pwned"))


@pytest.mark.parametrize(
    "alias", ["-oProxyCommand=touch pwned", "a;b", "$(touch pwned)", "a b", "x`y`", "a|b", "a\u202eb"]
)
def test_an_alias_that_a_shell_could_read_never_gets_to_ssh(server: Server, project: Path, tmp_path: Path, alias: str):
    config = configured(server, tmp_path, ProxyCommand="sh -c 'echo %n %h; touch pwned'")
    text = (project / "matrix.yaml").read_text().replace("{kind: ssh,", f"{{kind: ssh, alias: {alias!r},")
    (project / "matrix.yaml").write_text(text)
    code, said = asks(project, config)
    assert code in (2, 3), said
    assert "no alias that ssh could be given" in said or "do not print" in said
    assert not (project / "pwned").exists()


def test_a_name_that_nobody_knows_is_answered_with_the_lines_to_write(project: Path, tmp_path: Path):
    (tmp_path / "config").write_text("")
    code, said = asks(project, tmp_path / "config")
    assert code == 3
    assert "Host gpu" in said
    assert "HostName" in said


def test_ssh_that_is_not_installed(project: Path, tmp_path: Path):
    (tmp_path / "config").write_text("")
    (tmp_path / "bin").mkdir()
    os.symlink(shutil.which("git") or "", tmp_path / "bin" / "git")
    code, said = asks(project, tmp_path / "config", PATH=str(tmp_path / "bin"))
    assert code == 3
    assert "install openssh-client" in said


def test_a_jump_host_that_would_ask_asks_nobody(server: Server, project: Path, tmp_path: Path):
    """The ssh of a jump is not told to ask nothing; but there is nobody whom it could ask."""
    config = configured(server, tmp_path, ProxyJump="jump")
    askpass = tmp_path / "askpass"
    askpass.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    askpass.chmod(0o755)
    jump = f"Host jump\n  HostName 127.0.0.1\n  Port {server.port}\n  UserKnownHostsFile {tmp_path}/none\n"
    config.write_text(config.read_text() + jump)
    code, said = asks(project, config, DISPLAY=":0", SSH_ASKPASS=str(askpass))
    assert code == 3
    assert "the host key is unknown" in said
    assert not (tmp_path / "asked").exists()


SLOW = """\
import os, select, socket, sys, time
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    ready, _, _ = select.select([0, to], [], [])
    if 0 in ready:
        data = os.read(0, 1 << 16)
        if not data:
            break
        to.sendall(data)
    if to in ready:
        data = to.recv(1000)
        if not data:
            break
        os.write(1, data)
        time.sleep(len(data) / 25_000)  # a line of 25 KB a second
"""


def test_a_slow_line_is_not_a_lost_one(server: Server, project: Path, tmp_path: Path):
    """One message takes several times as long as the host may be silent, and bytes of it come all the while."""
    (tmp_path / "slow.py").write_text(SLOW)
    config = configured(server, tmp_path, ProxyCommand=f"{sys.executable} {tmp_path}/slow.py {server.port}")
    text = (project / "matrix.yaml").read_text().replace("{kind: ssh,", "{kind: ssh, silence_seconds: 3,")
    (project / "matrix.yaml").write_text(text)
    run = server.home / "fmha" / "runs" / "20261121T101500Z-0123456789ab-89abcdef"
    run.mkdir(parents=True)
    noise = random.Random(0)  # nothing that ssh could compress
    (run / "run.log").write_text("".join(f"{noise.getrandbits(256):x}\n" for _ in range(6000)))
    (run / "job.json").write_text("{}")
    status = {"state": "done", "reason": "", "events_bytes": 0, "events_sha256": "0" * 64, "finished": 0.0}
    (run / "status.json").write_text(json.dumps(status))
    for path in (*run.parents[:2], run, *run.iterdir()):
        os.chown(path, server.uid, -1)
    try:
        code, said = asks(project, config, "logs", run.name, "--host", "gpu")
    finally:
        shutil.rmtree(run)
    assert code == 0, said[-500:]
    assert said.count("\n") > 6000


def test_a_start_up_file_that_prints_without_the_end_of_a_line(server: Server, project: Path, tmp_path: Path):
    python = server.folder / "bin" / "chatty"
    python.write_text(f'#!/bin/sh\nprintf "welcome\\nno end"\nexec {server.python} "$@"\n')
    python.chmod(0o755)
    text = (project / "matrix.yaml").read_text().replace(f"python: {server.python}", f"python: {python}")
    (project / "matrix.yaml").write_text(text)
    code, said = asks(project, configured(server, tmp_path))
    assert code == 0, said


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('yes | head -c 300000 >&2; exec {python} "$@"', None),  # more than a pipe holds, before anything else
        ("head -c 2000000 /dev/zero", "agent ended|no agent answers"),
        ("yes", "no agent answers"),
        ("exit 255", "connection was lost"),
        ("kill -9 $$", "agent ended|connection was lost"),
        ("echo '{{\"fmha\":1}}'; echo '[]'", "no message|agent ended"),
        ("echo '{{\"fmha\":1}}'; echo '{{\"error\":7}}'", "cannot be: error"),
        ('echo \'{{"fmha":1}}\'; echo \'{{"error":"x"}}\'', "gpu: x"),
        ("echo '{{\"fmha\":1}}'; echo '{{\"runs\":{{}}}}'", "no list"),
        ("echo '{{\"fmha\":1}}'; echo '{{\"runs\":[7]}}'", "cannot be"),
        ("echo '{{\"fmha\":1}}'; printf '['%.0s $(seq 100000); echo", "no message"),
        ("echo '{{\"fmha\":1}}'; echo '{{\"runs\":[NaN]}}'", "no message"),
        ("printf '{{\"fmha\":1}}\\n\\377\\376\\n'", "no message"),
        ('printf \'{{"fmha":1}}\\n{{"runs":\'', "agent ended"),  # half an answer
    ],
)
def test_another_end_that_is_no_agent(server: Server, project: Path, tmp_path: Path, body: str, says: str | None):
    """Whatever answers in its place: one line that says so, exit code 3, and never a traceback."""
    python = server.folder / "bin" / "odd"
    python.write_text(f"#!/bin/sh\n{body.format(python=server.python)}\n")
    python.chmod(0o755)
    text = (project / "matrix.yaml").read_text().replace(f"python: {server.python}", f"python: {python}")
    (project / "matrix.yaml").write_text(text)
    code, said = asks(project, configured(server, tmp_path))
    assert "Traceback" not in said
    assert "internal error" not in said
    assert code == (3 if says else 0), said
    assert re.search(says or "RUN", said), said
