"""A real OpenSSH server on loopback, with its own host keys, users' keys and, where we are root, a plain account.

As root the server runs in a mount namespace of its own, where /etc/passwd has one account more: nothing of it is seen
outside. Otherwise it serves the user who runs the tests, which is what sshd allows a plain user.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests import slots
from tests.forked import Fork
from tests.integration.processes import eventually
from tests.remote.devices import MARK

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UID, OTHER_UID = slots.accounts()
ACCOUNT, OTHER = "fmha-test", "fmha-other"  # the second is a colleague's
# KexAlgorithms: what OpenSSH would choose is safe from quantum computers and takes ssh a tenth of a second. Tests
# connect in their hundreds.
CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
MaxStartups 100
KexAlgorithms curve25519-sha256
LogLevel VERBOSE
SetEnv {mark}={folder} PATH={folder}/bin:{path}
"""


@dataclass
class Server:
    """One sshd. `home` is the account's home directory."""

    folder: Path
    home: Path
    port: int
    account: str
    uid: int
    python: str  # an interpreter that the account can start
    network: tuple[str, ...] = ()  # a command prefix that enters the server's network
    address: str = "127.0.0.1"
    more: str = ""  # lines that stand before the others in sshd_config, the first of a name being what counts
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    other_home: Path | None = None  # of OTHER; None where there is one account

    def start(self) -> None:
        """Starts to listen; returns once connections are accepted."""
        text = self.more + CONFIG.format(port=self.port, folder=self.folder, mark=MARK, path=PATH).replace(
            "127.0.0.1", self.address
        )
        (self.folder / "sshd_config").write_text(text)
        log, config = (shlex.quote(str(self.folder / name)) for name in ("sshd.log", "sshd_config"))
        sshd = f"exec {SSHD} -D -E {log} -f {config}"
        command = ["/bin/sh", "-c", sshd]
        if os.geteuid() == 0:
            binds = [f"mount --bind {shlex.quote(str(self.folder / name))} /etc/{name}" for name in ("passwd", "group")]
            small = shlex.quote(str(self.folder / "small"))
            disk = f"mount -t tmpfs -o size=72m,mode=777 none {small}"
            script = " && ".join([*binds, "mount -t tmpfs none /run", "mkdir /run/sshd", disk, sshd])
            command = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script]
        self.process = subprocess.Popen([*self.network, *command], stdin=subprocess.DEVNULL, start_new_session=True)
        assert eventually(self.listens), (self.folder / "sshd.log").read_text()

    def listens(self) -> bool:
        knock = f"exec 3<>/dev/tcp/{self.address}/{self.port}"
        return subprocess.run([*self.network, "bash", "-c", knock], capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        """Stops listening; sessions that are open stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def sessions(self) -> list[psutil.Process]:
        """The sshd processes that serve a connection."""
        mine = str(self.folder)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("sshd") and process.pid != (self.process.pid if self.process else 0):
                    parents = [process, *process.parents()]
                    if any(mine in " ".join(parent.cmdline()) for parent in parents):
                        found.append(process)
        return found

    def down(self) -> None:
        """Stops listening and kills every open session's sshd."""
        victims = self.sessions()
        self.stop()
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def cut(self) -> int:
        """Kills every open session's sshd, as a crash or an administrator would. Returns how many."""
        victims = self.sessions()
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(victims)

    def hold(self, name: str) -> Hold:
        """Makes whatever asks for `name` wait until the test lets go, at the end of the context if not before."""
        return Hold(self.folder / "hold" / name)

    def wrap(self, name: str, program: str, when: str, body: str = "") -> Path:
        """A command on the account's PATH that waits while `name` is held and its arguments have the word `when`."""
        path = self.folder / "bin" / name
        path.write_text(
            f"""#!/bin/sh
case " $* " in *" {when} "*)
  touch {shlex.quote(str(self.folder))}/reached/{name}
  while [ -e {shlex.quote(str(self.folder))}/hold/{name} ]; do sleep 0.02; done
  {body or ":"}
esac
exec {shlex.quote(program)} "$@"
"""
        )
        path.chmod(0o755)
        return path

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()

    def left_over(self) -> list[str]:
        """Everything that a session has started and that still lives; a zombie has no environment. A compiler has
        little of it, whatever keeps it from the machine: it is known by where the account has its commands."""
        found = []
        for pid in marked(f"{MARK}={self.folder}".encode(), f"{self.folder}/bin/".encode()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().removesuffix(b"\0").replace(b"\0", b" ")
                found.append(f"{pid} {words.decode(errors='replace')[:200]}")
        return found


@dataclass
class Hold:
    path: Path

    def __enter__(self) -> Hold:
        self.path.touch()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        self.path.unlink(missing_ok=True)


def free_port() -> int:
    """Below those that the kernel gives to outgoing connections: nobody takes it while a server of ours is down."""
    for port in random.sample(range(20_000, 32_768), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def key(path: Path) -> None:
    """A new key pair without a passphrase."""
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)


def host_python() -> str:
    """An interpreter that any account can start, of the version that the packages here were built for."""
    for candidate in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        if candidate and _open_to_all(Path(candidate).resolve()):
            wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
            code = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
            if (
                subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False).stdout.strip()
                == wanted
            ):
                return candidate
    return ""


def _open_to_all(path: Path) -> bool:
    return all(os.stat(part).st_mode & 0o001 for part in (path, *path.parents))


@contextlib.contextmanager
def serving(
    folder: Path, network: tuple[str, ...] = (), address: str = "127.0.0.1", more: str = ""
) -> Iterator[Server]:
    """A server in `folder`, which everybody can enter, stopped with everything that it started. `more` is for its
    configuration, {folder} in it being the folder."""
    if SSHD is None:
        pytest.skip("no sshd: install openssh-server (make test does, as root on Debian and Ubuntu)")
    folder.mkdir(parents=True)
    home = folder / "home"
    home.mkdir()
    me = pwd.getpwuid(os.geteuid())
    account, uid, python, other_home = me.pw_name, me.pw_uid, sys.executable, None
    plain = host_python()
    if os.geteuid() == 0 and plain and _open_to_all(folder):
        account, uid, python = ACCOUNT, UID, plain
        other_home = folder / "other-home"
        other_home.mkdir()
        accounts = ((ACCOUNT, UID, home), (OTHER, OTHER_UID, other_home))
        passwd = "".join(f"{name}:*:{number}:{number}:test:{where}:/bin/sh\n" for name, number, where in accounts)
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + passwd)
        groups = "".join(f"{name}:*:{number}:\n" for name, number, _ in accounts)
        (folder / "group").write_text(Path("/etc/group").read_text() + groups)
        for _, number, where in accounts:
            os.chown(where, number, number)
            where.chmod(0o700)
    elif os.geteuid() == 0:
        lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
        own = [
            line.replace(f":{me.pw_dir}:", f":{home}:") if line.startswith(f"{account}:") else line for line in lines
        ]
        (folder / "passwd").write_text("".join(own))
        shutil.copy("/etc/group", folder / "group")
    for name in ("bin", "hold", "reached", "small"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    key(folder / "host_key")
    key(folder / "user_key")
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    more = more.format(folder=folder)
    server = Server(folder, home, free_port(), account, uid, python, network, address, more, other_home=other_home)
    try:
        server.start()
        yield server
    finally:
        server.down()


def client_config(server: Server, folder: Path, alias: str = "gpu", extra: Mapping[str, str] | None = None) -> Path:
    """An ssh_config for the alias, and a known_hosts that knows the server's key."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "known_hosts"
    public = (server.folder / "host_key.pub").read_text().split()
    known.write_text(f"[{server.address}]:{server.port} {public[0]} {public[1]}\n")
    options = {
        "HostName": server.address,
        "Port": str(server.port),
        "User": server.account,
        "IdentityFile": str(server.folder / "user_key"),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": str(known),
        "GlobalKnownHostsFile": "/dev/null",
        **(extra or {}),
    }
    config = folder / "ssh_config"
    config.write_text(f"Host {alias}\n" + "".join(f"  {name} {value}\n" for name, value in options.items()))
    return config


def marked(mark: bytes, words: bytes | None = None) -> list[int]:
    """The processes that have `mark`, NAME=value, in their environment, or `words` in their command line."""
    found = []
    # Not psutil's: tests that wait look a hundred times a second, and it takes three times as long.
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") or (
                words is not None and words in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found.append(int(pid))
    return found


def killed(mark: bytes) -> list[int]:
    """The processes that have `mark` in their environment, which are told to end."""
    found = marked(mark)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def terminate(process: subprocess.Popen[str] | Fork) -> None:
    """Ends a client that a test has started, if it still runs."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
