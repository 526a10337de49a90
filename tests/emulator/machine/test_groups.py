"""Groups of less than a warp, as nvcc compiles them: cooperative groups and CUB against their definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.compiled import nvcc

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("groups")]

SOURCE = Path(__file__).parents[2] / "probes/groups.cu"
THREADS = 64
COLUMNS = 15
Words = NDArray[np.int32]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> emulator.Module:
    out = tmp_path_factory.mktemp("groups") / "groups.ptx"
    return emulator.load_ptx(nvcc(out, SOURCE, "-arch=sm_100a", "-std=c++17", "-ptx"))


def values() -> Words:
    return np.random.default_rng(7).integers(0, 1000, THREADS).astype(np.int32)


def launch(module: emulator.Module, entry: str, columns: int, option: int, **options: Any) -> Words:
    device = emulator.Device(**options)
    data, out = device.alloc(4 * THREADS, "in"), device.alloc(4 * THREADS * columns, "out", zeroed=True)
    device.write(data.address, values())
    report = device.launch(module, entry, (1, 1, 1), (THREADS, 1, 1), [data.address, out.address, option])
    assert not report.findings, "\n".join(map(str, report.findings))
    return device.read(out.address, out.nbytes).view(np.int32).reshape(THREADS, columns)


def of_group(v: Words) -> Words:
    """What each thread of a group gets in `collect` of groups.cu, by the definitions of the CUDA programming guide."""
    n = len(v)
    ranks = np.arange(n)
    rows = np.zeros((n, COLUMNS), np.int64)
    ballot = lambda chosen: int(np.sum(1 << ranks[chosen].astype(np.int64)))  # noqa: E731
    rows[:, 0], rows[:, 1] = ranks, n
    rows[:, 2] = v[1 % n]
    rows[:, 3] = v[np.maximum(ranks - 1, 0)]
    rows[:, 4] = v[np.minimum(ranks + 1, n - 1)]
    rows[:, 5] = ballot(v & 1 == 1)
    rows[:, 6], rows[:, 7] = np.any(v % 5 == 0), np.all(v & 1)
    rows[:, 8] = [ballot(v & 3 == x & 3) for x in v]
    alike = len(set(v & 16)) == 1
    rows[:, 9], rows[:, 10] = ballot(ranks >= 0) if alike else 0, alike
    rows[:, 11], rows[:, 12] = v.sum(), v.max()
    rows[:, 13] = np.cumsum(v)
    rows[:, 14] = np.cumsum(v) - v
    return rows.astype(np.uint32).view(np.int32)


def expected(groups: NDArray[Any], v: Words) -> Words:
    """`groups`: a number for each thread, -1 where it is in none; groups do not reach beyond a warp."""
    rows = np.zeros((THREADS, COLUMNS), np.int32)
    for warp in range(0, THREADS, 32):
        mine = np.arange(THREADS) // 32 == warp // 32
        for group in set(groups[mine & (groups >= 0)]):
            members = np.flatnonzero(mine & (groups == group))
            rows[members] = of_group(v[members])
    return rows


SCHEDULES = [{"schedule": "realistic"}, *({"schedule": "random", "seed": seed} for seed in range(3))]


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_tiles(compiled: emulator.Module, size: int, options: dict[str, Any]) -> None:
    v, tiles = values(), np.arange(THREADS) // size
    together = launch(compiled, f"tile{size}", COLUMNS, 0, **options)
    np.testing.assert_array_equal(together, expected(tiles, v))
    turns = tiles * 3 % 7
    late = v.astype(np.int64)
    for turn in range(7):
        late = np.where(turn < turns, late * 3 + 1, late)
    late = np.where(tiles % 2 == 0, late + 1, late)
    apart = launch(compiled, f"tile{size}", COLUMNS, 1, **options)
    np.testing.assert_array_equal(apart, expected(tiles, late.astype(np.int32)))


@pytest.mark.parametrize("labels", [1, 2, 3, 7, 1000])
def test_groups_by_label(compiled: emulator.Module, labels: int) -> None:
    v = values()
    np.testing.assert_array_equal(launch(compiled, "labeled", COLUMNS, labels), expected(v % labels, v))


@pytest.mark.parametrize("bit", [1, 8, 1 << 20])
def test_groups_by_predicate(compiled: emulator.Module, bit: int) -> None:
    v = values()
    np.testing.assert_array_equal(launch(compiled, "binary", COLUMNS, bit), expected((v & bit != 0).astype(int), v))


@pytest.mark.parametrize("bit", [1, 4])
def test_the_lanes_that_are_there(compiled: emulator.Module, bit: int) -> None:
    v = values()
    second = (v & bit == 0) & (v & 2 * bit != 0)
    groups = np.where(v & bit, 0, np.where(second, 1, -1))
    np.testing.assert_array_equal(
        launch(compiled, "coalesced", COLUMNS, bit), expected(groups, np.where(second, v + 1, v).astype(np.int32))
    )


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_cub_over_fewer_lanes(compiled: emulator.Module, size: int) -> None:
    v = values().reshape(-1, size)
    rows = np.zeros((*v.shape, 3), np.int32)
    rows[:, 0, 0] = v.sum(1)
    rows[..., 1] = np.cumsum(v, 1) - v
    rows[..., 2] = v.sum(1, keepdims=True)
    np.testing.assert_array_equal(launch(compiled, f"cub{size}", 3, 0), rows.reshape(THREADS, 3))


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("bit", [1, 4, 1 << 20])
def test_a_meeting_in_both_branches(compiled: emulator.Module, bit: int, options: dict[str, Any]) -> None:
    v = values()
    taken = v & bit != 0
    slots = np.where(taken, v, -v)
    brought = np.where(taken, 1, 2) * slots[np.arange(THREADS) ^ 1]
    votes = np.where(taken, v & 1, 1 - (v & 1)).reshape(2, 32) << np.arange(32, dtype=np.int64)
    rows = np.stack([brought[np.arange(THREADS) ^ 1], np.repeat(votes.sum(1), 32)], 1).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(launch(compiled, "branches", 2, bit, **options), rows)
