"""Facts about the machine that this process runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from pathlib import Path

from fmha.harness.contract.machine import Machine

_DISTRIBUTIONS = ("fmha", "numpy", "torch")


def this_machine() -> Machine:
    """The processor, how many cores this process may use, and the kernel's version."""
    return Machine(_cpu(), len(os.sched_getaffinity(0)), f"{platform.system()} {platform.release()}")


def distribution_version(name: str) -> str | None:
    """As importlib.metadata says it, which reads all of a distribution's text and is long to load."""
    named = re.compile(rf"{re.escape(name)}-([^-]+)(?:-py[0-9.]+)?\.(?:dist|egg)-info", re.IGNORECASE)
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in sorted(os.listdir(folder or ".")):
                if found := named.fullmatch(entry):
                    return found[1]
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
