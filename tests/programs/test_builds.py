"""How a program has to be built: what is told of one that cannot be run, and which PTX is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.emulator import FatbinError
from fmha.emulator.programs.images import ptx_for
from tests.programs.program_rig import PTX_OF, Emulate, built

SOURCE = """#include <cstdio>
__global__ void tell(int* out) {
#ifdef __CUDA_ARCH__
    *out = __CUDA_ARCH__;
#endif
}
int main() {
    int *device, host = 0;
    if (cudaMalloc(&device, 4)) return 1;
    tell<<<1, 1>>>(device);
    const cudaError_t launched = cudaGetLastError();
    if (cudaMemset(device, 0, launched ? 4 : 0)) return 1;
    if (cudaMemcpy(&host, device, 4, cudaMemcpyDeviceToHost)) return 1;
    std::printf("%s %d\\n", cudaGetErrorName(launched), host);
    return host ? 0 : 2;
}
"""
HOW = "nvcc -cudart shared -gencode arch=compute_100a,code=[sm_100a,compute_100a]"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "tell.cu").write_text(SOURCE)
    return tmp_path / "tell.cu"


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-cudart", "static", PTX_OF.format("80")), "the CUDA runtime is linked into it"),
        (("-gencode=arch=compute_80,code=sm_80",), "no PTX inside, only machine code"),
    ],
)
def test_one_line_says_how_to_build_it(source: Path, emulate: Emulate, flags: tuple[str, ...], why: str) -> None:
    program = built(source.parent, source, *flags)
    told = emulate(program)
    assert told.code == 2
    assert told.err == f"fmha: {program}: {why}: build it with {HOW}\n"
    assert told.out == []


@pytest.mark.nvcc
def test_what_is_compiled_apart_is_linked_when_it_is_loaded(source: Path, emulate: Emulate) -> None:
    flags = "-rdc=true", "-gencode=arch=compute_80,code=[sm_80,compute_80]"
    assert emulate(built(source.parent, source, *flags)).out[0] == "cudaSuccess 800"


ONE_UNIT = """#include <cstdio>
extern __device__ int scale;
extern __constant__ int offset;
__device__ int of_the_other(int);
__global__ void of_the_other_unit(int* out, int value);
__global__ void start(int* out) {
    printf("one, %d and %d\\n", scale, offset);
    of_the_other_unit<<<2, 1, 100000>>>(out, of_the_other(5));
}
int main() {
    int *device, host[2] = {};
    cudaMalloc(&device, sizeof host);
    cudaFuncSetAttribute(of_the_other_unit, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    start<<<1, 1>>>(device);
    cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    std::printf("%d %d %s\\n", host[0], host[1], cudaGetErrorName(cudaGetLastError()));
}
"""
OTHER_UNIT = """#include <cstdio>
__device__ int scale = 7;
__constant__ int offset = 2;
__device__ int of_the_other(int n) { return n * scale; }
__global__ void of_the_other_unit(int* out, int value) {
    printf("other, %d\\n", value);
    out[blockIdx.x] = value + offset + blockIdx.x;
}
"""


@pytest.mark.nvcc
def test_units_call_and_launch_what_others_define(tmp_path: Path, emulate: Emulate) -> None:
    for name, text in (("one.cu", ONE_UNIT), ("other.cu", OTHER_UNIT)):
        (tmp_path / name).write_text(text)
    flags = "-rdc=true", PTX_OF.format("90"), "-gencode=arch=compute_90,code=sm_90", str(tmp_path / "other.cu")
    program = built(tmp_path, tmp_path / "one.cu", *flags, "-lcudadevrt")
    told = emulate(program)
    assert told.out[:4] == ["one, 7 and 2", "other, 35", "other, 35", "37 38 cudaSuccess"]
    assert told.code == 0, told.err


@pytest.mark.nvcc
def test_the_newest_ptx_that_runs_is_taken(source: Path, emulate: Emulate) -> None:
    program = built(source.parent, source, *(PTX_OF.format(arch) for arch in ("80", "90a", "100")))
    assert emulate(program).out[0] == "cudaSuccess 1000"
    assert emulate(program, options=("--arch", "sm_90a")).out[0] == "cudaSuccess 900"


@pytest.mark.nvcc
def test_ptx_for_other_gpus_alone_is_told(source: Path, emulate: Emulate) -> None:
    program = built(source.parent, source, PTX_OF.format("90a"))
    told = emulate(program)
    assert told.err.startswith("fmha: its PTX is for sm_90a, none of which runs on sm_100a; compile it with: nvcc")
    assert told.out[0] == "cudaErrorNoKernelImageForDevice 0"
    assert told.out[-1].startswith("FAIL: 0 launches")


def test_a_file_that_is_no_program(emulate: Emulate, tmp_path: Path) -> None:
    told = emulate(tmp_path / "none")
    assert (told.code, told.err) == (2, f"fmha: {tmp_path / 'none'}: no program\n")
    assert emulate("true", options=("--arch", "sm_80")).code == 2
    idle = emulate("true", options=("--schedules", "2"))
    assert (idle.code, idle.out[-1]) == (4, "NOTHING LAUNCHED: 0 launches, 0 warp instructions, 0 hazards")
    other = tmp_path / "text"
    other.write_bytes(b"\0\1\2")
    other.chmod(0o755)
    assert emulate(other).code == 2


@pytest.mark.parametrize(
    ("targets", "arch", "taken"),
    [
        (("80", "90a", "100"), 100, "100"),
        (("80", "90a", "100"), 90, "90a"),
        (("90", "90a"), 90, "90a"),
        (("90", "90a"), 100, "90"),
        (("100", "100f", "100a"), 100, "100a"),
        (("100", "100f", "103f"), 100, "100f"),
        (("75",), 100, "75"),
        (("90a", "103", "120a"), 100, None),
    ],
)
def test_targets(monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...], arch: int, taken: str | None) -> None:
    from fmha.emulator.fatbin import Embedded
    from fmha.emulator.programs import images

    texts = [f".version 9.0\n.target sm_{target}\n" for target in targets]
    monkeypatch.setattr(images, "embedded_ptx", lambda data: [Embedded(0, text) for text in texts])
    if taken is None:
        with pytest.raises(FatbinError, match=f"none of which runs on sm_{arch}a"):
            ptx_for(b"\x7fELF", arch)
    else:
        assert f".target sm_{taken}\n" in ptx_for(b"\x7fELF", arch)
