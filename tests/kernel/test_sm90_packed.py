"""The order of row tiles where queries are packed and CTAs draw: each that there is comes once, in its place."""

from __future__ import annotations

import functools
import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator import Device, Module, load_ptx
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.launch import query_box
from fmha.harness.kernel_side.params import BY_HEAD, SCATTERED, UNLIMITED, FmhaParams
from tests.compiled import nvcc
from tests.kernel.sm90_rig import ROOT

# One worker compiles the kernel, and reads it.
pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("sm90-packed")]

ROWS = 128  # of a CTA
NOTHING = -1
LANES = 32

# What order_role does, for nobody.
KERNEL = """
#include "sm90/fmha_fwd.cu"

using Traits = fmha::sm90::Traits<128>;
using Walk = fmha::sm90::Walk<Traits>;

// The grid before, of which the next one may be in such a hurry.
extern "C" __global__ void measure(int* lengths, const int* from, int count) {
    fmha::ptx::launch_dependents();
    for (int i = threadIdx.x; i < count; i += 32) {
        lengths[i] = from[i];
    }
}

extern "C" __global__ void drawn_by_each(const __grid_constant__ FmhaParams params, int2* at, int2* idle, int* said) {
    const bool first = threadIdx.x == 0, packed = Walk::draws_packed(params);
    fmha::ptx::wait_for_primary();
    Walk walk(params);
    fmha::sm90::PackedOrder order{0, 0};
    if (packed) {
        order = walk.packed_order(params);
        walk.go_to(params, order, blockIdx.x);
        order.count(params, fmha::sm90::tile_rows<Traits>(params));
    }
    const int ctas = walk.ctas(), all = packed ? order.all : walk.all(params);
    if (first) {
        (int(blockIdx.x) < all ? at : idle)[blockIdx.x] = {walk.batch, walk.row_tile};
    }
    while (ctas < all) {
        const int index = fmha::sm90::draw(params, ctas, all);
        if (packed) {
            walk.go_to(params, order, index);
        } else {
            walk.go_to(params, index);
        }
        if (walk.row_tile < 0) {
            break;
        }
        if (first) {
            at[index] = {walk.batch, walk.row_tile};
        }
    }
    if (first && blockIdx.x == 0) {
        said[0] = walk.each;
        said[1] = walk.before_last;
    }
}
"""


@dataclass(frozen=True)
class Case:
    """Queries and keys of each batch entry; heads of a K/V head."""

    queries: tuple[int, ...]
    keys: tuple[int, ...] | int  # or s_k, where keys are not packed
    heads: int = 1
    kv_heads: int = 1
    ctas: int = 7
    causal: bool = True

    @property
    def rows(self) -> int:
        box = math.prod(query_box(ARCH, ROWS, self.heads))
        return box if 2 * box > ROWS else ROWS

    @property
    def tiles(self) -> list[int]:
        """Row tiles of each plane."""
        return [-(-q * self.heads // self.rows) for q in self.queries for _ in range(self.kv_heads)]

    @property
    def most(self) -> int:
        """Row tiles of the longest, for which a call may take more queries than any has: so many that CTAs draw."""
        return max(*self.tiles, self.ctas // len(self.tiles) + 1)

    @property
    def t(self) -> int:
        return self.most * self.rows // self.heads


@dataclass(frozen=True)
class Walked:
    """Plane and row tile of each place in the order, and of each CTA that has none; planes of a group and of all groups
    but the last one."""

    at: list[tuple[int, int]]
    idle: list[tuple[int, int]]
    each: int
    before_last: int


@functools.cache
def module() -> Module:
    with tempfile.TemporaryDirectory() as folder:
        source, ptx = Path(folder) / "order.cu", Path(folder) / "order.ptx"
        source.write_text(KERNEL)
        defines = ("FMHA_HEAD_DIM=128", "FMHA_KIND=1", "FMHA_KV_HEADS=1", "FMHA_PAGED=1", "FMHA_BY_LENGTH=1")
        flags = ["-std=c++17", "-O3", "-arch=sm_90a", "-ptx", *(f"-D{define}" for define in defines)]
        flags += [f"-I{ROOT / below}" for below in ("kernel/include", "kernel", "kernel/sm90")]
        return load_ptx(nvcc(ptx, source, *flags).read_text())


def walked(case: Case, seed: int = 0) -> Walked:
    device = Device(seed=seed, schedule="random", max_instructions=20_000_000)

    def stored(values: NDArray[np.int32]) -> int:
        address = device.alloc(max(values.nbytes, 4), "ints").address
        device.write(address, values)
        return address

    def ends(lengths: Sequence[int]) -> list[int]:
        return np.cumsum([0, *lengths]).tolist()

    packed_keys = () if isinstance(case.keys, int) else case.keys
    measured = np.array(ends(case.queries) + ends(packed_keys), np.int32)
    lengths, drawn = stored(np.zeros_like(measured)), stored(np.zeros(1, np.int32))
    params = FmhaParams(
        q=bytes(128),
        o=0,
        drawn=drawn,
        batch=len(case.tiles),
        t=case.t,
        heads=case.heads,
        kv_heads=case.kv_heads,
        s_k=case.keys if isinstance(case.keys, int) else max(case.keys),
        window_left=UNLIMITED,
        window_right=0 if case.causal else UNLIMITED,
        scale=1.0,
        flags=BY_HEAD | SCATTERED,
        head_dim=128,
        query_box=math.prod(query_box(ARCH, ROWS, case.heads)),
        cu_seqlens_q=lengths,
        cu_seqlens_k=lengths + 4 * (len(case.queries) + 1) if packed_keys else 0,
    )
    sizes = (sum(case.tiles), case.ctas, 1)
    at, idle, said = (stored(np.full((size, 2), NOTHING, np.int32)) for size in sizes)
    device.launch(module(), "measure", 1, 32, [lengths, stored(measured), len(measured)])
    given = [params.pack(), at, idle, said]
    report = device.launch(module(), "drawn_by_each", case.ctas, 32, given, programmatic=True)
    assert not report.findings, report.findings[0]
    assert not device.read(drawn, 4).any()  # as it was before

    def read(address: int, size: int) -> list[tuple[int, int]]:
        pairs = device.read(address, size * 8).view(np.int32).reshape(-1, 2).tolist()
        return [(plane, row_tile) for plane, row_tile in pairs]

    ((each, before_last),) = read(said, 1)
    return Walked(read(at, sizes[0]), read(idle, case.ctas), each, before_last)


def groups(case: Case, found: Walked) -> Iterator[range]:
    """Planes of a group, which has no more batch entries than a warp has lanes."""
    planes, first = len(case.tiles), 0
    while first < planes:
        end = min(first + found.each, found.before_last) if first < found.before_last else planes
        end = min(end, (first // case.kv_heads + LANES) * case.kv_heads)
        yield range(first, end)
        first = end


def expected(case: Case, found: Walked) -> list[tuple[int, int]]:
    if not case.causal:  # entries of more than half of the most keys, then of more than a quarter, then the others
        keys = [case.keys] * len(case.queries) if isinstance(case.keys, int) else case.keys
        most = max(keys)
        late = [0 if n > most // 2 else 1 if n > most // 4 else 2 for n in keys]
        planes = sorted(range(len(case.tiles)), key=lambda plane: late[plane // case.kv_heads])
        return [(plane, tile) for plane in planes for tile in reversed(range(case.tiles[plane]))]
    return [
        (plane, tile)
        for group in groups(case, found)
        for tile in reversed(range(case.most))
        for plane in group
        if tile < case.tiles[plane]
    ]


def drawn_case(seed: int) -> Case:
    """Entries of all kinds of lengths: none, one, few, as many as a row tile has, one that is far longer."""
    r = random.Random(seed)
    entries = r.choice([1, 2, 5, 16, 31, 32, 33, 70])
    usual, before = r.choice([1, 40, 128, 500]), r.choice([0, 0, 100, 20000])
    kinds = r.choices([(0, 0), (0, usual), (usual, usual), (128, 128), (0, 3 * usual), (1, 1)], k=r.randint(1, 3))
    queries = [r.randint(*r.choice(kinds)) for _ in range(entries)]
    if r.random() < 0.4:
        queries[r.randrange(entries)] = 3000
    queries[-1] = queries[-1] if any(queries) else r.choice([0, 1, 300])
    keys = tuple(q + r.choice([0, before]) for q in queries)
    return Case(
        tuple(queries),
        keys=keys if r.random() < 0.8 else max(keys),
        heads=r.choice([1, 1, 2, 3, 8]),
        kv_heads=r.choice([1, 3, 8]),
        ctas=r.choice([1, 2, 7, 40]),
        causal=r.random() < 0.7,
    )


def check(case: Case, seed: int = 0) -> Walked:
    found = walked(case, seed)
    wanted = expected(case, found)
    assert sorted(wanted) == [(plane, tile) for plane, count in enumerate(case.tiles) for tile in range(count)]
    assert found.at == wanted
    busy = min(case.ctas, len(wanted))  # the others have no row tile
    assert found.idle == [(NOTHING, NOTHING)] * busy + [(0, NOTHING)] * (case.ctas - busy)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_each_row_tile_comes_once_and_in_its_place(seed: int) -> None:
    check(drawn_case(seed), seed)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        Case((0,), (0,)),
        Case((0, 0, 0), (0, 5, 0), kv_heads=3),
        Case((0,) * 40 + (1,), (7,) * 41),
        Case((1,), (1,), ctas=1),
        Case((8000, *(500,) * 15), (8000, *(500,) * 15), kv_heads=3, ctas=20),
        Case((500,) * 15 + (8000,), (500,) * 15 + (8000,), ctas=20),
        Case((129, 128, 0) * 30, (4000,) * 90, kv_heads=8),
        Case((100, 200) * 35, (100, 200) * 35, ctas=40),
        Case((100, 200) * 17 + (50, 50), (100, 200) * 17 + (50, 51)),  # a quarter, a half, and more
        Case((1,) * 80, (516,) * 80, kv_heads=2, ctas=48),  # a group begins within an entry and has more than 32
    ],
)
def test_of_lengths_that_are_an_edge(case: Case, causal: bool) -> None:
    check(replace(case, causal=causal))


def test_groups_cross_batch_entries_and_divide_them() -> None:
    """16 MiB are 4 planes of 8192 keys, of entries with three."""
    case = Case((256,) * 8, (8192,) * 8, kv_heads=3, ctas=16)
    sizes = [(group.start, group.stop) for group in groups(case, check(case))]
    assert sizes[0] == (0, 4)
    assert len(sizes) > 3


@pytest.mark.parametrize(
    ("usual", "longest"),
    [(Case((500,) * 25, (500,) * 25), (2900, 2900)), (Case((256,) * 25, (6000,) * 25), (256, 78000))],
    ids=["queries", "keys"],
)
def test_groups_are_those_of_the_mean(usual: Case, longest: tuple[int, int]) -> None:
    """One entry that is far longer does not make groups as small as if all were."""
    (queries, *_), (keys, *_) = usual.queries, usual.keys  # type: ignore[misc]
    others = len(usual.queries) - 1
    rest = (queries * 25 - longest[0]) // others, (keys * 25 - longest[1]) // others
    mixed = replace(usual, queries=(rest[0],) * others + longest[:1], keys=(rest[1],) * others + longest[1:])
    every = replace(usual, queries=longest[:1] * 25, keys=longest[1:] * 25)
    sizes = [(found.each, found.before_last) for found in map(check, (usual, mixed, every))]
    assert sizes[0] == sizes[1] != sizes[2]
