"""Connections to hosts by the aliases of ~/.ssh/config.

OpenSSH's own client answers what an alias means (`ssh -G`: Include, Match and all), paramiko connects. Host keys come
from the known_hosts files that OpenSSH would read; a host whose key is not there, or is another one, is refused. No
passwords: keys and the agent only. The agent is never forwarded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.errors import InfrastructureError, UserError
from harness.hosts.line import LineError
from harness.hosts.shipment import COMMAND

if TYPE_CHECKING:
    import paramiko

# paramiko logs the traceback of a connection that fails, and logging prints it when nobody has said where it should go.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

CONFIG_VARIABLE = "FMHA_SSH_CONFIG"
CONNECT_SECONDS = 20.0
CALL_SECONDS = 30.0
KEEPALIVE_SECONDS = 10
EXIT_SECONDS = 1.0  # between the last that a process writes and its exit code
MOST_JUMPS = 8
_WORDS = 300
_AGENT_VARIABLE = "SSH_AUTH_SOCK"
_agent_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Destination:
    """What an alias means."""

    alias: str
    hostname: str
    port: int
    user: str
    key_name: str  # under which known_hosts has the key
    identities: tuple[str, ...]
    identities_only: bool
    agent: str  # a socket, "none", or "" for $SSH_AUTH_SOCK
    known_hosts: tuple[str, ...]
    jumps: tuple[str, ...]
    command: str
    connect_seconds: float


def resolve(alias: str) -> Destination:
    """Asks OpenSSH what `alias` means. FMHA_SSH_CONFIG names another file than ~/.ssh/config. Raises UserError."""
    config = os.environ.get(CONFIG_VARIABLE)
    command = ["ssh", *(["-F", config] if config else []), "-G", "--", alias]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError("ssh is not installed or not on PATH", next_step="install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"ssh -G {shlex.quote(alias)} took longer than {CALL_SECONDS:g} s") from error
    if answer.returncode != 0:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise UserError(f"ssh does not accept the alias {alias!r}: {said[-1]}", next_step="correct ~/.ssh/config")
    options: dict[str, list[str]] = {}
    for line in answer.stdout.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), []).append(value)

    def one(name: str, default: str = "") -> str:
        return options.get(name, [default])[0]

    hostname, port, user = one("hostname", alias), int(one("port", "22")), one("user")
    key_name = one("hostkeyalias") or (hostname if port == 22 else f"[{hostname}]:{port}")
    files = shlex.split(f"{one('userknownhostsfile')} {one('globalknownhostsfile')}")
    agent = one("identityagent")
    seconds = one("connecttimeout", "none")
    return Destination(
        alias=alias,
        hostname=hostname,
        port=port,
        user=user,
        key_name=key_name,
        identities=tuple(os.path.expanduser(path) for path in options.get("identityfile", [])),
        identities_only=one("identitiesonly") == "yes",
        agent="" if agent == "SSH_AUTH_SOCK" else agent,
        known_hosts=tuple(os.path.expanduser(path) for path in files),
        jumps=tuple(jump for jump in one("proxyjump").split(",") if jump not in ("", "none")),
        command="" if one("proxycommand") in ("", "none") else one("proxycommand"),
        connect_seconds=float(seconds) if seconds.isdigit() and int(seconds) else CONNECT_SECONDS,
    )


def load_paramiko() -> None:
    """Imports paramiko, without the package that it would run `Match exec` with: `ssh -G` has done that already, and it
    is a third of what there is to load."""
    if "paramiko" not in sys.modules and "invoke" not in sys.modules:
        sys.modules["invoke"] = None  # type: ignore[assignment] # to paramiko it is then not installed
        try:
            import paramiko  # noqa: F401
        finally:
            del sys.modules["invoke"]


class SshCarrier:
    """An agent on a host, and the connection to it."""

    def __init__(self, alias: str, python: str) -> None:
        load_paramiko()
        self._alias = alias
        self._clients: list[paramiko.SSHClient] = []
        try:
            client = self._connect(resolve(alias), 0)
            transport = client.get_transport()
            assert transport is not None
            with _answered(alias):
                self._channel = transport.open_session(timeout=CALL_SECONDS)
                self._channel.settimeout(CALL_SECONDS)
                self._channel.exec_command(f"exec {_shell_path(python)} {COMMAND}")
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        self._channel.settimeout(CALL_SECONDS)
        with _answered(self._alias):
            try:
                self._channel.sendall(data)
            except OSError as error:
                if self._channel.closed:  # by an agent that ended, or never started, before it had read everything
                    raise LineError(self.epitaph(), where=self._alias) from error
                raise

    def read(self, seconds: float) -> bytes:
        self._channel.settimeout(seconds)
        try:
            return self._channel.recv(1 << 16)
        except TimeoutError as error:
            raise LineError(f"nothing came for {seconds:.0f} s", where=self._alias) from error

    def epitaph(self) -> str:
        """The exit code tells an agent that could not be started from a connection that broke."""
        self._channel.status_event.wait(EXIT_SECONDS)
        if not self._channel.exit_status_ready() or self._channel.recv_exit_status() < 0:
            return "the connection was lost"
        said = b""
        while self._channel.recv_stderr_ready() and (more := self._channel.recv_stderr(1 << 16)):
            said += more
        lines = said.decode("utf-8", "replace").strip().splitlines()
        code = self._channel.recv_exit_status()
        return f"the agent ended with exit code {code}" + (f": {lines[-1][:_WORDS]}" if lines else "")

    def close(self) -> None:
        for client in reversed(self._clients):
            client.close()

    def _connect(self, to: Destination, depth: int) -> paramiko.SSHClient:
        import paramiko

        if depth > MOST_JUMPS:
            raise UserError(f"more than {MOST_JUMPS} jumps", where=self._alias, next_step="correct ProxyJump")
        client = paramiko.SSHClient()
        for path in to.known_hosts:
            if os.path.exists(path):
                _load_keys(client, path)
        client.set_missing_host_key_policy(_refusal(to))
        stream = self._stream(to, depth)
        keys = [path for path in to.identities if os.path.exists(path)]
        try:
            with _answered(to.alias):
                if agent := _agent(to):
                    client._agent = agent  # type: ignore[attr-defined] # it would look for one by itself
                client.connect(
                    # With a stream of our own these two only name the key in known_hosts.
                    to.key_name if to.key_name != f"[{to.hostname}]:{to.port}" else to.hostname,
                    22 if to.key_name != f"[{to.hostname}]:{to.port}" else to.port,
                    username=to.user or None,
                    sock=stream,
                    key_filename=keys,  # type: ignore[arg-type] # a list too, says paramiko's documentation
                    allow_agent=agent is not None,
                    look_for_keys=False,
                    timeout=to.connect_seconds,
                    banner_timeout=CALL_SECONDS,
                    auth_timeout=CALL_SECONDS,
                    channel_timeout=CALL_SECONDS,
                )
        except paramiko.BadHostKeyException as error:
            _changed(to, error)
        except paramiko.PasswordRequiredException as error:
            raise UserError(
                "the key needs a passphrase, and fmha takes none", where=to.alias, next_step="run ssh-add first"
            ) from error
        except paramiko.AuthenticationException as error:
            raise InfrastructureError(
                f"{to.user}@{to.hostname} accepts none of the keys",
                where=to.alias,
                next_step=f"make `ssh {shlex.quote(to.alias)} true` work without a password",
            ) from error
        transport = client.get_transport()
        assert transport is not None
        self._clients.append(client)
        _refuse_revoked(to, transport.get_remote_server_key())
        transport.set_keepalive(KEEPALIVE_SECONDS)
        return client

    def _stream(self, to: Destination, depth: int) -> socket.socket | paramiko.Channel | paramiko.ProxyCommand:
        """Bytes to the host's sshd: straight, through the jumps, or through a command."""
        import paramiko

        if to.jumps:
            client = self._connect(resolve_jump(to.jumps[-1], to.jumps[:-1]), depth + 1)
            transport = client.get_transport()
            assert transport is not None
            with _answered(to.alias):
                return transport.open_channel(
                    "direct-tcpip", (to.hostname, to.port), ("127.0.0.1", 0), timeout=to.connect_seconds
                )
        if to.command:
            names = {"%%": "%", "%h": to.hostname, "%p": str(to.port), "%r": to.user, "%n": to.alias}
            command = re.sub("%[%hprn]", lambda found: names[found[0]], to.command)
            return paramiko.ProxyCommand(shlex.join(["/bin/sh", "-c", f"exec {command}"]))
        try:
            stream = socket.create_connection((to.hostname, to.port), to.connect_seconds)
        except OSError as error:
            reason = error.strerror or str(error)
            raise LineError(f"cannot reach {to.hostname} port {to.port}: {reason}", where=to.alias) from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream


def resolve_jump(jump: str, before: tuple[str, ...]) -> Destination:
    """`[user@]host[:port]` of a ProxyJump, reached through the jumps before it."""
    import dataclasses

    user, _, rest = jump.rpartition("@")
    host, colon, port = rest.rpartition(":")
    to = resolve(host if colon and port.isdigit() else rest)
    if colon and port.isdigit():
        name = to.hostname if port == "22" else f"[{to.hostname}]:{port}"
        to = dataclasses.replace(to, port=int(port), key_name=name)
    if user:
        to = dataclasses.replace(to, user=user)
    return dataclasses.replace(to, jumps=before) if before else to


def _shell_path(python: str) -> str:
    """Quoted for the account's shell, but for a leading ~/, which the shell is to expand."""
    return f"~/{shlex.quote(python[2:])}" if python.startswith("~/") else shlex.quote(python)


def _load_keys(client: paramiko.SSHClient, path: str) -> None:
    """Line by line: for a marker (@cert-authority, @revoked) or a broken key paramiko would give up the whole file."""
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

    keys = client.get_host_keys()
    for line in _lines(path):
        with contextlib.suppress(InvalidHostKey):
            entry = None if line.startswith(("#", "@")) else HostKeyEntry.from_line(line)
            if entry is not None and entry.key is not None:
                for name in entry.hostnames or ():
                    keys.add(name, entry.key.get_name(), entry.key)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InfrastructureError(f"cannot be read: {error.strerror}", where=path) from error


def _refuse_revoked(to: Destination, key: paramiko.PKey) -> None:
    """known_hosts may say `@revoked HOSTS TYPE KEY`, which paramiko takes no notice of. Whatever HOSTS are, a key that
    somebody has revoked is not one to trust."""
    for path in filter(os.path.exists, to.known_hosts):
        for line in _lines(path):
            if line.startswith("@revoked") and line.split()[2:4] == [key.get_name(), key.get_base64()]:
                raise UserError(
                    f"the host key of {to.key_name} is REVOKED ({key.get_name()} {key.fingerprint})",
                    where=to.alias,
                    next_step=f"have the host given another key; {path} says so",
                )


def _refusal(to: Destination) -> paramiko.MissingHostKeyPolicy:
    import paramiko

    class Refuse(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
            raise UserError(
                f"the host key of {to.key_name} is unknown ({key.get_name()} {key.fingerprint})",
                where=to.alias,
                next_step=f"compare it with the host's own, then accept it with: ssh {shlex.quote(to.alias)} true",
            )

    return Refuse()


def _changed(to: Destination, error: paramiko.BadHostKeyException) -> NoReturn:
    files = [path for path in to.known_hosts if os.path.exists(path)]
    where = f" -f {shlex.quote(files[0])}" if files else ""
    raise UserError(
        f"the host key of {to.key_name} has CHANGED ({error.key.get_name()} {error.key.fingerprint}); "
        "somebody may be in between",
        where=to.alias,
        next_step=f"if the change is known to be right: ssh-keygen -R {shlex.quote(to.key_name)}{where}",
    ) from error


def _agent(to: Destination) -> paramiko.Agent | None:
    """The SSH agent to ask, if any. paramiko finds one through the environment alone, which all connections share."""
    import paramiko

    if to.agent == "none" or to.identities_only:
        return None
    with _agent_lock:
        before = os.environ.get(_AGENT_VARIABLE)
        if to.agent:
            os.environ[_AGENT_VARIABLE] = str(Path(os.path.expandvars(to.agent)).expanduser())
        try:
            return paramiko.Agent()
        finally:
            if before is not None:
                os.environ[_AGENT_VARIABLE] = before
            elif to.agent:
                del os.environ[_AGENT_VARIABLE]


@contextlib.contextmanager
def _answered(alias: str) -> Iterator[None]:
    """Turns what a broken or silent connection raises into LineError; refusals pass."""
    import paramiko

    try:
        yield
    except (paramiko.AuthenticationException, paramiko.BadHostKeyException):
        raise
    except (paramiko.SSHException, OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise LineError(f"the connection failed: {reason}", where=alias) from error
