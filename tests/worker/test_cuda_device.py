"""The GPU as a device. What needs one is marked; the rest says what a machine without one answers."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fmha.harness.contract.device import (
    Device,
    DeviceError,
    IllegalError,
    LaunchConfig,
    Roomy,
    Stopwatch,
    TensorMapSpec,
)
from fmha.harness.extras import install
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
    with pytest.raises(DeviceError, match=rf"cuda\.bindings cannot be imported .*; {re.escape(install('cuda'))}"):
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
    kept = cuda.KeptCudaLaunches([("forward", shapes[0], first), ("combine", shapes[1], second)])
    kept(3)
    kept()
    kept(3)
    both = [("forward", 7, first), ("combine", 9, second)]
    assert recorder.made == [(stream, *launch) for stream in (3, 0, 3) for launch in both]


class TwoGpus(SimpleNamespace):
    """As much of the driver as several GPUs need: what each is, and in which context what is done."""

    def __init__(self) -> None:
        names = ["COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT"]
        super().__init__(
            CUdevice_attribute=SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in names}),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed"),
            CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
            contexts=[None],
            mode="global",
            done=[],
            refuses=0,
        )

    def __getattr__(self, name: str) -> Any:
        """Any other function: does nothing but to say where."""

        def call(*given: Any) -> tuple[int, int]:
            self.done.append((name, self.contexts[-1], self.mode))
            return (self.refuses if name == "cuMemsetD8Async" else 0), 0x1000

        return call

    def cuDeviceGetCount(self) -> tuple[int, int]:  # noqa: N802
        return 0, 2

    def cuDeviceGet(self, index: int) -> tuple[int, int]:  # noqa: N802
        return 0, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, int]:  # noqa: N802
        return 0, 0xC0 + device

    def cuDeviceGetAttribute(self, name: str, device: int) -> tuple[int, int]:  # noqa: N802
        return 0, {"COMPUTE_CAPABILITY_MAJOR": (9, 10), "MULTIPROCESSOR_COUNT": (132, 148)}.get(name, (0, 0))[device]

    def cuCtxPushCurrent(self, context: int) -> tuple[int]:  # noqa: N802
        self.contexts.append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> tuple[int, int]:  # noqa: N802
        return 0, self.contexts.pop()

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:  # noqa: N802
        self.contexts[-1] = context
        return (0,)

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[int, str]:  # noqa: N802
        self.mode, before = mode, self.mode
        return 0, before


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoGpus]:
    made = TwoGpus()
    remembered = (cuda._gpu, cuda._primary_context, cuda._load)
    for each in remembered:
        each.cache_clear()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    yield made
    for each in remembered:
        each.cache_clear()


def test_each_visible_gpu_is_one_of_its_own(gpus: TwoGpus, tmp_path: Path) -> None:
    assert [cuda.architecture(index) for index in range(2)] == ["sm_90a", "sm_100a"]
    assert [cuda.multiprocessors(index) for index in range(2)] == [132, 148]
    artifact = tmp_path / "any.cubin"
    artifact.write_bytes(b"cubin")
    for index in (0, 1, 0):
        device = cuda.CudaDevice(index=index)
        assert (device.multiprocessors, gpus.contexts) == ((132, 148)[index], [0xC0 + index])
        device.load(artifact)
    assert [context for name, context, _ in gpus.done if name == "cuModuleLoadData"] == [0xC0, 0xC1]
    with pytest.raises(DeviceError, match="the CUDA driver sees 2 GPUs, none of index 2"):
        cuda.CudaDevice(index=2)


@pytest.mark.parametrize("refused", [0, 2])
def test_zeros_are_of_their_gpu_and_leave_the_thread_as_it_was(gpus: TwoGpus, refused: int) -> None:
    gpus.refuses = refused
    if refused:
        with pytest.raises(AttributeError):  # of the status, which has a name
            cuda.zeros(4096, 1)
    else:
        assert cuda.zeros(4096, 1) == 0x1000
    assert (gpus.contexts, gpus.mode) == ([None], "global")
    assert {(context, mode) for _, context, mode in gpus.done} == {(0xC1, "relaxed")}
    assert "cuMemAlloc" in [name for name, _, _ in gpus.done]


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
    with pytest.raises(IllegalError, match="tensor map refused: CUDA_ERROR_INVALID_VALUE"):
        device.encode_tensor_map(TensorMapSpec("bf16", address, (64, 8), (120,), (64, 8), (1, 1), "128B"))
    device.close()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("entry", "config", "words"),
    [
        ("nothing", LaunchConfig((1, 1, 1), (2048, 1, 1)), "launch of nothing refused: CUDA_ERROR_INVALID_VALUE"),
        ("nothing", LaunchConfig((1, 1, 1), (32, 1, 1), 1 << 20), "1048576 bytes of shared memory for nothing refused"),
        ("nothing", LaunchConfig((64, 1, 1), (32, 1, 1), 0, (64, 1, 1)), "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
        ("another", LaunchConfig((1, 1, 1), (32, 1, 1)), "entry another refused: CUDA_ERROR_NOT_FOUND"),
    ],
    ids=["threads", "shared", "cluster", "entry"],
)
def test_an_illegal_launch_is_the_launchers_fault(entry: str, config: LaunchConfig, words: str, tmp_path: Path) -> None:
    """And the device is as good as before."""
    ptx = tmp_path / "nothing.ptx"  # which the driver assembles
    ptx.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n")
    device = cuda.CudaDevice()
    module = device.load(ptx)
    with pytest.raises(IllegalError, match=words):
        device.launch(module, entry, config, ())
    device.launch(module, "nothing", LaunchConfig((1, 1, 1), (32, 1, 1)), ())
    device.close()
