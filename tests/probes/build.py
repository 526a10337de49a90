"""nvcc: each .cu to PTX, and ptxas: that PTX to a cubin. What the GPU runs is made from what the emulator runs.

python -m tests.probes.build FOLDER [SOURCE...]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests import compiled
from tests.probes import carries, masks, memory, nans, programs, scalar, video
from tests.probes.catalogue import SOURCES

HERE = Path(__file__).resolve().parent
_WRITTEN = {  # PTX, not made from CUDA
    "memory": memory.ptx,
    "programs": programs.ptx,
    "masks": masks.ptx,
    "carries": carries.ptx,
    "video": video.ptx,
}


_MADE = {"scalar": scalar.source, "nans": nans.source}  # CUDA, of tables


def _nvcc(*arguments: str | Path) -> None:
    nvcc = find_nvcc().path
    done = subprocess.run([nvcc, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvcc {' '.join(map(str, arguments))}:\n{done.stderr}{done.stdout}")


def build_ptx(source: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    ptx = folder / f"{source}.ptx"
    if source in _WRITTEN:
        ptx.write_text(_WRITTEN[source]())
        return ptx
    cuda = HERE / f"{source}.cu"
    if source in _MADE:
        cuda = folder / f"{source}.cu"
        cuda.write_text(_MADE[source]())
    return compiled.nvcc(ptx, cuda, "-arch=compute_90a", "-std=c++17", "-ptx")


def build_cubin(ptx: Path) -> Path:
    """What ptxas makes of it. Of the random programs without optimisation: with it, some are no longer what was written
    (15 of 600 differ from ptxas's own -O0, for one a predicate that a loop changes is changed once too often)."""
    cubin = ptx.with_suffix(".cubin")
    level = "-O0" if ptx.stem == "programs" else "-O3"
    _nvcc("-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", level, "-cubin", "-o", cubin, ptx)
    return cubin


if __name__ == "__main__":
    for name in sys.argv[2:] or SOURCES:
        print(build_cubin(build_ptx(name, Path(sys.argv[1]))))
