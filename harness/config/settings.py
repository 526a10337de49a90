"""The settings of hosts, as the rest of the harness sees them: validated, frozen."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

# When the emulator lets asynchronous work complete.
Schedule = Literal["realistic", "early", "late", "random"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
Sync = Literal["auto", "remote", "direct"]
Isolation = Literal["auto", "require", "off"]
HostKind = Literal["emulator", "local", "ssh", "slurm"]
WayName = Literal["ssh", "here"]  # to an agent: WAYS of fmha.harness.hosts.ways has a row of each
# By kind, of hosts that keep runs, where an agent answers: the way to it. None: the kind's own section says which, as
# slurm.login. In the order in which messages name the kinds.
WAY_OF_KIND: Mapping[HostKind, WayName | None] = {"ssh": "ssh", "slurm": None, "local": "here"}
SUPERVISED: tuple[HostKind, ...] = tuple(WAY_OF_KIND)


def either(names: Sequence[str]) -> str:
    """One of them, in words."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


@dataclass(frozen=True, slots=True)
class SecretSource:
    """The variable of this process, or the command, that has a secret. Never the secret."""

    variable: str | None
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Settings of a host with a supervisor. `gpu` is plain data, as fmha.harness.supervisor.gpus.Rules reads it."""

    alias: str
    device: str
    arch: str  # as nvcc names it: which kernels are for this host
    folder: str
    python: str
    env: Mapping[str, str]
    secrets: Mapping[str, SecretSource]  # variables of the setup command alone
    keep: Mapping[str, float]  # as fmha.harness.supervisor.retention.Policy reads it
    setup: str
    setup_files: tuple[str, ...]
    setup_seconds: float
    nvcc: str
    gpu: Mapping[str, object]
    sync: Sync
    remote: str
    fetch_url: str
    protected: tuple[str, ...]
    key: Mapping[str, float | None]  # what a key that only runs commits may ask for: KeySection says it
    silence_seconds: float  # after which a connection is taken for lost
    reconnect_seconds: float
    workers: int = 0  # of the emulator, at once; 0: one a core, where that helps
    isolation: Isolation = "auto"  # of what the commit brings: the best that the host has, nothing less, or none
    slurm: Mapping[str, object] | None = None  # plain data, as fmha.harness.supervisor.slurm reads it
    way: WayName = "ssh"  # to the agent
    own: frozenset[str] = frozenset()  # settings that stand in one's own file, and in no checkout: sections as `a.b`

    @property
    def here(self) -> bool:
        """Whether the supervisor runs on this machine."""
        return self.way == "here"

    def looked_at(self) -> RemoteSettings:
        """The settings for whoever only looks. On this machine a program that a checkout names is not started for
        that: fmha's own interpreter serves, and the tools that are on PATH."""
        if not self.here:
            return self
        gpu = dict(self.gpu)
        if "gpus.nvidia_smi" not in self.own and gpu["nvidia_smi"] is not None:
            gpu["nvidia_smi"] = "nvidia-smi"
        return replace(
            self,
            python=self.python if "python" in self.own else sys.executable,
            nvcc=self.nvcc if "nvcc" in self.own else "",
            env=self.env if "env" in self.own else {},
            gpu=gpu,
        )


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`remote` is None for a host without a supervisor."""

    name: str
    kind: str
    schedule: Schedule
    remote: RemoteSettings | None = None
    mma_sums: Literal["fast", "silicon"] = "fast"  # of the emulator
    arch: str = "sm_100a"  # whose kernels the emulator runs
    workers: int = 0  # of the emulator, at once; 0: one a core, where that helps

    def looked_at(self) -> HostSettings:
        """As RemoteSettings.looked_at."""
        return self if self.remote is None else replace(self, remote=self.remote.looked_at())
