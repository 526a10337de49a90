"""ThunderKittens' educational products: whole programs, built as its Makefile builds them but for the place of PTX.

A program multiplies on the host's orders: a reference kernel, two products to warm up, and the one that is timed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from fmha.emulator import programs
from fmha.emulator.timing.launch_time import Modelled
from fmha.harness.worker.compilers.nvcc import find_nvcc

FLAGS: Final = (
    *("-std=c++20", "-O3", "--use_fast_math", "-DNDEBUG", "-DKITTENS_BLACKWELL", "-w", "-cudart", "shared"),
    *("--expt-extended-lambda", "--expt-relaxed-constexpr", "-forward-unknown-to-host-compiler"),
    *("-gencode", "arch=compute_100a,code=[sm_100a,compute_100a]"),
)
DRIVER: Final = 'extern "C" { int cuTensorMapEncodeTiled() { return 1; } int cuGetErrorString() { return 1; } }\n'


def build(checkout: Path, folder: Path, level: str) -> Path:
    """The program of `level`, "level_06" to "level_09"; CalledProcessError where it does not compile."""
    target = folder / level
    if not target.exists():
        source = checkout / "kernels/gemm/educational_b200" / f"{level}.cu"
        headers = (f"-I{checkout / 'include'}", f"-I{checkout / 'prototype'}")
        nvcc = str(find_nvcc().path)
        driver = folder / "libcuda.so"  # only to link with: the emulator's driver comes in its place
        driver.with_suffix(".cu").write_text(DRIVER)
        link = ("-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-Xlinker", "-soname=libcuda.so.1")
        subprocess.run([nvcc, *link, str(driver.with_suffix(".cu")), "-o", str(driver)], check=True)
        command = [nvcc, *FLAGS, *headers, str(source), f"-L{folder}", "-lcuda", "-o", str(target)]
        subprocess.run(command, check=True, cwd=source.parent)
    return target


def modelled(program: Path, gpu: str) -> Modelled:
    """The last launch of a program, which is the one that it times."""
    options = programs.Options("sm_100a", timing="sampled", timed_as=gpu)
    launches = programs.run_program((str(program),), options).seen.launches
    said = launches[-1].modelled
    assert said is not None
    return said
