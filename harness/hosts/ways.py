"""The ways to the agent of a host: a row each, which is all that the rest knows of how a host is reached.

`dial` of remote.py, which all commands go through, begins a connection by it; `fmha hosts` and `fmha doctor` take what
they say of a host's name from it. Which way a kind of host has, WAY_OF_KIND of fmha.harness.config.settings says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmha.harness.config import RemoteSettings
from fmha.harness.config.settings import WayName
from fmha.harness.hosts import early, ssh
from fmha.harness.hosts.carrier import LocalCarrier, ProcessCarrier


@dataclass(frozen=True, slots=True)
class Way:
    """`carrier` begins a connection to an agent that runs `python` of the settings, and need not wait for it. A program
    that is not installed, and an end that nobody has set up (UnknownHostError), are for it to tell."""

    carrier: Callable[[RemoteSettings], ProcessCarrier]
    hint: Callable[[RemoteSettings], str]  # what to do where no agent answered, and nobody said why
    means: Callable[[RemoteSettings], str] = lambda settings: ""  # where the host's name leads, if it is known
    begun: Callable[[RemoteSettings], early.Begun | None] = lambda settings: None  # a connection that was begun before


def way_to(settings: RemoteSettings) -> Way:
    """The way that the settings name."""
    return WAYS[settings.way]


def _here(settings: RemoteSettings) -> ProcessCarrier:
    return LocalCarrier(settings.looked_at().python)  # no program of a checkout's


def _destination(settings: RemoteSettings) -> str:
    to = ssh.resolve(settings.alias)
    return f"{to.user}@{to.hostname}:{to.port}"


WAYS: dict[WayName, Way] = {
    "here": Way(_here, hint=lambda settings: "correct python in matrix.yaml"),
    "ssh": Way(
        lambda settings: ssh.SshCarrier(settings.alias, settings.python),
        hint=lambda settings: f"make `ssh {settings.alias} true` work first",
        means=_destination,
        begun=lambda settings: early.take(settings.alias, settings.python, settings.folder),
    ),
}
