"""Devices for runs elsewhere: one that waits while `hold/t<T>` is in the server's folder, one that has a clock."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

from fmha.harness.contract.device import LaunchConfig, LaunchReport
from fmha.harness.contract.protocol import FindingRecord
from tests.integration.fault_devices import T_OFFSET, FaultyDevice
from tests.worker.numpy_device import NumpyDevice

MARK = "FMHA_TEST_SERVER"  # in the environment of whatever a session has started
POLL_SECONDS = 0.02
GREED_MEGABYTES = 2000
WORDS = "more than one page of a disk holds. " * 500


class HeldDevice(FaultyDevice):
    """FaultyDevice, once the test lets go; where `hold/dirty-t<T>` is, it changes the worktree too, where
    `hold/greedy-t<T>` is, it takes a few gigabytes, and where `hold/wordy-t<T>` is, it warns of WORDS."""

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        t = int.from_bytes(params[T_OFFSET : T_OFFSET + 4], "little")
        hold = Path(os.environ[MARK], "hold")
        while (hold / f"t{t}").exists():
            time.sleep(POLL_SECONDS)
        if (hold / f"greedy-t{t}").exists():
            bytearray(b"x") * (GREED_MEGABYTES << 20)
        if (hold / f"dirty-t{t}").exists():
            Path("kernel/README.added").write_text("not in the commit")
        if (hold / f"wordy-t{t}").exists():
            self.findings = (FindingRecord("words", "warning", WORDS),)
        return super().launch(module, entry, config, params)


class TimedDevice(NumpyDevice):
    """Knows how long a kernel takes: 10 us and what its PTX sleeps, with a noise of 0.1%."""

    def __init__(self, seed: int = 0, schedule: str = "realistic") -> None:
        super().__init__(seed, schedule)
        self._kept: list[float] | None = None
        self._noise = random.Random(seed)

    def load(self, artifact: Path) -> str:
        super().load(artifact)
        return str(artifact)

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        if self._kept is None:
            return super().launch(module, entry, config, params)
        sleeps = re.findall(r"nanosleep\.u32\s+(\d+);", Path(str(module)).read_text())
        self._kept.append(10e-6 + 1e-9 * sum(map(int, sleeps)))
        return LaunchReport()

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        self._kept = kept = []
        work()
        self._kept = None
        return lambda: sum(kept) * self._noise.gauss(1, 1e-3)

    def clock(self) -> float:
        return 1980.0
