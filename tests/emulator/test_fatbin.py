"""PTX embedded in what nvcc makes: objects, fat binaries, executables, packed in every way; and what holds none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha.emulator import Device, FatbinError, load_ptx
from fmha.emulator.fatbin import embedded_ptx, is_binary
from tests.compiled import nvcc

pytestmark = pytest.mark.nvcc

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, float a) { y[threadIdx.x] = a * x[threadIdx.x]; }
"""
BOTH = "arch=compute_100a,code=[sm_100a,compute_100a]"


def compile_to(folder: Path, name: str, *options: str) -> Path:
    source = folder / "kernel.cu"
    source.write_text(SOURCE)
    return nvcc(folder / name, source, *options)


def runs(path: Path, arch: int | None = None) -> bool:
    device = Device()
    x, y = device.alloc(128, "x"), device.alloc(128, "y")
    device.write(x.address, np.arange(32, dtype=np.float32))
    module = load_ptx(path, arch)
    assert device.launch(module, "scale", (1, 1, 1), (32, 1, 1), [x.address, y.address, 3.0]).ok
    got = device.read(y.address, 128).view(np.float32)
    return bool((got == 3 * np.arange(32)).all())


@pytest.mark.parametrize("mode", ["none", "speed", "size", "balance"])
def test_an_object_however_it_is_packed(tmp_path: Path, mode: str) -> None:
    assert runs(compile_to(tmp_path, "kernel.o", "-c", "-gencode", BOTH, f"-compress-mode={mode}"))


def test_a_fat_binary_and_a_choice_between_targets(tmp_path: Path) -> None:
    assert runs(compile_to(tmp_path, "one.fatbin", "-fatbin", "-gencode", BOTH))
    hopper = ("-gencode", "arch=compute_90a,code=compute_90a")
    two = compile_to(tmp_path, "two.fatbin", "-fatbin", "-gencode", BOTH, *hopper)
    with pytest.raises(FatbinError, match=r"inside: compute_(100|90), compute_(100|90)\); pass arch"):
        load_ptx(two)
    assert load_ptx(two, 90).target == "sm_90a"
    assert runs(two, 100)


def test_machine_code_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    cubin = compile_to(tmp_path, "kernel.cubin", "-cubin", "-arch=sm_100a")
    with pytest.raises(FatbinError, match=r"a cubin: .* no PTX inside; cuobjdump -ptx FILE"):
        load_ptx(cubin)
    sass = compile_to(tmp_path, "kernel.o", "-c", "-gencode", "arch=compute_100a,code=sm_100a")
    with pytest.raises(FatbinError, match="no PTX inside, only machine code; cuobjdump -ptx FILE"):
        load_ptx(sass)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = compile_to(tmp_path, "kernel.fatbin", "-fatbin", "-gencode", BOTH).read_bytes()
    assert is_binary(whole)
    assert not is_binary(b".version 9.0")
    for size in (6, 20, 100, len(whole) // 2, len(whole) - 8):
        with pytest.raises(FatbinError, match=r"cut short|another layout"):
            embedded_ptx(whole[:size])
    packed = whole.rindex(b"\x28\xb5\x2f\xfd")  # Zstandard's magic number
    damaged = bytearray(whole)
    damaged[packed + 8 : packed + 24] = bytes(16)
    with pytest.raises(FatbinError, match=r"damaged|packed"):
        embedded_ptx(bytes(damaged))
    for size in (5, 40, 70):
        with pytest.raises(FatbinError, match=r"cut short|64-bit"):
            embedded_ptx(b"\x7fELF\x02\x01\x01".ljust(size, b"\x01")[:size])
