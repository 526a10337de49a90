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
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.kernel_side.variants import VARIANTS
from fmha.harness.worker.launch.run_attention import run_attention
from fmha.harness.worker.launch.time_builds import MOST_LAUNCHES, ROUNDS, UntimedError, time_beside, time_ours
from tests.worker.numpy_device import NumpyDevice

CONFIGURATION = Configuration(64, 2, 65)
COMMIT = "b" * 40
SECONDS = {"base": 20e-6, "new": 21e-6}
Launch = tuple[object, str, LaunchConfig, bytes]


class Watched(NumpyDevice):
    """Kernels take SECONDS by the folder they are in; one in `wrong` leaves zeros. Of a batch that is made again the
    last launch computes: all are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Launch] | None = None
        self.batches: list[int] = []
        self.ran: list[str] = []

    def load(self, artifact: Path) -> str:
        return artifact.parent.name

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        if self.kept is not None:
            self.kept.append((module, entry, config, params))
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
        return lambda: self.again(kept)

    def again(self, kept: list[Launch]) -> float:
        super().launch(*kept[-1])
        return sum(SECONDS[str(module)] for module, *_ in kept)

    def clock(self) -> float | None:
        return 1500.0


def built(folder: str, error: str | None = None) -> BuildResult:
    return BuildResult(VARIANTS[0], f"/{folder}/k.ptx", "", None, "", "", (), 0.0, False, error)


def timed(device: NumpyDevice, beside: Beside | None) -> Timed:
    """Beside another build, or alone."""
    inputs = make_inputs(0, CONFIGURATION)
    expected = reference(inputs)
    ran = run_attention(NumpyDevice(), "", VARIANTS[0], CONFIGURATION, inputs)
    judged = measure(CONFIGURATION, ran, expected)
    if beside is None:
        return time_ours(device, built("new"), CONFIGURATION, inputs, expected, judged)
    return time_beside(device, built("new"), beside, CONFIGURATION, inputs, expected, judged)


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


class Lazy(Watched):
    """A kernel in `new` that does nothing, or as much as half of its rows, where `rests` says so of a batch."""

    def __init__(self, rests: Callable[[int, int], bool], half: bool) -> None:
        super().__init__()
        self.rests, self.half, self.turn = rests, half, 0

    def again(self, kept: list[Launch]) -> float:
        self.turn += 1
        before = {address: memory.copy() for address, memory in self.memory.items()}
        seconds = super().again(kept)
        if kept[-1][0] == "new" and self.rests(self.turn, len(kept)):
            for address, memory in self.memory.items():
                kept_bytes = memory.size // 2 if self.half else 0
                memory[kept_bytes:] = before[address][kept_bytes:]
        return seconds


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "rests",
    [
        lambda turn, launches: turn > 20,
        lambda turn, launches: launches > 1,
        lambda turn, launches: launches == 1,  # as where the last of a batch does the work of all
        lambda turn, launches: launches == 1 and turn % 2 == 0,
    ],
    ids=["later", "in a batch", "alone", "every second one"],
)
@pytest.mark.parametrize("beside", [None, Beside(COMMIT, (built("base"),))], ids=["alone", "beside"])
def test_launches_that_do_less_once_they_are_timed_have_no_time(
    rests: Callable[[int, int], bool], half: bool, beside: Beside | None
) -> None:
    """What they write is poisoned before: what an earlier launch left there is no work of theirs."""
    with pytest.raises(UntimedError, match=r"^launches that were timed compute something else .*: \d+ elements unwr"):
        timed(Lazy(rests, half), beside)


def test_what_is_timed_is_looked_at_again() -> None:
    assert timed(Watched(), None).seconds == pytest.approx([SECONDS["new"]] * ROUNDS)
