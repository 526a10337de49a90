"""Runs the sm_90a kernels on the emulator."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import math
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import Device, Finding, Module, encode_tiled, load_ptx
from fmha.harness.bench.shapes.launch_shapes import SHAPES, BuildShape, combine_launch, shape_of
from fmha.harness.bench.shapes.problem import Problem, map_shapes, pack
from fmha.harness.kernel_side.choice import kinds_of
from fmha.harness.kernel_side.params import COMBINE_THREADS, MAPS, SM90_KERNELS, SM90_KINDS
from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests.compiled import nvcc

ROOT = Path(__file__).parents[2]
SHARED: Path | None = None  # set by a test run
BUILT: dict[BuildShape, Callable[[], Path]] = {}  # PTX of what the harness launches, as a test run builds it
POISON = np.uint32(0x7FEDBEEF)
# head_dim, FMHA_ROWS and kind of what the harness launches.
KERNELS = [(*kernel, kind) for kind in SM90_KINDS for kernel in SM90_KERNELS if kind in kinds_of(kernel[1])]


def compile_for(shape: BuildShape, target: Path) -> None:
    """Compiles the kernel to PTX, a shape of launch.h as the harness does."""
    kernel = next((kernel for kernel in KERNELS if shape_of(*kernel) == shape), None)
    defines = shape.defines
    if kernel:
        head_dim, rows, kind = kernel
        defines = (f"FMHA_HEAD_DIM={head_dim}", f"FMHA_ROWS={rows}", f"FMHA_KIND={SM90_KINDS.index(kind)}")
    flags = ["-std=c++17", "-O3", "-lineinfo", "-arch=sm_90a", "-ptx"]
    flags += [f"-I{ROOT / 'kernel/include'}", f"-I{ROOT / 'kernel'}", *(f"-D{define}" for define in defines)]
    nvcc(target, ROOT / "kernel/sm90/fmha_fwd.cu", *flags)


def assembled(shape: BuildShape, folder: Path) -> str:
    """What ptxas says of the kernel, the very PTX that runs here."""
    ptx = folder / "kernel.ptx"
    ptx.write_text(_ptx(shape))
    command = [str(find_nvcc().path), "-O3", "-lineinfo", "-arch=sm_90a", "-cubin", "-Xptxas=-v", "-o"]
    command += [str(folder / "kernel.cubin"), str(ptx)]
    return subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr


@functools.cache
def module(shape: BuildShape, edit: tuple[str, str] | None = None) -> Module:
    """The kernel of `shape`; with `edit`, text in its PTX and what takes its place."""
    text = _ptx(shape)
    if edit:
        assert edit[0] in text
        text = text.replace(*edit)
    return load_ptx(text)


def _ptx(shape: BuildShape) -> str:
    """What nvcc makes of the kernel: once for all workers of a run, which have a folder in common."""
    if built := BUILT.get(shape):
        return built().read_text()
    if SHARED is None:
        with tempfile.TemporaryDirectory() as folder:
            compile_for(shape, Path(folder) / "kernel.ptx")
            return (Path(folder) / "kernel.ptx").read_text()
    SHARED.mkdir(exist_ok=True)
    ptx = SHARED / f"{hashlib.sha256(repr(shape).encode()).hexdigest()}.ptx"
    with ptx.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ptx.exists():
            part = ptx.with_suffix(".part")
            compile_for(shape, part)
            part.rename(ptx)
    return ptx.read_text()


def run(
    p: Problem,
    x: dict[str, NDArray[Any]],
    seed: int = 0,
    schedule: Any = "realistic",
    shape: BuildShape | None = None,
    edit: tuple[str, str] | None = None,
    kernel: Module | None = None,
) -> tuple[dict[str, NDArray[Any]], list[Finding]]:
    """Outputs and findings; everything is poisoned before the launch. `shape` defaults to the head_dim's
    own; `edit` as for `module`, which is asked for one unless there is a `kernel`."""
    shape = shape or SHAPES[p.head_dim]
    device = Device(seed=seed, schedule=schedule, max_instructions=20_000_000)
    address = {}
    for name, data in x.items():
        address[name] = device.alloc(data.nbytes, name).address
        device.write(address[name], data)
    each = (p.batch, p.t, p.heads)
    sizes = {"o": (*each, p.head_dim), "row_max": each, "row_sum": each, "lse": each}
    if p.splits > 1:
        sizes |= {"partial_o": (p.splits, *each, p.head_dim), "partial_max": (p.splits, *each)}
        sizes |= {"partial_sum": (p.splits, *each)}
    for name, size in sizes.items():
        words = math.prod(size) // (2 if name == "o" and p.bf16 else 1)
        address[name] = device.alloc(words * 4, name).address
        device.write(address[name], np.full(words, POISON))
    address["drawn"] = device.alloc(4, "drawn").address
    device.write(address["drawn"], np.zeros(1, np.uint32))
    maps = {}
    for name, (dims, box) in map_shapes(p, shape.rows, shape.keys).items():
        if name in address:
            strides = tuple(int(np.prod(dims[: i + 1])) * 2 for i in range(len(dims) - 1))
            ones = (1,) * len(dims)
            maps[name] = encode_tiled(
                dtype="bf16", address=address[name], global_dim=dims, global_strides=strides, box_dim=box,
                element_strides=ones, swizzle="128B",
            )  # fmt: skip
    pointers = {n: a for n, a in address.items() if n not in MAPS}
    params = pack(p, maps, pointers)
    kernel = kernel or module(shape, edit)
    findings: list[Finding] = []
    findings += device.launch(
        kernel, f"fmha_fwd_sm90_hd{p.head_dim}", shape.grid(p),
        (shape.threads, 1, 1), [params], shape.shared_bytes,
    ).findings  # fmt: skip
    if p.splits > 1:
        findings += device.launch(kernel, *combine_launch(p), (COMBINE_THREADS, 1, 1), [params]).findings
    assert not device.read(address["drawn"], 4).any()  # as it was before
    out = {}
    for name in ("o", "row_max", "row_sum", "lse"):
        dtype = np.uint16 if name == "o" and p.bf16 else np.float32
        raw = device.read(address[name], math.prod(sizes[name]) * np.dtype(dtype).itemsize)
        out[name] = raw.view(dtype).reshape(sizes[name])
    return out, findings
