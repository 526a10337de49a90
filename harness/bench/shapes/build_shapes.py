"""Compiles every shape that is tried: `python -m fmha.harness.bench.shapes.build_shapes FOLDER`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fmha.harness.bench.shapes.launch_shapes import BuildShape
from fmha.harness.bench.shapes.tried_variants import CANDIDATES
from fmha.harness.worker.compilers.nvcc import find_nvcc

KERNELS = Path(__file__).resolve().parents[3] / "kernel"
CUBIN = ("-gencode=arch=compute_90a,code=sm_90a", "-cubin", "-Xptxas=-v")
PTX = ("-arch=sm_90a", "-ptx")


def command(shape: BuildShape, target: Path, options: tuple[str, ...]) -> list[str]:
    """nvcc's, of the kernel of `shape` into `target`, with CUBIN or PTX."""
    words = [str(find_nvcc().path), "-std=c++17", "-O3", "-lineinfo", *options, "-o", str(target)]
    words += [f"-I{KERNELS / 'include'}", f"-I{KERNELS}", *(f"-D{define}" for define in shape.defines)]
    return [*words, str(KERNELS / "sm90" / "fmha_fwd.cu")]


def build_candidates(folder: Path, shapes: Mapping[str, BuildShape] = CANDIDATES) -> dict[str, str]:
    """FOLDER/shape.cubin of each, all at once, and what ptxas said of it by name; RuntimeError when one does not
    compile."""
    folder.mkdir(parents=True, exist_ok=True)
    running = {}
    for name, shape in shapes.items():
        words = command(shape, folder / f"{name}.cubin", CUBIN)
        running[name] = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = {name: process.communicate()[0] for name, process in running.items()}
    for name, process in running.items():
        if process.returncode != 0:
            raise RuntimeError(f"{name} does not compile\n{said[name]}")
    return {name: " ".join(line for line in text.splitlines() if _tells(line)) for name, text in said.items()}


def _tells(line: str) -> bool:
    """Of registers and spills, and warnings but for the one that every build has."""
    return "spill" in line or "Used" in line or ("C75" in line and "C7519" not in line)


if __name__ == "__main__":
    for name, text in build_candidates(Path(sys.argv[1])).items():
        print(f"{name}: {text}")
