"""kernel/common/work.cuh on the host: rows, tiles and ring slots, against an enumeration of what each row sees."""

import itertools
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from fmha.harness.kernel_side import params

HostCompile = Callable[[str], subprocess.CompletedProcess[str]]

PROGRAM = """
#include <cstdio>
#include <vector>
#include "fmha_launch.h"
#include "common/work.cuh"
using namespace fmha;

void print(int keys, int t, int heads, int s_k, int topk, int splits, int left, int right, int kv_len, int offset,
           int len) {
    const FmhaLaunchShape shape{ROWS, keys, 4, 192, 0};
    std::vector<int32_t> indices(t * topk, 0), lens(t, len), kv_lens{kv_len}, offsets{offset};
    FmhaParams p{};
    p.batch = 1; p.t = t; p.heads = heads; p.s_k = s_k; p.s_sparse = 1; p.topk = topk; p.splits = splits;
    p.window_left = left; p.window_right = right;
    p.kv_lens = kv_lens.data(); p.query_offsets = offsets.data();
    p.sparse_indices = indices.data(); p.sparse_lens = lens.data();
    for (int block = 0; block < fmha_query_blocks(shape, t, heads, topk); ++block)
        for (int split = 0; split < splits; ++split) {
            const Work w = make_work(p, ROWS, keys, block, split, 0);
            for (int j = 0; j < w.tiles; ++j) {
                const int n = w.first_tile + j;
                const int first = is_dense(w, n) ? first_key(w, n, keys) : first_entry(w, n, keys);
                const bool mask = is_dense(w, n) && needs_mask(w, first, keys);
                std::printf("%d %d %d %d %d %d %d\\n", block, split, w.first_row, w.rows, is_dense(w, n), first, mask);
            }
            if (w.tiles == 0) std::printf("%d %d %d %d -1 0 0\\n", block, split, w.first_row, w.rows);
        }
    std::printf("end\\n");
}

int main() {
CASES
}
"""
ROWS = 16
UNLIMITED = -1
Case = tuple[int, ...]  # keys, t, heads, s_k, topk, splits, left, right, kv_len, offset, sparse_len


def cases() -> list[Case]:
    rng = np.random.default_rng(0)
    out: list[Case] = []
    for keys, t, heads, splits in itertools.product((8, 16), (1, 3, 20), (1, 5, 16, 20), (1, 3)):
        for _ in range(4):
            s_k, topk = int(rng.integers(0, 70)), int(rng.choice([0, 0, 1, 8, 30]))
            left, right = (int(rng.choice([UNLIMITED, 0, 3, 20, 2**31 - 1])) for _ in range(2))
            kv_len, offset = int(rng.integers(0, s_k + 1)), int(rng.integers(-30, 90))
            out.append((keys, t, heads, s_k, topk, splits, left, right, kv_len, offset, int(rng.integers(0, topk + 1))))
    return out


def seen(case: Case, query: int) -> set[int]:
    *_, left, right, kv_len, offset, _ = case
    p = query + offset
    return {
        key
        for key in range(kv_len)
        if (right == UNLIMITED or key <= p + right) and (left == UNLIMITED or key >= p - left)
    }


def check(case: Case, lines: list[tuple[int, ...]]) -> None:
    keys, t, heads, _, topk, splits, _, _, kv_len, _, sparse_len = case
    blocks: dict[int, list[tuple[int, ...]]] = {}
    for block, *rest in lines:
        blocks.setdefault(block, []).append(tuple(rest))
    rows_done: list[int] = []
    for ctas in blocks.values():
        first_row, rows = ctas[0][1:3]
        assert {cta[1:3] for cta in ctas} == {(first_row, rows)}
        assert {cta[0] for cta in ctas} == set(range(splits))
        rows_done += range(first_row, first_row + rows)
        queries = sorted({row // heads for row in range(first_row, first_row + rows)})
        assert topk == 0 or len(queries) == 1
        ranges = [seen(case, query) for query in queries]
        # In order of splits, each key of the union of ranges is in one tile, and each entry of the list in one.
        dense = [(first, mask) for _, _, _, kind, first, mask in ctas if kind == 1]
        sparse = [first for _, _, _, kind, first, _ in ctas if kind == 0]
        covered = [key for first, _ in dense for key in range(first, first + keys)]
        assert len(covered) == len(set(covered))
        assert set().union(*ranges) <= set(covered)
        assert all(key < kv_len for key in covered), "a tile reaches past kv_len"
        span = max(set().union(*ranges), default=-1) - min(set().union(*ranges), default=0) + 1
        assert len(dense) <= -(-span // keys), "more tiles than the span of seen keys needs"
        assert sparse == list(range(0, sparse_len if topk else 0, keys))
        for first, mask in dense:
            exact = all(set(range(first, first + keys)) <= some for some in ranges)
            assert mask == (not exact)
        kinds = [kind for _, _, _, kind, _, _ in ctas if kind >= 0]
        assert kinds == sorted(kinds, reverse=True)
    assert sorted(rows_done) == list(range(t * heads))


def test_tiles_cover_what_rows_see_and_nothing_past_the_length(host_compile: HostCompile) -> None:
    listed = cases()
    calls = "\n".join(f"    print({', '.join(map(str, case))});" for case in listed)
    result = host_compile(PROGRAM.replace("CASES", calls).replace("ROWS", str(ROWS)))
    assert result.returncode == 0, result.stderr
    outputs = result.stdout.split("end\n")[:-1]
    for case, output in zip(listed, outputs, strict=True):
        check(case, [tuple(map(int, line.split())) for line in output.splitlines()])


@pytest.mark.parametrize("tiles", [1, 2, 3, 8])
def test_ring_order(host_compile: HostCompile, tiles: int) -> None:
    lines = ["#include <cstdio>", '#include "common/work.cuh"', "int main() {"]
    for shared in ("false", "true"):
        for j in range(tiles):
            order = f"fmha::RingOrder{{{tiles}, {shared}}}"
            lines.append(f'    std::printf("%d %d %d\\n", {order}.key({j}), {order}.value({j}), {order}.count());')
    result = host_compile("\n".join([*lines, "}"]))
    assert result.returncode == 0, result.stderr
    got = [tuple(map(int, line.split())) for line in result.stdout.splitlines()]
    # The order in which the MMA warp consumes: S_0, then S_{j+1} before O_j.
    consumed = ["K0"]
    for j in range(tiles):
        consumed += [f"K{j + 1}"] * (j + 1 < tiles) + [f"V{j}"]
    apart = [(consumed.index(f"K{j}"), consumed.index(f"V{j}"), 2 * tiles) for j in range(tiles)]
    assert got == apart + [(j, j, tiles) for j in range(tiles)]


@pytest.mark.parametrize("tiles", [1, 2, 3, 8])
def test_ring_order_the_other_way_round(host_compile: HostCompile, tiles: int) -> None:
    lines = ["#include <cstdio>", '#include "common/work.cuh"', "int main() {"]
    for shared, uses in (("false", 2 * tiles), ("true", tiles)):
        order = f"fmha::RingOrder{{{tiles}, {shared}}}"
        for use in range(uses):
            position = (
                f"{order}.is_value({use}) ? {order}.value({order}.tile({use})) : {order}.key({order}.tile({use}))"
            )
            lines.append(f'    std::printf("%d %d\\n", {position}, {order}.is_value({use}));')
    result = host_compile("\n".join([*lines, "}"]))
    assert result.returncode == 0, result.stderr
    got = [tuple(map(int, line.split())) for line in result.stdout.splitlines()]
    assert [use for use, _ in got] == [*range(2 * tiles), *range(tiles)]
    assert sum(value for _, value in got) == tiles


PLANES = """
#define FMHA_KV_HEADS 1
#include <cstdio>
#include "common/work.cuh"

int main() {
    FmhaParams p{};
    p.t = 3; p.heads = 2; p.kv_heads = 5; p.batch = 20; p.flags = kFmhaByHead;
    for (int index = 0; index < p.batch; ++index)
        for (int row = 0; row < p.t * p.heads; ++row) {
            const fmha::Plane plane = fmha::plane_of(p, index);
            std::printf("%d %d %d\\n", int(fmha::stored_row(p, plane, row)), fmha::query_head(p, plane, row),
                        fmha::entry_of(p, index));
        }
}
"""


def test_rows_of_planes_are_stored_by_entry_query_and_head(host_compile: HostCompile) -> None:
    result = host_compile(PLANES)
    assert result.returncode == 0, result.stderr
    got = np.array([list(map(int, line.split())) for line in result.stdout.splitlines()])
    entries, kv_heads, t, group = 4, 5, 3, 2
    outputs = np.arange(entries * t * kv_heads * group).reshape(entries, t, kv_heads, group)
    stored = outputs.transpose(0, 2, 1, 3).reshape(-1)
    assert got[:, 0].tolist() == stored.tolist()
    assert got[:, 1].tolist() == (stored % (kv_heads * group)).tolist()
    assert got[:, 2].tolist() == (stored // (t * kv_heads * group)).tolist()


BOXES = """
#define FMHA_KV_HEADS 1
#define FMHA_PAGED 1
#include <cstdio>
#include "common/pages.cuh"

int main() {
    const int32_t table[] = {7, 3, 5, 11, 2, 9};
    FmhaParams p{};
    p.s_k = 96; p.page_size = 32; p.key_box = 16; p.block_table = table; p.kv_heads = 1;
    p.flags = kFmhaByHead | kFmhaScattered;
    const fmha::KeyBoxes boxes{p, 1, {40, 70}};
    for (int key = -16; key < 96; key += 16) {
        const fmha::BoxPlace place = boxes.place_of(key, p.page_size);
        std::printf("%d %d\\n", place.row, place.page);
    }
}
"""


def test_boxes_of_pages_are_looked_up_where_a_key_is_seen(host_compile: HostCompile) -> None:
    result = host_compile(BOXES)
    assert result.returncode == 0, result.stderr
    got = [tuple(map(int, line.split())) for line in result.stdout.splitlines()]
    assert got == [(16, -1), (0, -1), (16, -1), (0, 2), (16, 2), (0, 9), (16, -1)]


QUOTIENTS = """
#include <cstdio>
#include "common/work.cuh"

const struct { int32_t n; uint32_t multiplier, shift; } asked[] = {ASKED};

int main() {
    for (const auto& one : asked) {
        std::printf("%d\\n", fmha::quotient(one.n, one.multiplier, one.shift));
    }
}
"""


def test_a_quotient_is_the_division_s(host_compile: HostCompile) -> None:
    """Every divisor up to 300 and some large ones, at both ends of each of its quotients and of the range."""
    divisors = [*range(1, 300), 12345, 2**16 - 1, 2**16 + 1, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1]
    numbers = [0, 1, 2, 2**31 - 1, 2**31 - 2, 2**30, 12345678]
    asked, expected = [], []
    for d in divisors:
        multiplier, shift = params.divisor(d)
        assert multiplier < 2**32
        largest = (2**31 - 1) // d * d
        for n in {*numbers, d - 1, d, largest, largest - 1}:
            asked.append(f"{{{n}, {multiplier}u, {shift}u}}")
            expected.append(n // d)
    result = host_compile(QUOTIENTS.replace("ASKED", ", ".join(asked)))
    assert result.returncode == 0, result.stderr
    assert list(map(int, result.stdout.split())) == expected
