"""GEMMs compiled by nvcc: ldmatrix, mma.sync and cp.async; TMA, mbarriers and wgmma. Right, clean; seen when broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import SCHEDULES, Schedule
from fmha.emulator.launch_report import Report
from tests.compiled import nvcc
from tests.emulator import matrix_fragments as fr

KERNELS = Path(__file__).parents[1] / "kernels"
RNG = np.random.default_rng(17)
pytestmark = pytest.mark.nvcc


def _compile(name: str, arch: str, folder: Path, *flags: str) -> emulator.Module:
    source = KERNELS / f"{name}.cu"
    return emulator.load_ptx(nvcc(folder / f"{name}.ptx", source, "-ptx", f"-arch={arch}", f"-I{folder}", *flags))


def _matrix(rows: int, columns: int) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
    """Small integers, exact in bf16 and in every sum."""
    values = RNG.integers(-4, 5, (rows, columns)).astype(np.float64)
    return fr.to_bf16(values), values


def _rules(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


# mma.sync

M, N, K = 128, 64, 128


def _run_mma(module: emulator.Module, schedule: Schedule = "realistic") -> tuple[set[str], bool]:
    device = emulator.Device(schedule=schedule, seed=4)
    (raw_a, a), (raw_b, b) = _matrix(M, K), _matrix(K, N)
    da, db, dc = device.alloc(raw_a.nbytes, "a"), device.alloc(raw_b.nbytes, "b"), device.alloc(4 * M * N, "c")
    device.write(da.address, raw_a)
    device.write(db.address, raw_b)
    args = [da.address, db.address, dc.address, N, K]
    report = device.launch(module, "gemm", (N // 64, M // 64, 1), (128, 1, 1), args)
    got = device.read(dc.address, dc.nbytes).view(np.float32).reshape(M, N)
    return _rules(report), bool(np.array_equal(got, a @ b))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_gemm_mma(arch: str, tmp_path: Path) -> None:
    module = _compile("gemm_mma", arch, tmp_path)
    for schedule in SCHEDULES:
        assert _run_mma(module, schedule) == (set(), True)


def test_gemm_mma_without_the_wait(tmp_path: Path) -> None:
    rules, _ = _run_mma(_compile("gemm_mma", "sm_100a", tmp_path, "-DNO_WAIT"))
    assert rules == {"cp-async-in-flight"}


def test_gemm_mma_without_the_second_barrier(tmp_path: Path) -> None:
    rules, _ = _run_mma(_compile("gemm_mma", "sm_100a", tmp_path, "-DNO_BARRIER"))
    assert "race" in rules


# wgmma


def _instruction(n: int, registers: bool) -> str:
    """A statement macro that multiplies into an array of N / 2 accumulators."""
    count = n // 2
    d = ",".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"+f"(D[{k}])' for k in range(count))
    if registers:
        a = "{" + ",".join(f"%{count + k}" for k in range(4)) + "}"
        inputs = ", ".join(f'"r"(A[{k}])' for k in range(4))
        scale, b, last = count + 5, count + 4, "0"
    else:
        a, inputs, scale, b, last = f"%{count}", '"l"(A)', count + 2, count + 1, "0, 0"
    text = f"{{.reg .pred p; setp.ne.b32 p, %{scale}, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 "
    text += f"{{{d}}}, {a}, %{b}, p, 1, 1, {last};}}"
    name = "WGMMA_RS" if registers else "WGMMA_SS"
    return f'#define {name}(D, A, B, S) asm volatile("{text}" : {outputs} : {inputs}, "l"(B), "r"(S))\n'


def _compile_wgmma(n: int, folder: Path, *flags: str) -> emulator.Module:
    (folder / "wgmma_text.h").write_text(_instruction(n, False) + _instruction(n, True))
    return _compile("gemm_wgmma", "sm_90a", folder, f"-DTILE_N={n}", *flags)


def _run_wgmma(module: emulator.Module, n: int, schedule: Schedule = "realistic") -> tuple[set[str], bool]:
    device = emulator.Device(schedule=schedule, seed=4)
    rows, columns, depth = 128, 2 * n, 320
    (raw_a, a), (raw_b, b) = _matrix(rows, depth), _matrix(columns, depth)
    maps = []
    for name, raw, box in (("a", raw_a, 64), ("b", raw_b, n)):
        buffer = device.alloc(raw.nbytes, name)
        device.write(buffer.address, raw)
        maps.append(
            emulator.encode_tiled(
                dtype="bf16",
                address=buffer.address,
                global_dim=[depth, raw.shape[0]],
                global_strides=[depth * 2],
                box_dim=[64, box],
                swizzle="128B",
            )
        )
    dc = device.alloc(4 * rows * columns, "c")
    shared = 2 * -(-(64 + n) * 128 // 1024) * 1024 + 1024
    args = [*maps, dc.address, columns, depth]
    report = device.launch(module, "gemm", (2, 2, 1), (160, 1, 1), args, shared_bytes=shared)
    got = device.read(dc.address, dc.nbytes).view(np.float32).reshape(rows, columns)
    return _rules(report), bool(np.array_equal(got, a @ b.T))


@pytest.mark.parametrize("n", [16, 64, 128, 256])
@pytest.mark.parametrize("a", ["shared", "registers"])
def test_gemm_wgmma(n: int, a: str, tmp_path: Path) -> None:
    module = _compile_wgmma(n, tmp_path, *(["-DA_REGISTERS"] if a == "registers" else []))
    for schedule in SCHEDULES if n == 64 else SCHEDULES[:1]:
        assert _run_wgmma(module, n, schedule) == (set(), True)


@pytest.mark.parametrize(
    ("flag", "rule"),
    [
        ("NO_FENCE", "wgmma-missing-fence"),
        ("NO_WAIT", "wgmma-register-in-flight"),
        ("EARLY_RELEASE", "overwrite-under-mma"),
        ("NO_FULL_WAIT", "bulk-copy-in-flight"),
    ],
)
def test_broken_gemm_wgmma(flag: str, rule: str, tmp_path: Path) -> None:
    rules, _ = _run_wgmma(_compile_wgmma(64, tmp_path, f"-D{flag}"), 64)
    assert rule in rules
