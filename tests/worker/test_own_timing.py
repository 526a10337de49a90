"""A kernel with an adapter timed on a device that has a clock: alone, and beside another commit's build."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha.harness.config import Limits
from fmha.harness.contract.device import LaunchConfig, LaunchReport
from fmha.harness.contract.protocol import Beside, BuildResult, Variant
from fmha.harness.judge.case import Field, case_of
from fmha.harness.stages.runner import _beside
from fmha.harness.worker.launch.time_builds import ROUNDS, UntimedError
from fmha.harness.worker.subjects.declared import Declared
from tests.worker.adapters import TWICE, adapter_of

COMMIT = "c" * 40
SECONDS = {"base": 30e-6, "new": 20e-6, "wrong": 1e-6}


class Clocked:
    """Doubles what it is launched over, in SECONDS by the folder that the kernel is in; one in `wrong` does not."""

    name, artifact, multiprocessors = "clocked", "cubin", 1

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.kept: list[float] | None = None

    def alloc(self, nbytes: int, name: str) -> int:
        self.memory[address := 256 * (len(self.memory) + 1)] = None
        return address

    def upload(self, address: int, data: Any) -> None:
        self.memory[address] = data

    def download(self, address: int, nbytes: int) -> Any:
        return np.frombuffer(self.memory[address].tobytes(), np.uint8)

    def load(self, artifact: Path) -> str:
        return artifact.parent.name

    def launch(self, module: str, entry: str, config: LaunchConfig, params: tuple[bytes, ...]) -> LaunchReport:
        if self.kept is not None:
            self.kept.append(SECONDS[module])
        elif module != "wrong":
            x, y = (struct.unpack("<Q", item)[0] for item in params)
            self.memory[y] = 2 * self.memory[x]
        return LaunchReport()

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        self.kept = kept = []
        work()
        self.kept = None
        return lambda: sum(kept)

    def clock(self) -> float:
        return 1700.0


CASE = case_of("twice", (Field("size"),), {"size": 40})


def built(folder: str, kernel: Declared) -> BuildResult:
    variant = kernel.variant_for(CASE, "sm_90a")
    assert isinstance(variant, Variant)
    return BuildResult(variant, "", f"/{folder}/k.cubin", None, "", "", (), 0.0, False)


@pytest.fixture
def kernel(tmp_path: Path) -> Declared:
    return Declared(adapter_of(tmp_path, TWICE))


def test_it_is_timed_alone(kernel: Declared) -> None:
    device: Any = Clocked()
    found = kernel.timed_alone(device, built("new", kernel), CASE, kernel.inputs(0, CASE))
    assert found.seconds == pytest.approx([2 * SECONDS["new"]] * ROUNDS), "both launches of the case"
    assert (found.beside, found.beside_seconds, found.clock_mhz) == ("", (), (1700.0,) * ROUNDS)


def test_it_is_timed_beside_another_commits_build_that_is_right(kernel: Declared) -> None:
    inputs = kernel.inputs(0, CASE)
    expected = kernel.reference(CASE, inputs)
    base = built("base", kernel)

    def timed(*others: BuildResult) -> Any:
        device: Any = Clocked()
        return kernel.timed(device, built("new", kernel), Beside(COMMIT, others), CASE, inputs, expected)

    found = timed(base)
    assert found.seconds == pytest.approx([2 * SECONDS["new"]] * ROUNDS)
    assert (found.beside, found.beside_seconds) == (COMMIT, pytest.approx([2 * SECONDS["base"]] * ROUNDS))
    with pytest.raises(UntimedError, match="computes something else"):
        timed(built("wrong", kernel))
    with pytest.raises(UntimedError, match="has no variant twice_sm90a"):
        timed(replace(base, variant=replace(base.variant, name="other")))


@pytest.mark.nvcc
def test_the_other_commits_build_is_of_its_own_source(tmp_path: Path, kernel: Declared) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "twice.cu").write_text(
        'extern "C" __global__ void twice(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }\n'
    )
    variant = built("new", kernel).variant
    found = _beside(COMMIT, tree, [variant], tmp_path / "cache", Limits(60, 60, 60), 1)
    assert [(item.variant, item.error) for item in found.builds] == [(variant, None)]
    assert Path(found.builds[0].cubin).is_file()
    assert found.reason == ""
