"""Facts about the machine that this process runs on."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

from fmha.harness.hosts.base import Machine

_DISTRIBUTIONS = ("fmha", "numpy", "torch")


def this_machine() -> Machine:
    return Machine(_cpu(), len(os.sched_getaffinity(0)), f"{platform.system()} {platform.release()}")


def distribution_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Python and the distributions that shape the numbers; the emulator is part of `fmha`."""
    return {"python": platform.python_version(), **{name: distribution_version(name) for name in _DISTRIBUTIONS}}


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
