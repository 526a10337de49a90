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
from fmha.harness.contract.protocol import Beside, BuildResult, Timed, Variant
from fmha.harness.judge.case import Field, case_of
from fmha.harness.stages.runner import _beside
from fmha.harness.worker.devices import cuda
from fmha.harness.worker.launch.time_builds import ROUNDS, UntimedError
from fmha.harness.worker.subjects.declared import Declared
from tests.compiled import nvcc
from tests.worker.adapters import TWICE, adapter_of
from tests.worker.test_cuda_device import needs_gpu

COMMIT = "c" * 40
SECONDS = {"base": 30e-6, "new": 20e-6, "wrong": 1e-6}


class Clocked:
    """Doubles what it is launched over, in SECONDS by the folder that the kernel is in; one in `wrong` does not."""

    name, artifact, multiprocessors = "clocked", "cubin", 1

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.kept: list[tuple[str, tuple[bytes, ...]]] | None = None

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
            self.kept.append((module, params))
        else:
            self.double(module, params)
        return LaunchReport()

    def double(self, module: str, params: tuple[bytes, ...]) -> float:
        if module != "wrong":
            x, y = (struct.unpack("<Q", item)[0] for item in params)
            self.memory[y] = 2 * self.memory[x]
        return SECONDS[module]

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        self.kept = kept = []
        work()
        self.kept = None
        return lambda: sum(self.double(*launch) for launch in kept)

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


def alone(kernel: Declared, device: Any, build: BuildResult) -> Timed:
    """Judged first."""
    inputs = kernel.inputs(0, CASE)
    expected = kernel.reference(CASE, inputs)
    ran = kernel.run(device, device.load(Path(build.cubin)), build.variant, CASE, inputs)
    return kernel.timed_alone(device, build, CASE, inputs, expected, kernel.measure(CASE, ran, expected))


def test_it_is_timed_alone(kernel: Declared) -> None:
    device: Any = Clocked()
    found = alone(kernel, device, built("new", kernel))
    assert found.seconds == pytest.approx([2 * SECONDS["new"]] * ROUNDS), "both launches of the case"
    assert (found.beside, found.beside_seconds, found.clock_mhz) == ("", (), (1700.0,) * ROUNDS)


def test_it_is_timed_beside_another_commits_build_that_is_right(kernel: Declared) -> None:
    inputs = kernel.inputs(0, CASE)
    expected = kernel.reference(CASE, inputs)
    base = built("base", kernel)

    def timed(*others: BuildResult) -> Any:
        device: Any = Clocked()
        new = built("new", kernel)
        judged = kernel.measure(CASE, kernel.run(device, "new", new.variant, CASE, inputs), expected)
        return kernel.timed(device, new, Beside(COMMIT, others), CASE, inputs, expected, judged)

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


class Changing(Clocked):
    """Adds x to what y holds, and leaves nothing of x."""

    def double(self, module: str, params: tuple[bytes, ...]) -> float:
        x, y = (struct.unpack("<Q", item)[0] for item in params)
        self.memory[y] = self.memory[y].view(np.float32) + 2 * self.memory[x]
        self.memory[x] = 0 * self.memory[x]
        return SECONDS[module]


def test_what_is_changed_in_place_is_put_back_before_it_is_looked_at(tmp_path: Path) -> None:
    """What many launches one after the other leave is no fault then."""
    text = TWICE.replace("Output((case.size,))", 'Output((case.size,), first="zeros")')
    kernel = Declared(adapter_of(tmp_path, text, overwrites=("x",)))
    device: Any = Changing()
    assert alone(kernel, device, built("new", kernel)).seconds == pytest.approx([2 * SECONDS["new"]] * ROUNDS)


LAZY = """
__device__ int turns;

extern "C" __global__ void twice(const float *x, float *y) {
  const int turn = turns;
  for (int i = threadIdx.x; i < 40 && !(RESTS); i += 32) {
    y[i] = 2 * x[i];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    turns = turn + 1;
  }
}
"""


@pytest.mark.gpu
@pytest.mark.nvcc
@needs_gpu
@pytest.mark.parametrize("rests", ["turn > 50", "turn > 6 && turn % 400 != 0", "false"])
def test_a_kernel_that_keeps_a_count_gains_nothing_by_it(rests: str, kernel: Declared, tmp_path: Path) -> None:
    """Also one whose batches are right, since one launch of each works."""
    source = tmp_path / "lazy.cu"
    source.write_text(LAZY.replace("RESTS", rests))
    cubin = nvcc(tmp_path / "lazy.cubin", source, "-cubin", f"-arch={cuda.architecture()}")
    device = cuda.CudaDevice()
    build = replace(built("new", kernel), cubin=str(cubin))
    if rests == "false":
        assert min(alone(kernel, device, build).seconds) > 0
    else:
        with pytest.raises(UntimedError, match="launches that were timed compute something else"):
            alone(kernel, device, build)
    device.close()
