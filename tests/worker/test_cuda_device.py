"""The GPU as a device. What needs one is marked; the rest says what a machine without one answers."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fmha.harness.contract.device import Device, DeviceError, LaunchConfig, Roomy, Stopwatch, TensorMapSpec
from fmha.harness.worker.devices import cuda
from fmha.harness.worker.devices.across import Executor


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What is remembered a process is forgotten: each test asks the driver anew."""
    driver = cuda.driver
    driver.cache_clear()
    yield
    driver.cache_clear()


def available() -> bool:
    try:
        cuda.architecture()
    except DeviceError:
        return False
    return True


needs_gpu = pytest.mark.skipif(not available(), reason="no CUDA device here")


def test_without_the_bindings_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceError, match=r"cuda\.bindings cannot be imported .*; pip install 'fmha\[cuda\]'"):
        cuda.CudaDevice()


@pytest.mark.skipif(available(), reason="there is a CUDA device here")
def test_without_a_driver_the_error_says_so() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is installed where there is a GPU")
    with pytest.raises(DeviceError, match=r"no CUDA driver|sees no GPU"):
        cuda.CudaDevice()


class Recorder(SimpleNamespace):
    """As much of the driver as a launch needs: keeps stream, entry and the bytes that the argument points to."""

    def __init__(self, size: int) -> None:
        super().__init__(CUlaunchConfig=SimpleNamespace, made=[], size=size)

    def cuLaunchKernelEx(self, config: Any, function: str, arguments: int, extra: int) -> tuple[int]:  # noqa: N802
        pointer = ctypes.c_void_p.from_address(arguments).value
        assert pointer is not None
        assert pointer % cuda.PARAMS_ALIGNMENT == 0
        self.made.append((config.hStream, function, config.gridDimX, ctypes.string_at(pointer, self.size)))
        return (0,)


def test_kept_launches_are_made_in_order_each_with_its_own_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(size=896)
    monkeypatch.setattr(cuda, "driver", lambda: recorder)
    first, second = bytes([1]) * 896, bytes([2]) * 896
    shapes = LaunchConfig((7, 1, 1), (128, 1, 1)), LaunchConfig((9, 1, 1), (128, 1, 1))
    kept = cuda.Kept([("forward", shapes[0], first), ("combine", shapes[1], second)])
    kept(3)
    kept()
    kept(3)
    both = [("forward", 7, first), ("combine", 9, second)]
    assert recorder.made == [(stream, *launch) for stream in (3, 0, 3) for launch in both]


@pytest.fixture(params=["in this process", "across the wall"])
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    if request.param == "in this process":
        yield cuda.CudaDevice()
        return
    with closing(Executor("cuda", [tmp_path / "any.cubin"])) as executor:
        yield executor.open(0, "realistic")


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_is_a_stopwatch_on_either_side(device: Device) -> None:
    assert isinstance(device, Stopwatch)
    assert isinstance(device, Roomy)
    assert device.multiprocessors > 1
    assert device.clock() is None or 100.0 < (device.clock() or 0.0) < 1e4


@pytest.mark.gpu
@needs_gpu
def test_memory_goes_there_and_back(device: Device) -> None:
    data = np.arange(1000, dtype=np.uint8)
    address = device.alloc(data.nbytes, "data")
    assert address % 256 == 0
    device.upload(address, data)
    assert np.array_equal(device.download(address, data.nbytes), data)
    device.close()


@pytest.mark.gpu
@needs_gpu
def test_the_driver_refuses_a_map_that_the_emulator_refuses(device: Device) -> None:
    address = device.alloc(4096, "data")
    good = TensorMapSpec("bf16", address, (64, 8), (128,), (64, 8), (1, 1), "128B")
    assert len(device.encode_tensor_map(good)) == 128
    with pytest.raises(DeviceError, match="tensor map refused: CUDA_ERROR_INVALID_VALUE"):
        device.encode_tensor_map(TensorMapSpec("bf16", address, (64, 8), (120,), (64, 8), (1, 1), "128B"))
    device.close()
