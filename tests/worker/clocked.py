"""Devices with a clock, for executors to have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fmha.harness.contract.device import Ceilings, DeviceError, LaunchConfig, LaunchReport, Params
from tests.worker.numpy_device import NumpyDevice


class ClockedDevice(NumpyDevice):
    """Each launch of a batch takes 20 us."""

    def __init__(self, seed: int, schedule: str) -> None:
        super().__init__(seed, schedule)
        self.kept: list[tuple[object, str, LaunchConfig, Params]] | None = None

    def launch(self, module: object, entry: str, config: LaunchConfig, params: Any) -> LaunchReport:
        if self.kept is None:
            return super().launch(module, entry, config, params)
        self.kept.append((module, entry, config, params))
        return LaunchReport()

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        self.kept = kept = []
        work()
        self.kept = None
        return lambda: self.again(kept)

    def again(self, kept: list[tuple[object, str, LaunchConfig, Params]]) -> float:
        """The last launch computes: all of a batch are the same."""
        NumpyDevice.launch(self, *kept[-1])
        return 20e-6 * len(kept)

    def clock(self) -> float | None:
        return 1500.0


class RatedDevice(ClockedDevice):
    """One that says what it does at most."""

    def ceilings(self) -> Ceilings:
        return Ceilings(4.2e12, 7e14, 1545.0, 430.5, ("power cap",))


class BoastingDevice(ClockedDevice):
    """Says more than any device does."""

    def ceilings(self) -> Ceilings:
        return Ceilings(1e19, None)


class ToldDevice(ClockedDevice):
    """Says, in the place of loading `tell`, what was launched."""

    def __init__(self, seed: int, schedule: str) -> None:
        super().__init__(seed, schedule)
        self.told: list[str] = []

    def load(self, artifact: Path) -> str:
        if artifact.name == "tell":
            raise DeviceError("\n".join(self.told))
        return super().load(artifact)

    def again(self, kept: list[tuple[object, str, LaunchConfig, Params]]) -> float:
        """None is kept: they are told, and nothing computes."""
        return 20e-6

    def launch(self, module: object, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        self.told.append(f"{entry} {config} {params!r}")
        return LaunchReport()
