"""The arguments of bubblewrap: a file system, process tree and network of one's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Final

from fmha.harness.isolate import system_paths

TEMPORARY: Final = "/tmp"
_ROOM: Final = str(4 << 30)  # of what is written in memory


def program() -> str | None:
    """Where bwrap is; None where it is not installed."""
    return shutil.which("bwrap")


def arguments(read: Sequence[str], write: Sequence[str], gpu: bool, cwd: str, hidden: Sequence[str] = ()) -> list[str]:
    """bwrap and its arguments, up to the command. Later ones lie over earlier ones: what is granted over /tmp and /run,
    nothing over the folders `hidden` in it, and what is written over what is read."""
    found = [program() or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in system_paths.top():
        if os.path.islink(path) and path.count("/") == 1:
            found += ["--symlink", os.readlink(path), path]
        else:
            found += ["--ro-bind", os.path.realpath(path), path]
    found += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        _ROOM,
        "--tmpfs",
        TEMPORARY,
        "--size",
        _ROOM,
        "--tmpfs",
        "/dev/shm",
    ]
    for path in system_paths.gpu_devices() if gpu else ():
        found += ["--dev-bind", path, path]
    if gpu:
        found += ["--ro-bind", "/sys", "/sys"]
    # The longer ones later: a folder in another one lies over it.
    for path in sorted(read, key=len):
        found += ["--ro-bind", path, path]
    for path in hidden:
        found += ["--tmpfs", path, "--remount-ro", path]
    for path in sorted(write, key=len):
        found += ["--bind", path, path]
    return [*found, "--remount-ro", "/", *_no_settings(gpu), "--chdir", cwd]


def _no_settings(gpu: bool) -> list[str]:
    """The kernel's settings in /proc are root's by owner, not by capability: root would write the machine's. CUDA's
    driver names its threads in /proc/self, so that for it all but the processes is bound read-only."""
    if not gpu:
        return ["--remount-ro", "/proc"]
    with os.scandir("/proc") as entries:
        found = sorted(entry.path for entry in entries if not entry.name.isdigit() and not entry.is_symlink())
    return [word for path in found for word in ("--ro-bind-try", path, path)]
