"""Two builds timed beside each other: what is timed, and what is not and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.harness.contract.device import LaunchConfig, LaunchReport
from fmha.harness.contract.protocol import Beside, BuildResult, Timed
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.launch.time_builds import MOST_LAUNCHES, ROUNDS, UntimedError, time_beside
from tests.worker.numpy_device import NumpyDevice

CONFIGURATION = Configuration(64, 2, 65)
COMMIT = "b" * 40
SECONDS = {"base": 20e-6, "new": 21e-6}


class Watched(NumpyDevice):
    """Kernels take SECONDS by the folder they are in; one in `wrong` leaves zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] | None = None
        self.batches: list[int] = []
        self.ran: list[str] = []

    def load(self, artifact: Path) -> str:
        return artifact.parent.name

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        if self.kept is not None:
            self.kept.append(SECONDS[str(module)])
            return LaunchReport()
        self.ran.append(str(module))
        if module == "wrong":
            return LaunchReport()
        return super().launch(module, entry, config, params)

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        self.kept = kept = []
        work()
        self.kept = None
        self.batches.append(len(kept))
        return lambda: sum(kept)

    def clock(self) -> float | None:
        return 1500.0


def built(folder: str, error: str | None = None) -> BuildResult:
    return BuildResult(VARIANTS[0], f"/{folder}/k.ptx", "", None, "", "", (), 0.0, False, error)


def timed(device: NumpyDevice, beside: Beside) -> Timed:
    inputs = make_inputs(0, CONFIGURATION)
    return time_beside(device, built("new"), beside, CONFIGURATION, inputs, reference(inputs))


def test_both_builds_are_timed_in_batches_of_one_size() -> None:
    device = Watched()
    found = timed(device, Beside(COMMIT, (built("base"),)))
    assert found.beside == COMMIT
    assert found.seconds == pytest.approx([SECONDS["new"]] * ROUNDS)
    assert found.beside_seconds == pytest.approx([SECONDS["base"]] * ROUNDS)
    assert found.clock_mhz == found.beside_clock_mhz == (1500.0,) * ROUNDS
    assert device.ran == ["base"], "the other build's numbers are looked at once"
    assert device.batches == [1, 1, 50, 50], "a millisecond of the faster one"


def test_a_kernel_that_takes_no_time_makes_no_endless_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "base", 1e-7)
    device = Watched()
    timed(device, Beside(COMMIT, (built("base"),)))
    assert device.batches[2:] == [MOST_LAUNCHES] * 2


@pytest.mark.parametrize(
    ("device", "beside", "words"),
    [
        (NumpyDevice, Beside(COMMIT, (built("base"),)), "device numpy has no clock of its own"),
        (Watched, Beside(COMMIT, ()), f"commit {COMMIT[:12]} has no variant {VARIANTS[0].name}"),
        (Watched, Beside(COMMIT, (), "its harness says nothing"), "its harness says nothing"),
        (
            Watched,
            Beside(COMMIT, (built("base", "a.cu(3): error: x\nmore"),)),
            r"does not build: a\.cu\(3\): error: x$",
        ),
        (Watched, Beside(COMMIT, (built("wrong"),)), "computes something else"),
        (
            Watched,
            Beside(COMMIT, (replace(built("base"), variant=VARIANTS[1]),)),
            f"has no variant {VARIANTS[0].name}",
        ),
    ],
)
def test_what_is_not_timed(device: type[NumpyDevice], beside: Beside, words: str) -> None:
    with pytest.raises(UntimedError, match=words):
        timed(device(), beside)
