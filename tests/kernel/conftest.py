"""The kernel's headers are tested through a host compiler, its sources through nvcc."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fmha.harness.bench.shapes.launch_shapes import shape_of
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.kernel_side.variants import sm90_variant
from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests.kernel import sm90_rig

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kernel"

HostCompile = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def host_compile(tmp_path_factory: pytest.TempPathFactory) -> HostCompile:
    """Compiles a C++ program against the kernel's headers and runs it: a failed compilation is returned, not raised."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "a C++ compiler is one of the things the project assumes"

    def compile_and_run(source: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path_factory.mktemp("host")
        (folder / "program.cpp").write_text(source)
        command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror"]
        command += [f"-I{KERNEL / 'include'}", f"-I{KERNEL}", f"-I{KERNEL / 'sm100'}", "-o", "program", "program.cpp"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if built.returncode != 0:
            return built
        return subprocess.run([folder / "program"], capture_output=True, text=True, check=True)

    return compile_and_run


@pytest.fixture(scope="session")
def nvcc() -> str:
    return str(find_nvcc().path)


@pytest.fixture(scope="session", autouse=True)
def shared_ptx(tmp_path_factory: pytest.TempPathFactory, builds: Mapping[str, BuildResult]) -> None:
    """The workers of a run compile each kernel of sm_90a once."""
    base = tmp_path_factory.getbasetemp()
    sm90_rig.SHARED = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sm90"
    for head_dim, rows, kind in sm90_rig.KERNELS:
        name = sm90_variant(head_dim, rows, kind).name
        sm90_rig.BUILT[shape_of(head_dim, rows, kind)] = lambda name=name: Path(builds[name].ptx)
