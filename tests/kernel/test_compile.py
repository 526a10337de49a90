"""What nvcc makes of the kernel: clean, spill-free, and one C entry with one parameter struct."""

import re
import subprocess
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[2] / "kernel"
FLAGS = ["-DFMHA_HEAD_DIM=64", "-arch=sm_100a", "-std=c++17", "-O3", "-lineinfo", f"-I{KERNEL / 'include'}"]

pytestmark = pytest.mark.nvcc


def compile_kernel(nvcc: str, *arguments: str | Path) -> str:
    command = [nvcc, *FLAGS, *arguments, KERNEL / "sm100" / "fmha_fwd.cu"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_cubin_has_no_spills_and_no_stack(nvcc: str, tmp_path: Path) -> None:
    log = compile_kernel(nvcc, "-cubin", "-Werror", "all-warnings", "-Xptxas", "-v", "-o", tmp_path / "kernel.cubin")
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
    assert "fmha_fwd_sm100_hd64_ptmem" in log


def test_ptx_entry(nvcc: str, tmp_path: Path) -> None:
    compile_kernel(nvcc, "-ptx", "-o", tmp_path / "kernel.ptx")
    ptx = (tmp_path / "kernel.ptx").read_text()
    assert re.findall(r"\.entry (\w+)\(", ptx) == ["fmha_fwd_sm100_hd64_ptmem"]
    # sizeof(FmhaParams): five tensor maps, twelve pointers, twelve words, to a multiple of 64
    assert re.findall(r"\.param (\.align \d+ \.b8) \w+\[(\d+)\]", ptx) == [(".align 64 .b8", "832")]
    assert ".maxntid 192" in ptx
    assert not re.search(r"\.func|\.local|\bcall\b", ptx), "a wrapper was not inlined, or an array left the registers"
