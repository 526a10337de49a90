"""Where the system, this interpreter and a GPU's driver lie, which an enclosed process sees."""

from __future__ import annotations

import contextlib
import glob
import math
import os
import pwd
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

NOWHERE: Final = "/nonexistent"
# Read and executed by nearly every program. Of /etc what a loader and a C library look up, and no more.
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Toolkits lie there, and a CI runner with its credentials may: of it is read what these variables lead to.
_OPTIONAL: Final = "/opt"
_LEADING: Final = ("PATH", "LD_LIBRARY_PATH")
_ETC: Final = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "passwd", "group", "nsswitch.conf"),
    *("debian_version", "os-release"),
)
# Of /proc what says nothing of other processes.
_PROC: Final = (
    *("self", "cpuinfo", "meminfo", "stat", "version", "filesystems", "sys/vm", "sys/kernel/osrelease"),
    *("sys/kernel/pid_max", "sys/kernel/random", "driver/nvidia", "devices", "modules"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PACKAGES: Final = ("site-packages", "dist-packages")
_GIT: Final = ".git"
_OF_A_REPOSITORY: Final = frozenset(("HEAD", "config", "objects", "refs"))
_UNSEARCHED: Final = frozenset((*_PACKAGES, "node_modules", "__pycache__", _GIT))
_KNOWN_SECONDS: Final = 60.0
_REPOSITORIES: Final[dict[str, tuple[float, frozenset[str]]]] = {}  # by folder: when it was looked through, what it has
# Of docker and podman. Their filter refuses namespaces, and where /proc is masked the kernel mounts no other.
UNFILTERED: Final = "--security-opt seccomp=unconfined"
UNMASKED: Final = "--security-opt systempaths=unconfined"
_GPU: Final = ("/dev/nvidia*", "/dev/nvidia-caps/*")


def system(gpu: bool) -> list[str]:
    """Files and folders of the system that are read where there is no file system of one's own."""
    named = [*_SYSTEM, *optional(), *(f"/etc/{name}" for name in _ETC), *(f"/proc/{name}" for name in _PROC)]
    return [path for path in (*named, *(["/sys"] if gpu else [])) if os.path.exists(path)]


def top() -> list[str]:
    """Those of `system` that a file system of one's own has to be given, links as links."""
    return [path for path in (*_SYSTEM, *optional(), *(f"/etc/{name}" for name in _ETC)) if os.path.lexists(path)]


def optional() -> list[str]:
    """Folders of /opt that programs and libraries are found in, each with those beside it."""
    listed = [entry for name in _LEADING for entry in os.environ.get(name, "").split(os.pathsep)]
    found = [os.path.normpath(entry) for entry in listed if os.path.isdir(entry)]
    above = [(path, os.path.dirname(path)) for path in found if path.startswith(f"{_OPTIONAL}/")]
    return sorted({path if beside == _OPTIONAL else beside for path, beside in above})


def devices(gpu: bool, groups: bool = False) -> list[str]:
    """Device nodes that are read and written. CUDA's driver names its threads, in the process's own folder of /proc.
    Landlock knows such a folder only of a process that is there already: with `groups`, whose processes come later, it
    is all of /proc, but for root, who would write the kernel's settings."""
    names = "/proc" if groups and os.geteuid() != 0 else "/proc/self"
    return [*(path for path in _DEVICES if os.path.exists(path)), *([names, *gpu_devices()] if gpu else ())]


def gpu_devices() -> list[str]:
    """The device files of GPUs that are there."""
    return sorted(path for pattern in _GPU for path in glob.glob(pattern) if not os.path.isdir(path))


def folders(granted: Iterable[Path]) -> list[str]:
    """This interpreter, what it imports from and what is granted: as it is named, and where that leads."""
    import fmha

    own = [Path(path) for path in fmha.__path__]
    fmha_code = [*own, *(folder / part for folder in own for part in ("harness", "emulator"))]
    # Of what is imported from, packages alone: a script's own folder may be anybody's home.
    packages = [path for path in sys.path if os.path.basename(path) in _PACKAGES]
    packages += [path for path in _named(packages) if not holds_the_home(Path(path))]
    # Without the module `site` a virtual environment does not know itself.
    environment = os.path.dirname(os.path.dirname(sys.executable))
    virtual = [environment] if os.path.isfile(os.path.join(environment, "pyvenv.cfg")) else []
    interpreter = [*_parts(sys.prefix, sys.base_prefix, sys.exec_prefix), *virtual, *packages, sys.executable]
    found = dict.fromkeys([*map(str, interpreter), *map(str, fmha_code), *map(str, granted)])
    named = dict.fromkeys(place for path in found for place in (path, os.path.realpath(path)))
    # A folder that is in another is there with it; the system's own are there anyway.
    there = [path for path in named if os.path.exists(path) and path != "/"]
    return [path for path in there if not _within(path, [*_SYSTEM, *(other for other in there if other != path)])]


def _parts(*prefixes: str) -> Iterator[str]:
    """The folders that an interpreter is in. Of one in ~/.local those that it is made of: beside them are keyrings, and
    what programs know of their users."""
    shared = os.path.realpath(os.path.expanduser("~/.local"))
    for prefix in prefixes:
        whole = os.path.realpath(prefix) != shared
        yield from [prefix] if whole else [os.path.join(prefix, part) for part in ("bin", "include", "lib", "lib64")]


def gits(read: Iterable[str], granted: Iterable[str]) -> list[str]:
    """git's own folders of the checkouts among `read`, and of any repository further down in what is `granted`: a
    clone, or a bare one. Nothing that is built needs them, and their configuration may have a token: in a remote's URL,
    or in a header as a CI system writes it."""
    inside = [path for path in map(os.path.realpath, granted) if not _within(f"{path}/", _SYSTEM)]
    found = [(os.path.realpath(path), os.path.realpath(os.path.join(path, _GIT))) for path in read]
    own = {inner for path, inner in found if inner.startswith(f"{path}/") and os.path.isdir(inner)}
    return sorted(own.union(*map(_repositories, inside)))


def _repositories(base: str) -> frozenset[str]:
    """Where git keeps what it knows, below a folder; not in packages, which nobody clones. Nobody waits for this twice
    in a minute."""
    at, found = _REPOSITORIES.get(base, (-math.inf, frozenset()))
    if time.monotonic() - at < _KNOWN_SECONDS:
        return found
    new: set[str] = set()
    pending = [base]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                there = list(entries)
        except OSError:  # gone, or a file
            continue
        names = {entry.name for entry in there}
        if names >= _OF_A_REPOSITORY and folder != base:
            new.add(folder)
            continue
        if _GIT in names and os.path.isdir(inner := os.path.realpath(os.path.join(folder, _GIT))):
            new.update([inner] if inner.startswith(f"{base}/") else [])
        pending += [
            entry.path for entry in there if entry.name not in _UNSEARCHED and entry.is_dir(follow_symlinks=False)
        ]
    _REPOSITORIES[base] = time.monotonic(), frozenset(new)
    return frozenset(new)


def _named(packages: Sequence[str]) -> list[str]:
    """Folders of modules that the interpreter's owner has named beside its packages: in a .pth file, as an editable
    installation does, or in PYTHONPATH."""
    lines = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for path in (path for folder in packages for path in glob.glob(f"{glob.escape(folder)}/*.pth")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines += Path(path).read_text(encoding="utf-8").splitlines()
    wanted = dict.fromkeys(line.strip() for line in lines)
    return [path for path in wanted if path in sys.path and os.path.isabs(path) and os.path.isdir(path)]


def holds_the_home(path: Path) -> bool:
    """Whether the account's home is this folder, or lies in it."""
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve()
    except KeyError:  # an account without an entry has none
        return False
    return home != Path("/") and home.is_relative_to(path.resolve())


def listed(environment: Mapping[str, str]) -> list[str]:
    """Folders of modules, which Python lists before it looks at what is granted in them."""
    named = [*environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    return [path for path in dict.fromkeys(named) if os.path.isabs(path) and os.path.isdir(path)]


def _within(path: str, others: Sequence[str]) -> bool:
    """Whether one of the folders `others` holds `path` by that very name."""
    return any(path.startswith(f"{other}/") for other in others)


def how_to_allow_namespaces() -> str:
    """What turns on the namespaces that bubblewrap needs."""
    if _says("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap an AppArmor profile"
    if _says("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "sysctl kernel.unprivileged_userns_clone=1"
    if _says("/proc/sys/user/max_user_namespaces", "0"):
        return "sysctl user.max_user_namespaces=10000"
    return f"no setting, but a filter or a chroot refuses them: start a container with {UNFILTERED} {UNMASKED}"


def _says(path: str, value: str) -> bool:
    try:
        return Path(path).read_text(encoding="ascii").strip() == value
    except OSError:
        return False
