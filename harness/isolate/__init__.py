"""The wall: a process that runs what a commit brings gets fewer rights than the process that judges it.

`enclose` gives the command to start in place of another. That sees the system, this interpreter and what it is granted,
and nothing else of the account's files. It writes its scratch folders alone, has no network, and is bounded. bubblewrap
does it where it works, else Landlock with seccomp; `isolation` says which, or why none does.

Standard library only: it is shipped to hosts. docs/understand/trust.md says who is kept from what.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import site
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.isolate import bubblewrap, landlock, system_paths

VARIABLE: Final = "FMHA_ISOLATION"
FOUND: Final = "FMHA_ISOLATION_FOUND"  # what the process that started this one has found out
MECHANISMS: Final = ("bubblewrap", "landlock")
POLICIES: Final = ("auto", "require", "off", *MECHANISMS)  # the last two take that one alone
PROBE_SECONDS: Final = 20.0
MOST_HIDDEN: Final = 200  # folders of git's, each by name on a command line
# What bubblewrap says where it may make no user namespace: a sysctl, AppArmor or a container's filter forbids it.
_OF_NAMESPACES: Final = re.compile(
    r"user namespace|setting up uid map|No permissions to create|Operation not permitted"
)
# In a container whose /proc is masked the kernel lets nobody mount another.
_OF_A_CONTAINER: Final = re.compile(r"mount proc on /proc")
_LAUNCHER: Final = str(Path(landlock.__file__).resolve())
# What a compiler, an interpreter or a driver goes by. Of the rest some is secret, and none is needed.
_KEPT: Final = frozenset(
    [
        *("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "CC", "CXX", "SOURCE_DATE_EPOCH"),
        *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH"),
    ]
)
_KEPT_PREFIXES: Final = (
    *("LC_", "PYTHON", "CUDA_", "NVIDIA_", "NVCC_", "FMHA_", "OPENBLAS_", "MKL_", "OMP_", "TRITON_", "CUTE_"),
    *("CUTLASS_", "TORCH", "CCACHE_", "COVERAGE_"),
)
_ASKING: Final = threading.Lock()  # whoever asks while somebody finds out waits for that answer
_SECRET: Final = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "_KEY")


class IsolationError(InfrastructureError):
    """What keeps a commit's code from this machine is required, and this machine does not give it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an enclosed process may touch beside the system's files and this interpreter.

    It reads and executes what is below `read`, but for what git keeps of repositories there, and writes below `write`,
    whose folders exist; the first is its HOME and TMPDIR. With `groups` it may make sessions and process groups of its
    own, and see those of others: whoever ends it has to find them all. Bytes of memory are of its address space, None
    for no bound; a bound on processes holds for accounts other than root alone, whom the kernel lets have as many as
    they want.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    gpu: bool = False
    groups: bool = False
    memory_bytes: int | None = None
    processes: int | None = 4096
    open_files: int | None = 4096
    file_bytes: int | None = 16 << 30
    cpu_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Isolation:
    """What this machine gives: one of MECHANISMS, or `none` with the reason in words and what to do about it."""

    mechanism: str
    missing: str = ""
    advice: str = ""

    @property
    def words(self) -> str:
        """As a record says it."""
        return self.missing or self.mechanism

    @property
    def told(self) -> str:
        """As doctor says it, which has room for what there could be besides."""
        more = not self.missing and self.advice
        return f"{self.mechanism}; for bubblewrap, which encloses more: {self.advice}" if more else self.words


def isolation(policy: str = "") -> Isolation:
    """What processes of this one are kept apart by, under a policy or the environment's. Raises UserError for a policy
    that is none, IsolationError where one is required and there is none."""
    policy = policy or os.environ.get(VARIABLE) or "auto"
    if policy not in POLICIES:
        raise UserError(f"{VARIABLE}: {policy!r} is none of {', '.join(POLICIES)}")
    told = os.environ.get(FOUND, "")
    if told in MECHANISMS and policy in ("auto", "require"):  # one that does not work lets nothing be started
        return Isolation(told)
    with _ASKING:
        found = _found(policy)
    if found.mechanism == "none" and policy not in ("auto", "off"):
        raise IsolationError(found.missing, next_step=found.advice)
    return found


def handed_on(policy: str = "") -> dict[str, str]:
    """A variable for processes that this one starts, so that they need not find out again; none where there is nothing
    to tell."""
    with contextlib.suppress(UserError, InfrastructureError):
        if (found := isolation(policy)).mechanism in MECHANISMS:
            return {FOUND: found.mechanism}
    return {}


def foresee(policy: str = "") -> None:
    """Begins to find out what `isolation` will say, beside whatever this process does meanwhile."""

    def find() -> None:
        with contextlib.suppress(UserError, InfrastructureError):  # who asks is told
            isolation(policy)

    threading.Thread(target=find, daemon=True).start()


def enclose(
    command: Sequence[str], grant: Grant, *, cwd: Path, environment: Mapping[str, str], policy: str = ""
) -> tuple[list[str], dict[str, str]]:
    """The command to start in place of `command`, in `cwd`, and the environment to start it with.

    Its descriptors are 0 to 2 alone. It ends when the process that started it does, and with all that it has started
    when its process group is killed. Raises IsolationError, and InfrastructureError for a folder of `grant` that is not
    there.
    """
    for path in (*grant.read, *grant.write):
        if not path.exists():
            raise InfrastructureError("what is to be granted is not there", where=str(path))
    kept = kept_environment(environment)
    found = isolation(policy)
    if found.mechanism == "none":  # or what encloses this process has said where there is room
        return list(command), kept | {name: environment[name] for name in ("HOME", "TMPDIR") if name in environment}
    read = system_paths.folders(grant.read)
    if holding := [path for path in (*map(str, grant.read), *read) if system_paths.holds_the_home(Path(path))]:
        raise IsolationError(
            "the home would be granted whole, with its keys",
            where=holding[0],
            next_step="keep the repository, and the interpreter, in a folder of its own",
        )
    hidden = system_paths.gits(read, map(str, grant.read))
    if len(hidden) > MOST_HIDDEN:
        raise IsolationError(
            f"there are {len(hidden)} git repositories below what is to be granted, more than {MOST_HIDDEN}",
            where=hidden[0],
            next_step="keep them elsewhere: each is hidden from what a commit brings",
        )
    write = [os.path.realpath(path) for path in grant.write]
    home = write[0] if write else system_paths.NOWHERE
    kept |= {"HOME": home, "TMPDIR": write[0] if write else bubblewrap.TEMPORARY}
    if site.ENABLE_USER_SITE:  # packages of `pip install --user`, which Python looks for in the home
        kept.setdefault("PYTHONUSERBASE", site.getuserbase())
    limits = {
        "AS": grant.memory_bytes,
        "NPROC": grant.processes,
        "NOFILE": grant.open_files,
        "FSIZE": grant.file_bytes,
        "CPU": grant.cpu_seconds,
        "CORE": 1,  # a program that is to take a core is started in spite of 0
    }
    how: dict[str, object] = {"limits": {name: value for name, value in limits.items() if value is not None}}
    how |= {"gpu": grant.gpu, "groups": grant.groups}
    if found.mechanism == "bubblewrap":
        how["bubblewrap"] = bubblewrap.arguments(read, write, grant.gpu, os.path.realpath(cwd), hidden)
    else:
        seen = [*system_paths.system(grant.gpu), *(["/proc"] if grant.groups else []), *read]
        how |= {"read": seen, "write": write, "devices": system_paths.devices(grant.gpu, grant.groups)}
        how |= {"list": system_paths.listed(kept), "hidden": hidden}
    return [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(how), *command], kept


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What an enclosed process gets to see of an environment."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _KEPT or name.startswith(_KEPT_PREFIXES)) and not any(word in name for word in _SECRET)
    }


@functools.cache
def _found(policy: str) -> Isolation:
    if policy == "off":
        return Isolation("none", "not isolated: switched off", f"--isolation auto, or {VARIABLE}=auto")
    lacking, advice = [], ""
    if policy != "landlock":
        why, advice = _without_bubblewrap()
        if not why:
            return Isolation("bubblewrap")
        lacking.append(why)
    if policy != "bubblewrap":
        lacking.append("this kernel has no Landlock")
        if landlock.version() > 0:
            how = {"read": system_paths.system(False), "list": [], "write": [], "devices": [], "limits": {}}
            if not (why := _fails(how)):
                return Isolation("landlock", advice=advice)
            lacking[-1] = f"Landlock does not work ({why})"
    return Isolation("none", f"not isolated: {' and '.join(lacking)}", advice or "use a kernel of Linux 5.13 or later")


def _without_bubblewrap() -> tuple[str, str]:
    """Why bubblewrap cannot be used, and what gives it; two empty texts where it can."""
    if bubblewrap.program() is None:
        return "bubblewrap is not installed", "apt install bubblewrap"
    why = _fails({"bubblewrap": bubblewrap.arguments([], [], False, "/"), "limits": {}})
    if not why:
        return "", ""
    if _OF_A_CONTAINER.search(why):
        return "bubblewrap cannot mount /proc in this container", f"start it with {system_paths.UNMASKED}"
    if _OF_NAMESPACES.search(why):
        return "user namespaces are off", system_paths.how_to_allow_namespaces()
    return f"bubblewrap does not work ({why})", f"{bubblewrap.program()} --ro-bind / / true, which says why"


def _fails(how: Mapping[str, object]) -> str:
    """Why nothing can be started so; empty where it can."""
    command = [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(how), "/bin/true"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, cwd="/", check=False
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer in {PROBE_SECONDS:g} s"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return "".join(filter(str.isprintable, said[-1])) if said else f"exit code {done.returncode}"
