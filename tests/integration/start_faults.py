"""Device factories that fail while a worker starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.integration.fault_devices import FaultyDevice


def __getattr__(name: str) -> type[FaultyDevice]:
    """`always` kills every worker that asks for it, `once` only the first, `where_told` those that their environment
    says, `hangs` never answers."""
    sick = name == "where_told" and "FMHA_TEST_SICK" in os.environ
    if name == "always" or sick or (name == "once" and first_time()):
        print("no device today", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hangs":
        print(f"pid {os.getpid()}", file=sys.stderr, flush=True)
        time.sleep(600)
    if name in ("once", "where_told"):
        return FaultyDevice
    raise AttributeError(name)


def first_time() -> bool:
    marker = Path(os.environ["FMHA_TEST_MARKER"])
    if marker.exists():
        return False
    marker.touch()
    return True
