"""Looking at processes from the outside."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
# Keeps a test that fails from waiting for ever; none that passes waits for it, on however slow a machine.
DEADLINE_SECONDS = 240.0


def eventually(condition: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Polls `condition` until it holds or the deadline passes; returns its last value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def alive(pids: Iterable[int]) -> list[int]:
    """Those of `pids` that still run; zombies do not."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def logged_pids(folder: Path, pattern: str = "*") -> list[int]:
    """Every `pid N` in the files of `folder`."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob(pattern)) if path.is_file())
    return [int(number) for number in re.findall(r"^pid (\d+)$", text, re.MULTILINE)]
