"""Cooperative launches and the groups of several warps, as nvcc compiles them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import SCHEDULES, Schedule
from tests.compiled import nvcc
from tests.emulator.clusterlab import run

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("cooperative")]

SOURCE = Path(__file__).parents[1] / "kernels" / "cooperative.cu"
BLOCKS, THREADS = 12, 64


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> emulator.Module:
    out = tmp_path_factory.mktemp("ptx") / "cooperative.ptx"
    return emulator.load_ptx(nvcc(out, SOURCE, "-arch=sm_100a", "-std=c++17", "-ptx"))


def rotate(
    module: emulator.Module, entry: str, schedule: Schedule = "realistic", cooperative: bool = True, threads: int = 1
) -> tuple[emulator.Report, NDArray[np.uint32], NDArray[np.uint32]]:
    device = emulator.Device(schedule=schedule, seed=5, threads=threads)
    data, seen = device.alloc(4 * BLOCKS * THREADS, "data"), device.alloc(16, "seen")
    arguments = [data.address, seen.address]
    report = device.launch(module, entry, BLOCKS, THREADS, arguments, cooperative=cooperative)
    again = device.launch(module, entry, BLOCKS, THREADS, arguments, cooperative=cooperative)
    assert [f.rule for f in again.findings] == [f.rule for f in report.findings]
    return report, *(device.read(b.address, b.nbytes).view(np.uint32) for b in (data, seen))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_grid_sync_orders_and_holds(compiled: emulator.Module, schedule: Schedule) -> None:
    report, data, seen = rotate(compiled, "rotate", schedule, threads=2)
    assert not report.findings, report.findings[0]
    n = BLOCKS * THREADS
    np.testing.assert_array_equal(data, (np.arange(n) + 2 * THREADS) % n + 1)
    assert seen[:3].tolist() == [BLOCKS, n, 1]


def test_arrival_and_wait_apart(compiled: emulator.Module) -> None:
    report, data, seen = rotate(compiled, "rotate_split")
    assert not report.findings, report.findings[0]
    n = BLOCKS * THREADS
    np.testing.assert_array_equal(data, (np.arange(n) + THREADS) % n + 1)
    assert seen[3] == 5


def test_a_missing_grid_sync_is_a_race(compiled: emulator.Module) -> None:
    report, _, _ = rotate(compiled, "rotate_unsynchronised")
    assert {f.rule for f in report.findings} == {"race"}


def test_grid_sync_without_a_cooperative_launch_traps(compiled: emulator.Module) -> None:
    report, _, _ = rotate(compiled, "rotate", cooperative=False)
    assert {f.rule for f in report.findings} == {"trap"}


def test_what_cannot_be_resident_is_refused(compiled: emulator.Module) -> None:
    device = emulator.Device()
    out = device.alloc(64, "out")
    for block, shared, most in (
        (1024, 0, 2),
        (64, 0, 32),
        (33, 0, 32),
        (96, 0, 21),
        (64, 113 << 10, 2),
        (64, 114 << 10, 1),
    ):
        with pytest.raises(emulator.LaunchError, match=f"{148 * most + 1} CTAs; the device holds {148 * most} of them"):
            device.launch(
                compiled, "rotate", 148 * most + 1, block, [out.address] * 2, shared_bytes=shared, cooperative=True
            )
    with pytest.raises(emulator.LaunchError, match="150 CTAs; the device holds 148 of them"):
        device.launch(compiled, "rotate", 150, 64, [out.address] * 2, 200 << 10, cluster=2, cooperative=True)


@pytest.mark.parametrize("size", [64, 128, 256])
def test_tiles_of_several_warps(compiled: emulator.Module, size: int) -> None:
    """Strictly, the headers' collectives let lanes of a warp store one value where others load it."""
    t = np.arange(256)
    base = t // size * size
    v = 3 * (base + (t - base + 32) % size)
    tiles = v.reshape(-1, size)
    total, any_300 = tiles.sum(1), (tiles == 300).any(1)
    for schedule in SCHEDULES:
        device = emulator.Device(profile="lenient", schedule=schedule)
        out = device.alloc(2 * 256 * 16, "out")
        report = device.launch(compiled, f"tile{size}", 2, 256, [out.address])
        assert not report.findings, report.findings[0]
        got = device.read(out.address, out.nbytes).view(np.uint32).reshape(2, 256, 4)
        expected = np.stack([v, total[t // size], v[base + 1], any_300[t // size]], 1)
        np.testing.assert_array_equal(got, np.stack([expected, expected]))


OUT = {"out": np.zeros(8, np.uint32)}


def test_the_systems_shared_memory() -> None:
    """The values of an H100. What the offsets name may be used, and nothing else of the first kilobyte."""
    names = ("begin", "end", "cap", "0", "1")
    body = "".join(
        f"mov.u32 %r{k}, %reserved_smem_offset_{name}; st.global.u32 [%out+{4 * k}], %r{k};\n"
        for k, name in enumerate(names)
    )
    assert run(body, OUT, block=1).clean().arrays["out"][:5].tolist() == [0, 288, 1024, 0, 0]
    access = (
        "mov.u32 %r1, {name}; st.shared.u32 [%r1+{at}], 5; ld.shared.u32 %r2, [%r1+{at}]; st.global.u32 [%out], %r2;"
    )
    for at in (0, 32, 284):
        done = run(access.format(name="%reserved_smem_offset_1", at=at), OUT, block=1).clean()
        assert done.arrays["out"][0] == 5
    for at in (286, 288, 512, 1020):
        done = run(access.format(name="%reserved_smem_offset_1", at=at), OUT, block=1)
        assert done.rules in ({"shared-out-of-bounds"}, {"misaligned"})
    assert run(access.format(name="0", at=0), OUT, block=1).rules == {"shared-out-of-bounds"}


def test_the_size_of_shared_memory_comes_in_units_of_128_bytes() -> None:
    done = run("mov.u32 %r1, %total_smem_size; st.global.u32 [%out], %r1; ld.shared.u32 %r2, [word];", OUT, block=1)
    assert done.arrays["out"][0] % 128 == 0
