"""Runs every probe on the GPU through the CUDA driver: python -m tests.probes.run_gpu CUBINS OUT [SOURCE...]

Needs NumPy and libcuda only. A kernel that faults loses its context, so each run of cases has a process of its own and
the next one starts behind the case that failed.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.probes.case import Arg, Array, Case, In, Out, Tensor, outputs
from tests.probes.catalogue import SOURCES, cases
from tests.probes.store import Result, save

_DTYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
_SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Driver:
    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.modules: dict[Path, ctypes.c_void_p] = {}

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def function(self, cubin: Path, entry: str) -> ctypes.c_void_p:
        if cubin not in self.modules:
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
            self.modules[cubin] = module
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[cubin], entry.encode())
        return function

    def upload(self, data: Array) -> int:
        pointer = ctypes.c_uint64()
        data = np.ascontiguousarray(data)
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(data.nbytes, 16)))
        self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return pointer.value

    def download(self, address: int, nbytes: int) -> Array:
        out = np.zeros(nbytes, np.uint8)
        self.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
        )
        return out

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def tensor_map(self, t: Tensor, address: int) -> bytes:
        rank = len(t.dims)
        raw = ctypes.create_string_buffer(128 + 64)
        aligned = (ctypes.addressof(raw) + 63) & ~63
        u32 = ctypes.c_uint32 * rank
        tensor = (
            ctypes.c_void_p(aligned),
            _DTYPES[t.dtype],
            ctypes.c_uint32(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*t.dims),
            (ctypes.c_uint64 * max(rank - 1, 1))(*t.strides),
        )
        modes = (u32(*t.element_strides), 0, _SWIZZLES[t.swizzle], 0, {"none": 0, "nan": 1}[t.oob])
        if t.im2col is None:
            self.call("cuTensorMapEncodeTiled", *tensor, u32(*t.box), *modes)
        else:
            corners = [(ctypes.c_int * len(c))(*c) for c in (t.im2col.lower_corner, t.im2col.upper_corner)]
            sizes = (ctypes.c_uint32(t.im2col.channels), ctypes.c_uint32(t.im2col.pixels))
            self.call("cuTensorMapEncodeIm2col", *tensor, *corners, *sizes, *modes)
        return ctypes.string_at(aligned, 128)


def _run(driver: Driver, case: Case, arguments: Sequence[Arg], cubin: Path) -> list[Array]:
    function = driver.function(cubin, case.entry)
    addresses: dict[int, int] = {}
    keep: list[Any] = []
    for i, a in enumerate(arguments):
        if isinstance(a, In | Out | Tensor):
            addresses[i] = driver.upload(a.data)
        if isinstance(a, Tensor):
            keep.append(ctypes.create_string_buffer(driver.tensor_map(a, addresses[i]), 128))
        elif isinstance(a, In | Out):
            keep.append(ctypes.c_uint64(addresses[i]))
        else:
            keep.append(ctypes.create_string_buffer(a, len(a)) if isinstance(a, bytes) else ctypes.c_uint32(a))
    values = (ctypes.c_void_p * len(keep))(*(ctypes.addressof(x) for x in keep))
    driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, case.shared)
    grid = case.grid
    if arguments is case.dense:
        grid = (arguments[0].data.size // case.block[0], 1, 1)
    how = (*grid, *case.block, case.shared, None, values)
    if case.cooperative:
        driver.call("cuLaunchCooperativeKernel", function, *how)
    else:
        driver.call("cuLaunchKernel", function, *how, None)
    driver.call("cuCtxSynchronize")
    found = [driver.download(addresses[i], arguments[i].data.nbytes) for i in outputs(tuple(arguments))]  # type: ignore[union-attr]
    for address in addresses.values():
        driver.free(address)
    return found


def _child(pipe: Connection, source: str, first: int, cubins: Path) -> None:
    driver = Driver()
    for case in cases(source)[first:]:
        cubin = cubins / f"{case.source}.cubin"
        try:
            pipe.send((case.name, Result(_run(driver, case, case.args, cubin))))
            if case.dense:
                pipe.send((case.name + "/dense", Result(_run(driver, case, case.dense, cubin))))
        except RuntimeError as error:
            pipe.send((case.name, Result([], str(error))))
            break
    pipe.close()


def run_source(source: str, cubins: Path) -> dict[str, Result]:
    results: dict[str, Result] = {}
    context = multiprocessing.get_context("spawn")
    total = len(cases(source))
    done = 0
    while done < total:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, source, done, cubins))
        child.start()
        theirs.close()
        before = done
        try:
            while ours.poll(60):
                name, result = ours.recv()
                results[name] = result
                done += not name.endswith("/dense")
        except EOFError:
            pass
        child.kill()
        child.join()
        if done == before:
            raise RuntimeError(f"{source}: no case ran")
    return results


def provenance() -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return {"gpu": name, "driver": driver, "compiled_for": "sm_90a"}


def main(cubins: Path, out: Path, sources: list[str]) -> None:
    start = time.monotonic()
    results: dict[str, Result] = {}
    for source in sources or SOURCES:
        results |= run_source(source, cubins)
        failed = [(n, r.error) for n, r in results.items() if r.error]
        print(
            source,
            len(results),
            "results,",
            len(failed),
            "failed,",
            round(time.monotonic() - start, 1),
            "s",
            flush=True,
        )
        print(json.dumps(failed[:8]), flush=True)
    origin = provenance()
    dense = {n: r for n, r in results.items() if n.endswith("/dense")}
    save(out / "gpu.npz", {n: r for n, r in results.items() if n not in dense}, origin)
    save(out / "gpu_dense.npz", dense, origin)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
