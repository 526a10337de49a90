"""Connections to hosts by the aliases of ~/.ssh/config, through OpenSSH's own client.

What `ssh ALIAS` can log in to, this can: certificates, security keys, agents, hashed names and wildcards in
known_hosts, ProxyJump, a ControlMaster that is open, Kerberos. What it must not do is told to it in the command line,
which comes before every file: it asks nobody anything, forwards nothing, and runs no command of the configuration's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.errors import FmhaError, InfrastructureError, UserError
from fmha.harness.hosts.carrier import BusyError, LineError, ProcessCarrier, UnknownHostError
from fmha.harness.hosts.shipment import COMMAND

CONFIG_VARIABLE = "FMHA_SSH_CONFIG"
CALL_SECONDS = 30.0
ENDING_SECONDS = 2.0
FAILED = 255  # the exit code of an ssh that failed itself
# Options that not every version knows; the others are older than any that is in use.
_NEWER = "ForkAfterAuthentication,SessionType,StdinNull"
_OPTIONS = (
    f"IgnoreUnknown={_NEWER}", "BatchMode=yes", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
    "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no", "ControlMaster=no", "Tunnel=no", "LogLevel=VERBOSE",
    "EscapeChar=none", "ForkAfterAuthentication=no", "SessionType=default", "StdinNull=no", "ServerAliveInterval=10",
    "ServerAliveCountMax=1000",
)  # fmt: skip
# What OpenSSH itself refuses from 9.6 on in a host or user name: ProxyCommand and Match exec hand both to a shell.
_INTERPRETED = re.compile(r"^-|['\"`$\\;&<>|(){}\s]")
_WORDS = 300


@dataclass(frozen=True, slots=True)
class Destination:
    """What an alias means."""

    alias: str
    hostname: str
    port: int
    user: str


def resolve(alias: str) -> Destination:
    """Asks OpenSSH what `alias` means. FMHA_SSH_CONFIG names another file than ~/.ssh/config. Raises UserError."""
    try:
        answer = subprocess.run(
            [*_ssh(alias), "-G", "--", alias],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise _not_installed() from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"ssh -G {shlex.quote(alias)} took longer than {CALL_SECONDS:g} s") from error
    if answer.returncode != 0:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise UserError(f"ssh does not accept the alias {alias!r}: {said[-1]}", next_step="correct ~/.ssh/config")
    options = dict(line.partition(" ")[::2] for line in answer.stdout.splitlines())
    return Destination(alias, options.get("hostname", alias), int(options.get("port", "22")), options.get("user", ""))


def public_key(path: Path) -> str:
    """The one line of a public key's file. Raises UserError for what ssh-keygen does not take for one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "PRIVATE KEY" in text:
        raise UserError("is a private key, which stays where it is", where=str(path), next_step=f"give {path}.pub")
    if len(lines) != 1 or not re.match(r"(?:ssh|ecdsa|sk)-\S+ \S", lines[0]) or not _is_key(path):
        raise UserError("is no public key", where=str(path), next_step="ssh-keygen -t ed25519 makes a pair")
    return lines[0]


def _is_key(path: Path) -> bool:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-l", "-f", str(path)], stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_SECONDS,
            check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise _not_installed() from error
    return done.returncode == 0


class SshCarrier(ProcessCarrier):
    """An agent on a host, and the ssh that leads to it. It is on its way once this returns, and not yet there."""

    def __init__(self, alias: str, python: str) -> None:
        self._alias = alias
        self._words = _ssh(alias)
        self._log = os.memfd_create("ssh")  # of ssh itself, apart from what the host writes to standard error
        log = f"/proc/{os.getpid()}/fd/{self._log}"
        options = [word for option in _OPTIONS for word in ("-o", option)]
        command = f"exec {_shell_path(python)} {COMMAND}"
        try:
            super().__init__([*self._words, *options, "-T", "-E", log, "--", alias, command], alias, _environment())
        except InfrastructureError as error:
            os.close(self._log)
            raise _not_installed() from error

    def epitaph(self) -> str:
        """Why ssh ended. Raises what has to be settled by somebody before another attempt makes sense."""
        code = self.exit_code()
        if code not in (FAILED, None):
            return super().epitaph()
        log = self._logged()
        if "Authenticated to" not in log:
            self._refused(f"{self.said()}\n{log}")  # a jump host's ssh has no log of its own
        return "the connection was lost"

    def close(self) -> None:
        if self._log >= 0:
            self._process.terminate()
            self._end(ENDING_SECONDS)
            os.close(self._log)
            self._log = -1

    def _logged(self) -> str:
        return os.pread(self._log, 1 << 16, 0).decode("utf-8", "replace").strip()

    def _refused(self, said: str) -> None:
        """Raises what the words of a client that could not log in mean; returns when they mean nothing known."""
        for pattern, meaning in _MEANINGS:
            if found := re.search(pattern, said):
                raise meaning(self._alias, found, said)
        if lines := [line.strip() for line in said.splitlines() if line.strip()]:
            raise LineError(f"ssh says: {lines[-1][:_WORDS]}", where=self._alias)


def _ssh(alias: str) -> list[str]:
    if _INTERPRETED.search(alias) or not alias.isprintable():
        raise UserError(f"{alias!r} is no alias that ssh could be given", next_step="correct alias in matrix.yaml")
    config = os.environ.get(CONFIG_VARIABLE)
    return ["ssh", *(["-F", config] if config else [])]


def _environment() -> dict[str, str]:
    """Without a terminal there is nobody to ask but a window, which the ssh of a jump host would open."""
    return os.environ | {"SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}


def _not_installed() -> InfrastructureError:
    return InfrastructureError("ssh is not installed or not on PATH", next_step="install openssh-client")


def _shell_path(python: str) -> str:
    """Quoted for the account's shell, but for a leading ~/, which the shell is to expand."""
    return f"~/{shlex.quote(python[2:])}" if python.startswith("~/") else shlex.quote(python)


def _revoked(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return InfrastructureError(
        f"the host key of {found[2]} is REVOKED ({found[1]})",
        where=alias,
        next_step="have the host given another key; known_hosts says so",
    )


def _changed(alias: str, found: re.Match[str], said: str) -> FmhaError:
    sent = re.search(r"fingerprint for the (\S+) key sent by the remote host is\s+(\S+?)\.?\s", said)
    file = re.search(r"Offending \S+ key in (.+):\d+", said)
    where = f" -f {shlex.quote(file[1])}" if file else ""
    return InfrastructureError(
        f"the host key of {found[1]} has CHANGED{f' ({sent[1]} {sent[2]})' if sent else ''}; "
        "somebody may be in between",
        where=alias,
        next_step=f"if the change is known to be right: ssh-keygen -R {shlex.quote(found[1])}{where}",
    )


def _unknown(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return InfrastructureError(
        f"the host key is unknown{_key_of(alias)}",
        where=alias,
        next_step=f"compare it with the host's own, then accept it with: ssh {shlex.quote(alias)} true",
    )


def _key_of(alias: str) -> str:
    """Kind and fingerprint of the key that a host shows, as words; it is refused this time too."""
    try:
        shown = subprocess.run(
            [*_ssh(alias), "-v", "-o", "BatchMode=yes", "-o", "ControlPath=none", "-T", "--", alias, "true"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_SECONDS, check=False, start_new_session=True,
            env=_environment(),
        ).stderr.decode("utf-8", "replace")  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    keys = re.findall(r"Server host key: (\S+) (\S+)", shown)
    return f" ({' '.join(keys[-1])})" if keys else ""


def _denied(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return InfrastructureError(
        f"{found[1] or 'the host'} accepts none of the keys",
        where=alias,
        next_step=f"make `ssh {shlex.quote(alias)} true` work without a password; for a key with a passphrase, ssh-add",
    )


def _unnamed(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return UnknownHostError(
        f"cannot reach {found[1]}: {found[2]}",
        where=alias,
        next_step=f"write two lines into ~/.ssh/config: `Host {alias}` and `  HostName ADDRESS`",
    )


def _unreachable(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return LineError(f"cannot reach {found[1]} port {found[2]}: {found[3].strip()}", where=alias)


def _beyond(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return LineError(f"cannot reach it through the jump host: {found[1].strip()}", where=alias)


def _misconfigured(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return UserError(f"ssh says: {found[0].strip()}", where=alias, next_step="correct ~/.ssh/config")


def _disagreeing(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return InfrastructureError(f"ssh says: {found[0].strip()}", where=alias, next_step="see man ssh_config")


def _busy(alias: str, found: re.Match[str], said: str) -> FmhaError:
    return BusyError("the server closes connections before it says who it is", where=alias)


# What ssh says, the first that is found; a host that is not logged in to yet has written none of it.
_MEANINGS = (
    (r"The (\S+) host key for (.+) is marked as revoked", _revoked),
    (r"Host key for (.+) has changed and you have requested strict checking", _changed),
    (r"Host key verification failed|No \S+ host key is known for", _unknown),
    (r"(\S+@\S+)?:? ?(?:Permission denied \(|.*Too many authentication failures)", _denied),
    (r"Could not resolve hostname (\S+): (.*)", _unnamed),
    (r"connect to host (\S+) port (\d+): (.*)", _unreachable),
    (r"open failed: (.*)", _beyond),
    (
        r".*(?:Bad configuration option|Can't open user config|Bad owner or permissions|invalid characters).*",
        _misconfigured,
    ),
    (r".*(?:terminating, \d+ bad configuration options|extra arguments at end of line).*", _misconfigured),
    (r".*no matching \S+.* found.*", _disagreeing),
    (r"kex_exchange_identification|anner exchange|Connection (?:closed|reset) by", _busy),
)
