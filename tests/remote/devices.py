"""A device that waits where a test wants it to: while `hold/t<T>` is in the server's folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.worker.devices.base import Dim3, LaunchReport
from tests.integration.fault_devices import T_OFFSET, FaultyDevice

MARK = "FMHA_TEST_SERVER"  # in the environment of whatever a session has started
POLL_SECONDS = 0.02


class HeldDevice(FaultyDevice):
    """FaultyDevice, once the test lets go; where `hold/dirty-t<T>` is, it changes the worktree too."""

    def launch(
        self, module: object, entry: str, grid: Dim3, block: Dim3, shared_bytes: int, params: bytes
    ) -> LaunchReport:
        t = int.from_bytes(params[T_OFFSET : T_OFFSET + 4], "little")
        hold = Path(os.environ[MARK], "hold")
        while (hold / f"t{t}").exists():
            time.sleep(POLL_SECONDS)
        if (hold / f"dirty-t{t}").exists():
            Path("kernel/README.added").write_text("not in the commit")
        return super().launch(module, entry, grid, block, shared_bytes, params)
