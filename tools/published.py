"""What the timing model says of public kernels for a B200, beside what their author measured on one:
`python -m tools.published CHECKOUT`, of https://github.com/gau-nernst/learn-cuda.

02e_matmul_sm100 there has a matrix product in ten steps, from a first tcgen05.mma to persistent pairs of CTAs, and the
TFLOP/s that its author measured of each on a B200. The sources are compiled as they are, with an empty header in
torch's place, and launched as their host functions launch them. Nothing here was measured by us, and nothing was
fitted to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from fmha import emulator
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.see.call_time import seconds_of
from fmha.harness.see.lengths import numbers
from fmha.harness.worker.compilers.nvcc import find_nvcc

GPU: Final = "b200"
FOLDER: Final = "02e_matmul_sm100"
ROWS: Final = 128  # BLOCK_M
# In the place of torch's header, and what that one includes.
TORCH: Final = "#include <cuda_bf16.h>\n#include <tuple>\n#include <algorithm>\n#define TORCH_CHECK(...)\n"


@dataclass(frozen=True, slots=True)
class PublishedKernel:
    """As a host function of the sources launches it. `maps`: 8 columns a box without swizzle, "8" or in 3D "3D 8", or
    64 of 128 bytes, "64" and "3D 64"."""

    name: str
    file: str
    template: tuple[int | bool, ...]
    columns: int  # of a box of B
    depth: int  # of a stage, in K
    shared_bytes: int
    maps: str
    published: dict[int, float]  # TFLOP/s on a B200, by M = N = K
    ctas: int = 0  # of a persistent kernel
    pair: bool = False
    warps: int = 4


_STAGED = (128 + 128) * 64 * 2 * 7
_LAST = 7 * ((128 + 128) * 64 * 2 + 16) + 36
KERNELS: Final = (
    PublishedKernel("v1a", "matmul_v1", (256, 256, False), 256, 256, 384 * 256 * 2, "8", {4096: 255.73}),
    PublishedKernel("v1b", "matmul_v1", (256, 256, True), 256, 256, 384 * 256 * 2, "3D 8", {4096: 254.37}),
    PublishedKernel("v2a", "matmul_v2", (256, 256, False), 256, 256, 384 * 256 * 2, "64", {4096: 699.39}),
    PublishedKernel("v2b", "matmul_v2", (256, 256, True), 256, 256, 384 * 256 * 2, "3D 64", {4096: 721.02}),
    PublishedKernel("v3", "matmul_v3", (256, 128, 2), 256, 128, 384 * 128 * 2 * 2, "3D 64", {4096: 914.42}),
    PublishedKernel("v4", "matmul_v4", (128, 64, 7), 128, 64, _STAGED, "3D 64", {4096: 1053.61}),
    PublishedKernel("v5", "matmul_v5", (256, 64, 2, 7, False), 128, 64, _STAGED, "3D 64", {4096: 1169.65}, pair=True),
    PublishedKernel(
        "v6", "matmul_v6", (256, 64, 2, 7, False), 128, 64, _STAGED, "3D 64", {4096: 1273.32}, 148, True, 6
    ),
    PublishedKernel(
        "v7a",
        "matmul_v7",
        (256, 2, 7, False, False),
        128,
        64,
        _LAST,
        "3D 64",
        {2048: 930.34, 4096: 1293.38, 8192: 1283.26},
        148,
        True,
        6,
    ),
    PublishedKernel(
        "v7b",
        "matmul_v7",
        (256, 2, 7, False, False),
        128,
        64,
        _LAST,
        "3D 64",
        {2048: 930.19, 4096: 1316.16, 8192: 1238.74},
        128,
        True,
        6,
    ),
)


def compiled(checkout: Path, file: str, folder: Path) -> emulator.Module:
    """The PTX that nvcc makes of a source; CalledProcessError where it does not compile."""
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch" / "library.h").write_text(TORCH)
    ptx = folder / f"{file}.ptx"
    command = [
        str(find_nvcc().path),
        "-std=c++17",
        "-O3",
        "-arch=sm_100a",
        "--expt-relaxed-constexpr",
        "-w",
        "-ptx",
        f"-I{folder}",
        "-o",
        str(ptx),
    ]
    subprocess.run([*command, str(checkout / FOLDER / f"{file}.cu")], check=True)
    return emulator.load_ptx(ptx)


def entry_of(module: emulator.Module, template: Sequence[int | bool]) -> str:
    """The instance of the kernel's template, by how C++ spells its arguments."""
    mangled = "".join(f"Lb{value:d}E" if isinstance(value, bool) else f"Li{value}E" for value in template)
    (found,) = [entry for entry in module.entries if f"I{mangled}E" in entry]
    return found


def tensor_map(kernel: PublishedKernel, address: int, n: int, rows: int) -> bytes:
    """Of an operand of n rows and n columns, boxes of `rows` rows."""
    wide = 8 if kernel.maps.endswith("8") else 64
    swizzle = "none" if wide == 8 else "128B"
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    if kernel.maps.startswith("3D"):
        dims, strides, box = (wide, n, n // wide), (2 * n, 2 * wide), (wide, rows, kernel.depth // wide)
    else:
        dims, strides, box = (n, n), (2 * n,), (wide, rows)
    return emulator.encode_tiled(
        dtype="bf16", address=address, global_dim=dims, global_strides=strides, box_dim=box, swizzle=swizzle
    )


def timing(module: emulator.Module, kernel: PublishedKernel, n: int, gpu: str = GPU) -> LaunchTiming:
    """The recording of a product of n x n x n."""
    device = emulator.Device(checks=False, threads=1, timing=gpu, sampled=True)
    operands = []
    for k, name in enumerate("AB"):
        buffer = device.alloc(2 * n * n, name)
        device.write(buffer.address, numbers(n * n, k))
        operands.append(buffer.address)
    out = device.alloc(2 * n * n, "C")
    maps = [tensor_map(kernel, a, n, rows) for a, rows in zip(operands, (ROWS, kernel.columns), strict=True)]
    tiles = (n // ROWS) * (n // int(kernel.columns * (2 if kernel.pair else 1)))
    grid = min(kernel.ctas or tiles, tiles)
    args = [*maps, out.address, n, n, n, *((0, 0) if kernel.pair else ())]
    entry = entry_of(module, kernel.template)
    report = device.launch(module, entry, grid, 32 * kernel.warps, args, kernel.shared_bytes)
    assert report.timing is not None
    return report.timing


def modelled(module: emulator.Module, kernel: PublishedKernel, n: int) -> tuple[float, str]:
    """TFLOP/s of a product of n x n x n, and what bounds it."""
    said = timing(module, kernel, n).modelled()
    if said.forced:
        raise RuntimeError(f"{kernel.name}: the model could not follow {said.forced} waits")
    return 2 * n**3 / seconds_of(architecture(GPU), (said,)) * 1e-12, said.bound


def main() -> int:
    """Prints the model beside published rates of products."""
    parser = argparse.ArgumentParser(prog="python -m tools.published", description=__doc__)
    parser.add_argument("checkout", type=Path)
    given = parser.parse_args()
    found: list[tuple[int, float, float]] = []
    wide: list[tuple[int, float, float]] = []  # whose boxes have rows of 128 bytes
    print(f"{'kernel':6}  {'M=N=K':>5}  {'published':>9}  {'modelled':>8} TFLOP/s  error  bound")
    with tempfile.TemporaryDirectory(prefix="fmha-published-") as folder:
        modules = {file: compiled(given.checkout, file, Path(folder)) for file in {k.file for k in KERNELS}}
        for kernel in KERNELS:
            for n, published in kernel.published.items():
                rate, bound = modelled(modules[kernel.file], kernel, n)
                found.append((n, published, rate))
                if not kernel.maps.endswith("8"):
                    wide.append(found[-1])
                error = f"{rate / published - 1:+5.0%}"
                print(f"{kernel.name:6}  {n:5}  {published:9.0f}  {rate:8.0f}          {error}  {bound}", flush=True)
    for which, errors in (("published", found), ("of them with rows of 128 bytes", wide)):
        off = [abs(rate / published - 1) for _, published, rate in errors]
        print(f"{len(off)} {which}: mean error {sum(off) / len(off):.1%}, worst {max(off):.1%}")
    pairs = [(a, b) for a, b in combinations(found, 2) if a[0] == b[0]]
    right = sum((a[1] < b[1]) == (a[2] < b[2]) for a, b in pairs)
    print(f"{right} of {len(pairs)} pairs of one size in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
