"""The hosts of matrix.yaml, as they are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fmha.harness.config.section import Seconds, Section, wrong
from fmha.harness.config.settings import (
    SUPERVISED,
    WAY_OF_KIND,
    HostKind,
    HostSettings,
    Isolation,
    RemoteSettings,
    Schedule,
    SecretSource,
    Sync,
    WayName,
    either,
)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise wrong((), "has characters that do not print")
    return text


def _filled(text: str) -> str:
    if not text:
        raise wrong((), "must not be empty")
    return text


def _device(text: str) -> str:
    if text not in ("cuda", "emulator") and not CLASS.fullmatch(text):
        raise wrong((), f"must be cuda, emulator or module:attribute, not {text!r}")
    return text


def _index(value: object) -> object:
    """A GPU's index may be written as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value


CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
Text = Annotated[str, AfterValidator(_printable)]
Line = Annotated[Text, AfterValidator(_filled)]
# A name of fmha.harness.worker.devices.factory, or `module:attribute`.
Device = Annotated[str, AfterValidator(_device)]
Count = Annotated[int, Field(ge=1, le=1024)]
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The settings that every kind has, and below those of some kinds alone; the rest are for the kinds with a supervisor.
OF_ALL = frozenset(("kind", "schedule", "arch", "workers"))
OF_KINDS: Mapping[str, tuple[HostKind, ...]] = {
    "alias": tuple(kind for kind, way in WAY_OF_KIND.items() if way != "here"),
    "slurm": ("slurm",),
    "mma_sums": ("emulator",),
}
DEFAULT_SETUP = "sh scripts/environment.sh"
DEFAULT_FILES = (
    "pyproject.toml",
    "constraints.txt",
    "CMakeLists.txt",
    "emulator/core/**/*",
    "scripts/environment.sh",
    "scripts/requirements.py",
)
# All but the kernels: who changes it on a host has it approved first.
PROTECTED = (
    "matrix.yaml",
    "emulator/",
    "fmha/",
    "harness/",
    "results/baselines/",
    "scripts/",
    "tests/",
    "CMakeLists.txt",
    "Makefile",
    "constraints.txt",
    "pyproject.toml",
    ".ci/",
    ".github/",
)
# Words of a setup command that would touch a host's drivers, firmware or system packages, or ask for root.
FORBIDDEN = (
    "sudo", "su", "doas", "pkexec",
    "apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "rpm", "zypper", "pacman", "apk", "snap",
    "modprobe", "insmod", "rmmod", "dkms", "sysctl", "systemctl", "service",
    "nvidia-smi", "nvidia-persistenced", "nvidia-modprobe", "fabricmanager", "fwupdmgr", "flashrom", "mlxfwmanager",
    "reboot", "shutdown", "poweroff", "halt", "init", "kexec",
)  # fmt: skip


class EnvironmentSection(Section):
    """`setup` is a shell command run in the worktree; an empty one means that `python` has everything already."""

    setup: str = DEFAULT_SETUP
    files: list[Line] = Field(default=list(DEFAULT_FILES))
    seconds: Seconds = 3600.0


class GpuSection(Section):
    """`nvidia_smi` is what is asked about GPUs; a host whose device is not cuda has none unless it is given.

    `locks` is a name: runs exclude each other whose hosts have the same. `count` is the most GPUs that a run takes.
    """

    use: list[Annotated[Line, BeforeValidator(_index)]] = Field(default=[])
    count: Count = 1
    locks: Line = "fmha"
    wait_seconds: Seconds = 24 * 3600.0
    foreign: Literal["wait", "refuse"] = "wait"
    nvidia_smi: Line | None = None
    smi_seconds: Seconds = 20.0


class SecretSection(Section):
    """Where a secret is: in a variable of the environment here, or printed by a command."""

    env: Line | None = None
    command: Annotated[list[Line], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.env is None) == (self.command is None):
            raise wrong((), "must have env or command, one of the two")
        if self.env is not None and not VARIABLE.fullmatch(self.env):
            raise wrong(("env",), "is no name of a variable")
        return self


class KeepSection(Section):
    """What a host keeps of ended runs; beyond either of the two, the oldest go."""

    days: Seconds = 30.0
    runs: Annotated[int, Field(ge=1)] = 200


class KeySection(Section):
    """What a run may take of the host whose key can only run commits. `seconds` are of building and running,
    `random_cases` of one random suite; no `workers` are those of a run that names none. `runs` are those of all such
    keys that wait or go on, `pack_bytes` what one of them may send. No host takes more (harness/supervisor/requests.py)
    than what each may be here."""

    seconds: Annotated[Seconds, Field(le=30 * 86400)] = 4 * 3600.0
    workers: Count | None = None
    random_cases: Annotated[int, Field(ge=1, le=10_000)] = 1000
    runs: Annotated[int, Field(ge=1, le=1000)] = 16
    pack_bytes: Annotated[int, Field(ge=1, le=64 << 30)] = 1 << 30


class SlurmSection(Section):
    """What a host of kind slurm asks its scheduler for; empty is the site's default. `tasks` is how many it is asked
    for at once, at the most; `late_seconds`, how late a node may see what another has written."""

    login: WayName = "ssh"
    tasks: Count = 1
    partition: Text = ""
    account: Text = ""
    qos: Text = ""
    gres: Text = ""
    time: Text = ""
    constraint: Text = ""
    exclude: Text = ""
    mem: Text = ""
    cpus_per_task: Count | None = None
    container_image: Text = ""
    container_mounts: list[Line] = Field(default=[])
    late_seconds: Seconds = 70.0


class HostSection(Section):
    """One host. All but `kind`, `schedule`, `arch` and `workers` is for kinds with a supervisor, which all have but
    `emulator`; `mma_sums` is for the emulator, `workers` for what has no GPU."""

    kind: HostKind
    schedule: Schedule = "realistic"
    mma_sums: Literal["fast", "silicon"] = "fast"
    workers: Count | None = None
    device: Device = "cuda"
    arch: Line = "sm_100a"
    alias: Line | None = None
    folder: Line = "~/fmha"
    python: Line = "python3"
    env: dict[str, Text] = Field(default={})
    secrets: dict[str, SecretSection] = Field(default={})
    keep: KeepSection = KeepSection()
    environment: EnvironmentSection = EnvironmentSection()
    nvcc: Text = ""
    gpus: GpuSection = GpuSection()
    slurm: SlurmSection = SlurmSection()
    sync: Sync = "auto"
    remote: Line = "origin"
    fetch_url: Text = ""
    isolation: Isolation = "auto"
    key: KeySection = KeySection()
    protected: list[Line] = Field(default=list(PROTECTED))
    forbidden: list[Line] = Field(default=list(FORBIDDEN))
    silence_seconds: Seconds = 20.0
    reconnect_seconds: Seconds = 1800.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in sorted(self.model_fields_set - OF_ALL):
            if self.kind not in (kinds := OF_KINDS.get(name, SUPERVISED)):
                raise wrong((name,), f"is for hosts of kind {either(kinds)}")
        if self.workers is not None and self.kind != "emulator" and self.device != "emulator":
            raise wrong(("workers",), "is for the emulator; gpus.count says how many GPUs a run may take")
        for section, names in (("env", self.env), ("secrets", self.secrets)):
            for name in names:
                if not VARIABLE.fullmatch(name):
                    raise wrong((section, name), "is no name of a variable")
        if twice := sorted(self.env.keys() & self.secrets.keys()):
            raise wrong(("secrets", twice[0]), "is in env as well")
        if word := _forbidden_word(self.environment.setup, self.forbidden):
            raise wrong(
                ("environment", "setup"), f"{word!r} is forbidden on hosts; see forbidden in docs/use/remote.md"
            )
        return self

    def _slurm(self) -> dict[str, object]:
        wish = self.slurm.model_dump(exclude={"login"})
        return {**wish, "wait_seconds": self.gpus.wait_seconds}

    def settings(self, name: str) -> HostSettings:
        """The host as the loop has it, with what its kind takes for granted."""
        if self.kind == "emulator":
            return HostSettings(
                name, self.kind, self.schedule, mma_sums=self.mma_sums, arch=self.arch, workers=self.workers or 0
            )
        smi = self.gpus.nvidia_smi or ("nvidia-smi" if self.device == "cuda" else None)
        return HostSettings(
            name,
            self.kind,
            self.schedule,
            RemoteSettings(
                alias=self.alias or name,
                device=self.device,
                arch=self.arch,
                folder=self.folder,
                python=self.python,
                env=dict(self.env),
                secrets={
                    name: SecretSource(item.env, tuple(item.command or ())) for name, item in self.secrets.items()
                },
                keep=self.keep.model_dump(),
                setup=self.environment.setup,
                setup_files=tuple(self.environment.files),
                setup_seconds=self.environment.seconds,
                nvcc=self.nvcc,
                gpu={
                    **self.gpus.model_dump(),
                    "query": smi is not None and self.kind != "slurm",
                    "nvidia_smi": smi,
                },
                slurm=self._slurm() if self.kind == "slurm" else None,
                way=WAY_OF_KIND[self.kind] or self.slurm.login,
                sync=self.sync,
                remote=self.remote,
                fetch_url=self.fetch_url,
                isolation=self.isolation,
                key=self.key.model_dump(),
                protected=tuple(self.protected),
                silence_seconds=self.silence_seconds,
                reconnect_seconds=self.reconnect_seconds,
                workers=self.workers or 0,
            ),
        )


def _forbidden_word(setup: str, forbidden: list[str]) -> str | None:
    """The first forbidden command in a shell text; paths count by their last part.

    A rail, not a wall: what it misses still cannot gain privileges (harness/supervisor/processes.py).
    """
    lexer = shlex.shlex(setup, posix=True, punctuation_chars="();<>|&`$\n")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        words = setup.split()
    for word in words:
        for part in word.split():
            if (name := part.rpartition("/")[2]) in forbidden:
                return name
    return None
