"""The sm_90a kernels on the GPU of this machine, through cuda.bindings: build, tensor maps, launches.

Imports no torch, so that compute-sanitizer and ncu start quickly and see our launches only.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver
from numpy.typing import NDArray

from fmha.harness.bench.problem import Problem, map_shapes, pack
from fmha.harness.bench.shapes import Shape, combine_launch
from fmha.harness.worker.nvcc import find_nvcc
from fmha.harness.worker.params import COMBINE_THREADS, MAPS

KERNELS = Path(__file__).resolve().parents[2] / "kernel"


def ok(result: tuple[Any, ...]) -> Any:
    """What a driver call returned; RuntimeError with the driver's name of the error."""
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(driver.cuGetErrorName(result[0])[1]))
    return result[1] if len(result) == 2 else result[1:]


def initialise() -> None:
    """Makes the first GPU's primary context current: the one torch uses, too."""
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))


def build(sources: Mapping[str, tuple[str, Sequence[str]]], folder: Path) -> dict[str, str]:
    """Compiles name -> (source, defines) into `folder`/name.cubin, all at once. Returns ptxas's words by name."""
    folder.mkdir(parents=True, exist_ok=True)
    running = {}
    compiler = str(find_nvcc().path)
    for name, (source, defines) in sources.items():
        command = [compiler, "-std=c++17", "-O3", "-lineinfo", "-gencode=arch=compute_90a,code=sm_90a", "-cubin"]
        command += ["-Xptxas=-v", f"-I{KERNELS / 'include'}", f"-I{KERNELS}", *(f"-D{d}" for d in defines)]
        command += ["-o", str(folder / f"{name}.cubin"), str(KERNELS / "sm90" / source)]
        running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = {name: process.communicate()[0] for name, process in running.items()}
    for name, process in running.items():
        if process.returncode != 0:
            raise RuntimeError(f"{name} does not compile\n{said[name]}")
    return {
        name: " ".join(
            line
            for line in text.splitlines()
            if "spill" in line or "Used" in line or ("C75" in line and "C7519" not in line)
        )
        for name, text in said.items()
    }


@dataclass(frozen=True)
class Kernel:
    """A forward kernel and its shape."""

    function: Any
    combine: Mapping[str, Any]  # the combine kernels by their entries
    shape: Shape

    def most_clusters(self, cluster: tuple[int, int]) -> int:
        """Clusters of this size that the GPU holds at once."""
        config = _config((*cluster, 1), self.shape.threads, self.shape.shared_bytes, 0, cluster, True)
        return int(ok(driver.cuOccupancyMaxActiveClusters(self.function, config)))


def load_forward(cubin: Path, shape: Shape) -> Kernel:
    module = ok(driver.cuModuleLoadData(cubin.read_bytes()))
    function = ok(driver.cuModuleGetFunction(module, f"fmha_fwd_sm90_hd{shape.head_dim}".encode()))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ok(driver.cuFuncSetAttribute(function, attribute, shape.shared_bytes))
    entries = ("fmha_combine_sm90", "fmha_combine_sm90_many")
    return Kernel(function, {name: ok(driver.cuModuleGetFunction(module, name.encode())) for name in entries}, shape)


def tensor_map(address: int, dims: Sequence[int], box: Sequence[int]) -> bytes:
    """A bf16 map of a contiguous tensor, 128-byte swizzle."""
    strides = [math.prod(dims[: i + 1]) * 2 for i in range(len(dims) - 1)]
    encoded = ok(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(dims),
            address,
            [driver.cuuint64_t(d) for d in dims],
            [driver.cuuint64_t(s) for s in strides],
            [driver.cuuint32_t(b) for b in box],
            [driver.cuuint32_t(1) for _ in dims],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return b"".join(int(word).to_bytes(8, "little") for word in encoded.opaque)


def _config(
    grid: tuple[int, int, int], threads: int, shared: int, stream: int, cluster: tuple[int, int], overlaps: bool
) -> Any:
    """`overlaps`: may start while the grid before it ends, as kernel/sm90/launch.h allows."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = shared, stream
    attributes = []
    if cluster != (1, 1):
        dimension = driver.CUlaunchAttribute()
        dimension.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dimension.value.clusterDim.x, dimension.value.clusterDim.y = cluster
        dimension.value.clusterDim.z = 1
        attributes.append(dimension)
    if overlaps:
        serial = driver.CUlaunchAttribute()
        serial.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        serial.value.programmaticStreamSerializationAllowed = 1
        attributes.append(serial)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


@dataclass
class Launch:
    """Everything of one call but the stream; prepared once, so that a repetition costs two driver calls at most."""

    kernel: Kernel
    problem: Problem
    params: tuple[bytes, bytes]  # of the forward and of the combine kernel
    overlaps: bool = True  # the forward kernel the grid before it; combine does in any case

    def __post_init__(self) -> None:
        self._keep = [_aligned(params) for params in self.params]
        self._arguments = [ctypes.addressof(pointers) for _, pointers in self._keep]
        self._configs: dict[int, tuple[Any, Any]] = {}

    def __call__(self, stream: int = 0) -> None:
        if stream not in self._configs:
            self._configs[stream] = self._prepare(stream)
        forward, combine = self._configs[stream]
        ok(driver.cuLaunchKernelEx(forward, self.kernel.function, self._arguments[0], 0))
        if combine is not None:
            ok(driver.cuLaunchKernelEx(combine, self._combine, self._arguments[1], 0))

    def _prepare(self, stream: int) -> tuple[Any, Any]:
        p, shape = self.problem, self.kernel.shape
        forward = _config(shape.grid(p), shape.threads, shape.shared_bytes, stream, p.cluster, self.overlaps)
        if p.partials == 1:
            return forward, None
        entry, grid = combine_launch(p)
        self._combine = self.kernel.combine[entry]
        return forward, _config(grid, COMBINE_THREADS, 0, stream, (1, 1), True)


def _aligned(params: bytes) -> tuple[Any, Any]:
    """The struct at its alignment of 64, and the array of one pointer to it that a launch takes."""
    raw = ctypes.create_string_buffer(len(params) + 64)
    start = -(-ctypes.addressof(raw) // 64) * 64
    ctypes.memmove(start, params, len(params))
    return raw, (ctypes.c_void_p * 1)(start)


def prepare(kernel: Kernel, p: Problem, pointers: Mapping[str, int], overlaps: bool = True) -> Launch:
    """A launch over device addresses by tensor name: inputs, o and what statistics and partials there are."""
    maps = {
        name: tensor_map(pointers[name], dims, box)
        for name, (dims, box) in map_shapes(p, kernel.shape.rows, kernel.shape.keys).items()
        if name in pointers
    }
    rest = {name: address for name, address in pointers.items() if name not in MAPS}
    return Launch(kernel, p, (pack(p, p.splits, maps, rest), pack(p, p.partials, maps, rest)), overlaps)


def output_sizes(p: Problem) -> dict[str, int]:
    """Bytes of every output and partial result."""
    rows = p.batch * p.t * p.heads
    sizes = {"o": rows * p.head_dim * (2 if p.bf16 else 4)}
    sizes |= dict.fromkeys(("row_max", "row_sum", "lse"), rows * 4)
    if p.partials > 1:
        sizes |= {"partial_o": p.partials * rows * p.head_dim * 4}
        sizes |= dict.fromkeys(("partial_max", "partial_sum"), p.partials * rows * 4)
    return sizes


def run_once(kernel: Kernel, p: Problem, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Uploads, poisons the outputs, launches, downloads, frees."""
    pointers = {}
    for name, data in tensors.items():
        pointers[name] = int(ok(driver.cuMemAlloc(data.nbytes)))
        ok(driver.cuMemcpyHtoD(pointers[name], np.ascontiguousarray(data), data.nbytes))
    sizes = output_sizes(p)
    for name, nbytes in sizes.items():
        pointers[name] = int(ok(driver.cuMemAlloc(nbytes)))
        ok(driver.cuMemsetD32(pointers[name], 0x7FEDBEEF, nbytes // 4))
    pointers["drawn"] = int(ok(driver.cuMemAlloc(4)))
    ok(driver.cuMemsetD32(pointers["drawn"], 0, 1))
    prepare(kernel, p, pointers)()
    ok(driver.cuCtxSynchronize())
    out = {}
    rows = (p.batch, p.t, p.heads)
    for name in ("o", "row_max", "row_sum", "lse"):
        dtype = np.uint16 if name == "o" and p.bf16 else np.float32
        out[name] = np.empty((*rows, p.head_dim) if name == "o" else rows, dtype)
        ok(driver.cuMemcpyDtoH(out[name], pointers[name], out[name].nbytes))
    for address in pointers.values():
        ok(driver.cuMemFree(address))
    return out
