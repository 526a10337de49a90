"""Device factories that fail while a worker starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.integration.fault_devices import FaultyDevice
from tests.integration.processes import eventually


def __getattr__(name: str) -> type[FaultyDevice]:
    """`always` kills every worker that asks for it, `once` only the first, `hangs` never answers. `where_told` kills
    those that their environment says; the others wait until the test has seen the sick one given up."""
    sick = name == "where_told" and "FMHA_TEST_SICK" in os.environ
    if name == "always" or sick or (name == "once" and first_time()):
        print("no device today", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "hangs":
        print(f"pid {os.getpid()}", file=sys.stderr, flush=True)
        time.sleep(600)
    if name == "where_told":
        eventually(Path(os.environ["FMHA_TEST_MARKER"]).exists)
    if name in ("once", "where_told"):
        return FaultyDevice
    raise AttributeError(name)


def first_time() -> bool:
    marker = Path(os.environ["FMHA_TEST_MARKER"])
    if marker.exists():
        return False
    marker.touch()
    return True
