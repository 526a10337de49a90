"""A GPU as a device, over the CUDA driver API. The only file of the harness that imports `cuda.bindings`.

Uses the device's primary context, as torch does, so that addresses of torch tensors are valid here.
CUDA_VISIBLE_DEVICES chooses among several GPUs, and so does `index`, which counts those that it leaves as torch does.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import (
    SINGLE,
    Ceilings,
    DeviceError,
    DeviceLostError,
    IllegalError,
    LaunchConfig,
    LaunchReport,
    LoadedModule,
    Params,
    TensorMapSpec,
    TensorMapType,
)
from fmha.harness.extras import install
from fmha.harness.worker.devices import calls, ceilings
from fmha.harness.worker.devices.nvml import sm_clock

PARAMS_ALIGNMENT = 64  # of a tensor map
# What a driver says to a launch that no such GPU makes; all else may be the machine's fault.
ILLEGAL: Final = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "INVALID_VALUE",
        "NOT_FOUND",
        "LAUNCH_OUT_OF_RESOURCES",
        "INVALID_CLUSTER_SIZE",
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "NOT_SUPPORTED",
    )
)
# Of a CUtensorMapDataType, the last word of its name.
TENSOR_MAP_TYPES: Final[Mapping[TensorMapType, str]] = {
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "s32": "INT32",
    "u64": "UINT64",
    "s64": "INT64",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "bf16": "BFLOAT16",
}


class CudaDevice:
    """Visible GPU `index`. IllegalError for what the driver refuses of a launch, DeviceError for what else it refuses,
    DeviceLostError for what kills the context.

    Its context is made the current one of the thread, and has to be that in calls. Launches go to `stream`, a CUstream
    as an integer, and are waited for unless `wait` is false. There are no hazards and no schedules here: `seed` and
    `schedule` are those of the interface.
    """

    name = "cuda"
    artifact: Literal["ptx", "cubin"] = "cubin"

    def __init__(
        self, seed: int = 0, schedule: str = "realistic", *, stream: int = 0, wait: bool = True, index: int = 0
    ) -> None:
        self.stream, self.wait, self._index = stream, wait, index
        self.first_plane = 0  # a GPU runs all of a grid
        self._driver = driver()
        self._allocated: list[int] = []
        self._graphs: list[_Graph] = []
        self._recorded: list[tuple[Any, LaunchConfig, bytes]] | None = None
        _check("cuCtxSetCurrent", self._driver.cuCtxSetCurrent(_primary_context(index)))
        self.multiprocessors = multiprocessors(index)

    def alloc(self, nbytes: int, name: str) -> int:
        address = int(_check(f"allocation of {nbytes} bytes for {name}", self._driver.cuMemAlloc(nbytes)))
        self._allocated.append(address)
        return address

    def reserve(self, nbytes: int, name: str) -> int:
        """Memory for all of it, full of zeros: here the entries that nobody looks at are computed, too."""
        address = self.alloc(nbytes, name)
        _check("cuMemsetD8", self._driver.cuMemsetD8(address, 0, nbytes))
        return address

    def back(self, address: int, nbytes: int, name: str) -> None:
        """It is there."""

    def upload(self, address: int, data: NDArray[Any]) -> None:
        data = np.ascontiguousarray(data)
        _check("cuMemcpyHtoD", self._driver.cuMemcpyHtoD(address, data.ctypes.data, data.nbytes))

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        data = np.empty(nbytes, dtype=np.uint8)
        _check("cuMemcpyDtoH", self._driver.cuMemcpyDtoH(data.ctypes.data, address, nbytes), after_launch=True)
        return data

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        d = self._driver
        kind = TENSOR_MAP_TYPES[spec.dtype]
        encoded = _check(
            "tensor map",
            d.cuTensorMapEncodeTiled(
                getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
                len(spec.global_dim),
                spec.address,
                [d.cuuint64_t(size) for size in spec.global_dim],
                [d.cuuint64_t(stride) for stride in spec.global_strides],
                [d.cuuint32_t(size) for size in spec.box_dim],
                [d.cuuint32_t(stride) for stride in spec.element_strides],
                d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
                getattr(d.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{spec.swizzle.upper()}"),
                d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            ),
            of_launch=True,
        )
        return b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)

    def load(self, artifact: Path) -> LoadedModule:
        module: LoadedModule = _load(artifact, self._index)
        return module

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        d = self._driver
        function = _function(cast(Hashable, module), entry, config.shared_bytes)
        if self._recorded is not None:
            assert isinstance(params, bytes)  # what is prepared has one struct
            self._recorded.append((function, config, params))
            return LaunchReport()
        given = [params] if isinstance(params, bytes) else params
        buffers = [np.frombuffer(data, dtype=np.uint8) for data in given]
        pointers = np.array([buffer.ctypes.data for buffer in buffers], dtype=np.uint64)
        if config.cluster == SINGLE and not config.overlaps:
            arguments = (*config.grid, *config.block, config.shared_bytes, self.stream, pointers.ctypes.data, 0)
            launched = d.cuLaunchKernel(function, *arguments)
        else:
            launched = d.cuLaunchKernelEx(_configured(config, self.stream), function, pointers.ctypes.data, 0)
        _check(f"launch of {entry}", launched, of_launch=True)
        if self.wait:
            _check(f"{entry}", d.cuStreamSynchronize(self.stream), after_launch=True)
        return LaunchReport()

    def keep(self, work: Callable[[], object]) -> KeptCudaLaunches:
        """The launches that `work` makes, not made but kept."""
        return KeptCudaLaunches(self._record(work))

    def prepare(
        self, work: Callable[[], object], maps: Sequence[calls.Field], pointers: Sequence[calls.Field]
    ) -> PreparedLaunches:
        """As `keep`, to be made over other addresses. All have the same parameters, in which `maps` and `pointers` are
        offsets."""
        return PreparedLaunches(self._record(work), maps, pointers, self._index)

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        """The launches as a graph: what is timed is the GPU, not the host's way to it."""
        own = self.stream, self.wait
        graph = _Graph(self._driver)
        self._graphs.append(graph)
        try:
            self.stream, self.wait = graph.stream, False
            graph.capture(work)
        finally:
            self.stream, self.wait = own
        return graph.replay

    def clock(self) -> float | None:
        return _clock(self._index)()

    def ceilings(self) -> Ceilings:
        return _ceilings(self._index)

    def symbol(self, module: LoadedModule, name: str) -> tuple[int, int]:
        """Address and bytes of a variable of the module."""
        address, nbytes = _check(f"variable {name}", self._driver.cuModuleGetGlobal(module, name.encode()))
        return int(address), int(nbytes)

    def close(self) -> None:
        """Frees what was allocated, whatever the driver answers: a context that a kernel took down frees nothing."""
        for graph in self._graphs:
            graph.close()
        self._graphs.clear()
        for address in self._allocated:
            self._driver.cuMemFree(address)
        self._allocated.clear()

    def _record(self, work: Callable[[], object]) -> list[tuple[Any, LaunchConfig, bytes]]:
        made = self._recorded = []
        try:
            work()
            return made
        finally:
            self._recorded = None


def _configured(config: LaunchConfig, stream: int) -> Any:
    made = driver().CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = config.grid
    made.blockDimX, made.blockDimY, made.blockDimZ = config.block
    made.sharedMemBytes, made.hStream = config.shared_bytes, stream
    attributes = []
    if config.cluster != SINGLE:
        shape = driver().CUlaunchAttribute()
        shape.id = driver().CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape.value.clusterDim.x, shape.value.clusterDim.y, shape.value.clusterDim.z = config.cluster
        attributes.append(shape)
    if config.overlaps:
        serial = driver().CUlaunchAttribute()
        serial.id = driver().CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        serial.value.programmaticStreamSerializationAllowed = 1
        attributes.append(serial)
    made.attrs, made.numAttrs = attributes, len(attributes)
    return made


class KeptCudaLaunches:
    """Launches with the parameters they were given. A call costs the host the driver's own time for them."""

    def __init__(self, launches: Sequence[tuple[Any, LaunchConfig, bytes]]) -> None:
        self._params = [_Params(params) for _, _, params in launches]
        self._launches = [(function, config) for function, config, _ in launches]
        self._configured: dict[int, list[tuple[Any, Any, int]]] = {}

    def __call__(self, stream: int = 0) -> None:
        """Launches on `stream`, and does not wait."""
        d = driver()
        configured = self._configured.get(stream)
        if configured is None:
            configured = [
                (function, _configured(config, stream), params.arguments)
                for (function, config), params in zip(self._launches, self._params, strict=True)
            ]
            self._configured[stream] = configured
        for function, config, arguments in configured:
            answer = d.cuLaunchKernelEx(config, function, arguments, 0)
            if answer[0]:
                _check("launch", answer)


class _Params:
    """A launch's struct at its alignment, and at `arguments` the array of one pointer to it that the driver takes."""

    def __init__(self, params: bytes) -> None:
        self.memory = ctypes.create_string_buffer(len(params) + PARAMS_ALIGNMENT)
        self.start = -ctypes.addressof(self.memory) % PARAMS_ALIGNMENT
        self.base = ctypes.addressof(self.memory) + self.start
        ctypes.memmove(self.base, params, len(params))
        self._argument = (ctypes.c_void_p * 1)(self.base)
        self.arguments = ctypes.addressof(self._argument)


class PreparedLaunches:
    """Launches over addresses that each call names; it may be called by several threads. A call costs the host the
    driver's own time for the launches and little more."""

    def __init__(
        self,
        launches: Sequence[tuple[Any, LaunchConfig, bytes]],
        maps: Sequence[calls.Field],
        pointers: Sequence[calls.Field],
        index: int = 0,
    ) -> None:
        self._launches = [(function, config) for function, config, _ in launches]
        (params,) = {params for _, _, params in launches}
        self._params = _Params(params)
        placed = (
            [(self._params.base + offset, source, beyond) for offset, source, beyond in fields]
            for fields in (maps, pointers)
        )
        self._kept = calls.Launches(entries(calls.ENTRIES), context(index), self._params.arguments, *placed)
        self._configured: dict[int, tuple[bytes, list[Any]]] = {}

    def __call__(self, stream: int, addresses: bytes, *more: int) -> None:
        """Launches on `stream`. The call's addresses, of which fields have numbers, are `addresses` and then `more`.
        Whatever context is the thread's current one stays that."""
        configured = self._configured.get(stream) or self._configure(stream)
        answer = self._kept(configured[0], addresses, *more)
        if answer:
            refuse(answer)

    @property
    def functions(self) -> list[int]:
        """Of the launches, as the driver knows them."""
        return [int(function) for function, _ in self._launches]

    def _configure(self, stream: int) -> tuple[bytes, list[Any]]:
        configs = [_configured(config, stream) for _, config in self._launches]
        words = [
            word for pair in zip(self.functions, (config.getPtr() for config in configs), strict=True) for word in pair
        ]
        self._configured[stream] = struct.pack(f"<{len(words)}Q", *words), configs
        return self._configured[stream]


def refuse(answer: int) -> None:
    """Raises for what calls.Launches and calls.Planner answer but 0."""
    _check("launch" if answer > 0 else "tensor map", (driver().CUresult(abs(answer)),))


def entries(names: Sequence[str]) -> tuple[int, ...]:
    """The addresses of functions of the driver, named without their "cu"."""
    return tuple(_entry(f"cu{name}") for name in names)


def context(index: int) -> int:
    """The primary one of a visible GPU."""
    return int(_primary_context(index))


@functools.cache
def _entry(name: str) -> int:
    """The address of a function of the driver."""
    driver()
    address = ctypes.cast(getattr(ctypes.CDLL("libcuda.so.1"), name), ctypes.c_void_p).value
    assert address is not None
    return address


class _Graph:
    """Launches captured on a stream of their own, and replayed between two events."""

    def __init__(self, driver: ModuleType) -> None:
        self._driver = driver
        self._events = [_check("cuEventCreate", driver.cuEventCreate(0)) for _ in range(2)]
        kind = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = int(_check("cuStreamCreate", driver.cuStreamCreate(kind)))
        self._executable: Any = None

    def capture(self, work: Callable[[], object]) -> None:
        d = self._driver
        mode = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _check("cuStreamBeginCapture", d.cuStreamBeginCapture(self.stream, mode))
        try:
            work()
        finally:
            ended = d.cuStreamEndCapture(self.stream)
        graph = _check("cuStreamEndCapture", ended)
        self._executable = _check("cuGraphInstantiate", d.cuGraphInstantiate(graph, 0))
        _check("cuGraphDestroy", d.cuGraphDestroy(graph))

    def replay(self) -> float:
        """Seconds on the GPU."""
        d, (start, end) = self._driver, self._events
        _check("cuEventRecord", d.cuEventRecord(start, self.stream))
        _check("cuGraphLaunch", d.cuGraphLaunch(self._executable, self.stream))
        _check("cuEventRecord", d.cuEventRecord(end, self.stream))
        _check("timed launches", d.cuEventSynchronize(end), after_launch=True)
        return float(_check("cuEventElapsedTime", d.cuEventElapsedTime(start, end))) * 1e-3

    def close(self) -> None:
        if self._executable is not None:
            self._driver.cuGraphExecDestroy(self._executable)
        for event in self._events:
            self._driver.cuEventDestroy(event)
        self._driver.cuStreamDestroy(self.stream)


@functools.cache
def _ceilings(index: int) -> Ceilings:
    """Once a process: the box is what it is."""
    device = CudaDevice(index=index)
    try:
        source, target = (device.reserve(ceilings.COPY_BYTES, name) for name in ("source", "target"))
        copy = device.batch(lambda: _copied(target, source, device.stream))
        return ceilings.measured(copy, index, _uuid(index))
    finally:
        device.close()


def _copied(target: int, source: int, stream: int) -> None:
    _check("cuMemcpyDtoDAsync", driver().cuMemcpyDtoDAsync(target, source, ceilings.COPY_BYTES, stream))


def _uuid(index: int) -> str:
    d = driver()
    return str(uuid.UUID(bytes=bytes(_check("cuDeviceGetUuid", d.cuDeviceGetUuid(_gpu(index))).bytes)))


@functools.cache
def _clock(index: int) -> Callable[[], float | None]:
    """NVML counts GPUs otherwise than CUDA does, so the GPU is named by its UUID."""
    return sm_clock(f"GPU-{_uuid(index)}")


@functools.cache
def driver() -> ModuleType:
    """cuda.bindings.driver, initialised. DeviceError, which says what is missing, where there is no GPU to be had."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise DeviceError(f"cuda.bindings cannot be imported ({error}); {install('cuda')}") from error
    try:
        _check("cuInit", bindings.cuInit(0))
    except RuntimeError as error:  # the bindings' own, when they find no libcuda
        raise DeviceError(f"no CUDA driver: {error}") from error
    return bindings  # type: ignore[no-any-return]


def architecture(index: int = 0) -> str:
    """nvcc's name of a visible GPU with its own features, e.g. `sm_90a`."""
    major, minor = (_attribute(f"COMPUTE_CAPABILITY_{part}", index) for part in ("MAJOR", "MINOR"))
    return f"sm_{major}{minor}a"


def multiprocessors(index: int = 0) -> int:
    """How many a visible GPU has."""
    return _attribute("MULTIPROCESSOR_COUNT", index)


def zeros(nbytes: int, index: int = 0) -> int:
    """The address of so many zeros on a visible GPU, there until the process ends. Memory of the driver's own: no
    allocator knows of it, whatever pool it takes from, and no stream has to be waited for."""
    d, context = driver(), _primary_context(index)
    relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED  # another thread may be at a graph
    mode = _check("cuThreadExchangeStreamCaptureMode", d.cuThreadExchangeStreamCaptureMode(relaxed))
    _check("cuCtxPushCurrent", d.cuCtxPushCurrent(context))
    try:
        address = int(_check(f"allocation of {nbytes} bytes", d.cuMemAlloc(nbytes)))
        kind = d.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = _check("cuStreamCreate", d.cuStreamCreate(kind))
        _check("cuMemsetD8Async", d.cuMemsetD8Async(address, 0, nbytes, stream))
        _check("zeros", d.cuStreamSynchronize(stream), after_launch=True)
        _check("cuStreamDestroy", d.cuStreamDestroy(stream))
        return address
    finally:
        d.cuCtxPopCurrent()
        d.cuThreadExchangeStreamCaptureMode(mode)


def _attribute(name: str, index: int) -> int:
    attribute = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(name, driver().cuDeviceGetAttribute(attribute, _gpu(index))))


@functools.cache
def _gpu(index: int) -> Any:
    count = int(_check("cuDeviceGetCount", driver().cuDeviceGetCount()))
    if count == 0:
        raise DeviceError("the CUDA driver sees no GPU")
    if index >= count:
        raise DeviceError(f"the CUDA driver sees {count} GPUs, none of index {index}")
    return _check("cuDeviceGet", driver().cuDeviceGet(index))


@functools.cache
def _primary_context(index: int) -> Any:
    return _check("cuDevicePrimaryCtxRetain", driver().cuDevicePrimaryCtxRetain(_gpu(index)))


@functools.lru_cache(maxsize=64)
def _load(artifact: Path, index: int) -> Any:
    """Loads once a process and GPU, whose context is current: artefacts lie in a cache by content and never change."""
    try:
        image = artifact.read_bytes()
    except OSError as error:
        raise DeviceError(f"{artifact} cannot be read: {error.strerror}") from error
    return _check(f"{artifact.name} on {architecture(index)}", driver().cuModuleLoadData(image))


@functools.lru_cache(maxsize=256)
def _function(module: Hashable, entry: str, shared_bytes: int) -> Any:
    """The entry, allowed its dynamic shared memory."""
    d = driver()
    function = _check(f"entry {entry}", d.cuModuleGetFunction(module, entry.encode()), of_launch=True)
    attribute = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    what = f"{shared_bytes} bytes of shared memory for {entry}"
    _check(what, d.cuFuncSetAttribute(function, attribute, shared_bytes), of_launch=True)
    return function


def _check(what: str, answer: tuple[Any, ...], *, after_launch: bool = False, of_launch: bool = False) -> Any:
    """Its value, or values. An error seen only after a launch is the kernel's: the context does not survive it. One of
    ILLEGAL is the launch's own where what was asked for is `of_launch`."""
    status, *values = answer
    if int(status) == 0:
        return tuple(values) if len(values) > 1 else values[0] if values else None
    if after_launch:
        raise DeviceLostError(f"{what}: {status.name}")
    if of_launch and status.name in ILLEGAL:
        raise IllegalError(f"{what} refused: {status.name}")
    raise DeviceError(f"{what} refused: {status.name}")
