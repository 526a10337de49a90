"""A connection that is begun before the command that needs it is loaded.

Loading the client takes as long as it takes the other machine to check a key and to start the agent, so both are done
at once, and what goes ahead of every request is sent. What is guessed here from the command line and matrix.yaml is
checked later: a connection to anything else than what the validated settings say is never used. Where another commit
judges, hosts are that commit's, and what the checkout says of them is not even dialled: its author may be a stranger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness.config import MATRIX_FILE, loader
from fmha.harness.depth import too_deep
from fmha.harness.errors import FmhaError
from fmha.harness.hosts.shipment import preamble
from fmha.harness.hosts.ssh import SshCarrier
from fmha.harness.own_settings import hosts_file

COMMANDS = ("run-matrix", "attach", "logs", "cancel", "clean", "doctor", "ps")  # those that dial the host of --host
OWN = "own"  # of --judge: the checkout's
FOLDER = "~/fmha"  # of a host that says nothing else
_begun: dict[tuple[str, str, str], Begun] = {}


@dataclass(frozen=True, slots=True)
class Begun:
    """A connection, and what it has not taken yet of what goes ahead of the request."""

    carrier: SshCarrier
    left: bytes


def begin(arguments: Sequence[str], directory: Path) -> None:
    """Begins to connect to the host that the arguments name, if they name one that is reached by SSH."""
    name = _host(arguments) if _named(arguments, "--judge") in (None, OWN) else None
    section = _section(name, directory) if name is not None else None
    if section is None or section.get("kind") != "ssh":
        return
    usual = {"alias": name, "python": "python3", "folder": FOLDER}
    words = [section.get(key) or default for key, default in usual.items()]
    if not all(isinstance(word, str) and word.isprintable() for word in words):
        return
    alias, python, folder = map(str, words)
    with contextlib.suppress(FmhaError):  # whoever needs the connection meets the same, and says so
        carrier = SshCarrier(alias, python)
        _begun[alias, python, folder] = Begun(carrier, carrier.offer(preamble(folder)))


def take(alias: str, python: str, folder: str) -> Begun | None:
    """The connection, if such a one was begun and nobody has taken it."""
    return _begun.pop((alias, python, folder), None)


def _host(arguments: Sequence[str]) -> str | None:
    if not arguments or arguments[0] not in COMMANDS or (arguments[0] == "run-matrix" and "--dry-run" in arguments):
        return None
    return _named(arguments, "--host")


def _named(arguments: Sequence[str], option: str) -> str | None:
    """What an option is given."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None


def _section(name: str, directory: Path) -> dict[str, Any] | None:
    """What matrix.yaml has under the host's name. Whoever validates the file says what is wrong with it."""
    root = next((folder for folder in (directory, *directory.parents) if (folder / ".git").exists()), directory)
    if (hosts := loader.kept_hosts(root)) is not None:
        return _as_section(hosts.get(name))
    import yaml  # here, for nothing else of a command's start needs it where the file was read before

    try:
        shared = _hosts(root / MATRIX_FILE, yaml).get(name, {})
        path = hosts_file()
        own = _hosts(path, yaml).get(name, {}) if path and path.is_file() else {}
        section = {**shared, **own}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return None
    return section


def _as_section(settings: Any) -> dict[str, Any] | None:
    """The settings of a host as its section would say them."""
    remote = settings.get("remote") if isinstance(settings, dict) else None
    return {"kind": settings.get("kind"), **remote} if isinstance(remote, dict) else None


def _hosts(path: Path, yaml: Any) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8-sig")
    if too_deep(text) is not None:
        return {}
    hosts: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["hosts"]
    return hosts
