"""The kernels of sm_100a that go through row tiles, for many rows and of CTA pairs, on the emulator, strict profile,
against the float64 reference."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from fmha.emulator.explore import schedules_of
from fmha.harness.contract.protocol import Configuration, Variant
from fmha.harness.kernel_side import launch, params
from fmha.harness.kernel_side.variants import VARIANTS, goes_through_row_tiles, is_pair, is_prefill, variant_for
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from tests.builds import Artifacts, Builds
from tests.kernel.kept import marks
from tests.kernel.rig import Problem, errors, make_problem, run, unwritten
from tests.kernel.test_forward import check, growing, poisoned

nvcc = pytest.mark.nvcc


def variants_that(are: Callable[[Variant], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "variant",
        [
            pytest.param(v, marks=[pytest.mark.xdist_group(f"forward-{v.name}"), *marks(v)], id=v.name)
            for v in VARIANTS
            if are(v)
        ],
    )


variants = variants_that(goes_through_row_tiles)
pairs = variants_that(is_pair)
HostCompile = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def artifacts(builds: Builds) -> Mapping[str, Path]:
    return Artifacts(builds)


@pytest.fixture
def two_ctas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU so small that CTAs have row tiles one after the other."""
    monkeypatch.setattr(launch, "SM100_MULTIPROCESSORS", 2)


@nvcc
@variants
@pytest.mark.parametrize(("t", "s_k"), [(1, 1), (256, 128), (130, 129), (300, 700)])
def test_dense(artifacts: Mapping[str, Path], variant: Variant, t: int, s_k: int) -> None:
    check(artifacts, variant, make_problem(variant.head_dim, t, s_k))


@nvcc
@variants
def test_row_tiles_one_after_the_other(artifacts: Mapping[str, Path], variant: Variant, two_ctas: None) -> None:
    """Rings and barriers go on from one row tile to the next, whose numbers of tiles of keys are odd, even and one."""
    for fields in ({}, {"window_right": 0}, {"window_left": 50, "window_right": 20}):
        check(artifacts, variant, make_problem(variant.head_dim, 300, 420, batch=3, **fields))
    one = make_problem(variant.head_dim, 100, 90, batch=7)  # each of one tile of keys
    check(artifacts, variant, one)
    lengths = np.array([0, 300, 0, 129, 1, 0, 640], dtype=np.int32)  # some without keys between others
    ragged = make_problem(variant.head_dim, 65, 640, heads=4, batch=7, kv_lens=lengths, window_right=0)
    check(artifacts, variant, poisoned(ragged))
    check(artifacts, variant, make_problem(variant.head_dim, 65, 0, batch=5))


@nvcc
@variants
def test_masks_and_offsets(artifacts: Mapping[str, Path], variant: Variant) -> None:
    head_dim = variant.head_dim
    check(artifacts, variant, make_problem(head_dim, 384, 384, window_right=0))
    check(artifacts, variant, make_problem(head_dim, 260, 100, window_right=0))  # the first queries see nothing
    check(artifacts, variant, make_problem(head_dim, 260, 700, window_left=127, window_right=0))
    check(artifacts, variant, make_problem(head_dim, 260, 700, window_left=0, window_right=300))
    check(artifacts, variant, make_problem(head_dim, 5, 200, window_left=2**31 - 1, window_right=2**31 - 1))
    offsets = np.array([-200, 150, 900], dtype=np.int32)
    fields = {"window_left": 70, "window_right": 10, "query_offsets": offsets}
    check(artifacts, variant, make_problem(head_dim, 300, 600, batch=3, **fields))


@nvcc
@variants
@pytest.mark.parametrize("bf16", [False, True])
def test_sinks(artifacts: Mapping[str, Path], variant: Variant, bf16: bool) -> None:
    sink = np.array([-np.inf, np.inf, 0.0, 3.0, -80.0, 120.0], dtype=np.float32)
    fields = {"heads": 6, "normalise": True, "output_bf16": bf16, "sink": sink}
    got, _ = check(artifacts, variant, make_problem(variant.head_dim, 50, 150, window_right=0, **fields))
    assert not got.o_values[:, :, 1].any()


@nvcc
@variants
@pytest.mark.parametrize("step", [4.0, 1.0, 64.0, -8.0])
def test_rescale(artifacts: Mapping[str, Path], variant: Variant, step: float) -> None:
    """8 in log2 is 5.5: steps of 4 cross it every other tile, of 1 add up to it, of 64 cross it always, of -8 never."""
    check(artifacts, variant, growing(variant.head_dim, step, t=120))  # rows of A and of B


@nvcc
@variants
def test_logits_of_any_size(artifacts: Mapping[str, Path], variant: Variant) -> None:
    for amplitude in (1e-4, 30.0):
        check(artifacts, variant, make_problem(variant.head_dim, 140, 300, amplitude=amplitude, window_right=0))


@nvcc
@variants
def test_the_polynomial_is_as_good_as_the_special_function_unit(
    artifacts: Mapping[str, Path], variant: Variant
) -> None:
    """Of a row with two keys, one of which has a probability by the polynomial and then by the unit, LSE is right to
    what fp32 leaves: the polynomial's own error of 3e-6 would be seen as it is. Keys 15 and 0 of a tile."""
    distances = np.linspace(0.0, 20.0, 256, dtype=np.float32)
    worst = []
    for other in (15, 0):
        problem = make_problem(variant.head_dim, 256, 128, scale=1.0)
        q, k = np.zeros_like(problem.inputs.q), np.zeros_like(problem.inputs.k)
        q[0, :, 0, 0], q[0, :, 0, 1] = 0x3F80, (distances.view(np.uint32) >> 16).astype(np.uint16)
        k[..., 0] = 0xC6FF  # far below
        k[0, other, 0], k[0, other, 1], k[0, 1, 0] = 0, 0xBF80, 0  # minus the distance, and 0
        _, found = check(artifacts, variant, problem.replace(q=q, k=k))
        worst.append(found.lse)
    assert worst[0] < 4e-6
    assert worst[1] < 2e-6


@nvcc
@variants
def test_a_nan_is_not_lost(artifacts: Mapping[str, Path], variant: Variant) -> None:
    """Whichever way the exponential of its logit is computed."""
    for key in (0, 15, 77, 127):
        problem = make_problem(variant.head_dim, 3, 128)
        k = problem.inputs.k.copy()
        k[0, key, 0] = 0x7FC0
        got = run(EmulatorDevice(0, "realistic"), artifacts, variant, problem.replace(k=k))
        assert not np.isfinite(got.o_values).any(), key


@nvcc
@pairs
def test_splits(artifacts: Mapping[str, Path], variant: Variant, two_ctas: None) -> None:
    """More of them than tiles as well, and row tiles one after the other in each."""
    for splits, fields in ((2, {}), (5, {"window_right": 0}), (3, {"output_bf16": True, "normalise": True})):
        check(artifacts, variant, make_problem(variant.head_dim, 200, 420, batch=3, splits=splits, **fields))
    lengths = np.array([0, 300, 129, 640], dtype=np.int32)
    ragged = make_problem(variant.head_dim, 1, 640, heads=16, batch=4, kv_lens=lengths, splits=4)
    check(artifacts, variant, poisoned(ragged))


@nvcc
@pairs
def test_values_that_are_the_keys(artifacts: Mapping[str, Path], variant: Variant) -> None:
    for splits in (1, 3):
        check(artifacts, variant, make_problem(variant.head_dim, 2, 500, heads=70, shared_kv=True, splits=splits))


@pytest.mark.slow
@nvcc
@variants
def test_many_schedules(artifacts: Mapping[str, Path], variant: Variant, two_ctas: None) -> None:
    """With a maximum that grows, lengths, a mask and sinks, row tiles in turn; equal bits under all schedules."""
    sink = np.linspace(-2, 2, 5, dtype=np.float32)
    lengths = np.array([700, 77, 0, 410], dtype=np.int32)
    fields = {"kv_lens": lengths, "sink": sink, "window_right": 0, "normalise": True, "amplitude": 8.0}
    problem = poisoned(make_problem(variant.head_dim, 70, 700, heads=5, batch=4, **fields))
    assert _equal_bits(artifacts, variant, problem, 20)
    assert _equal_bits(artifacts, variant, growing(variant.head_dim, 4.0, t=120), 6)


def _equal_bits(artifacts: Mapping[str, Path], variant: Variant, problem: Problem, schedules: int) -> bool:
    runs = [check(artifacts, variant, problem, schedule, seed)[0] for schedule, seed in schedules_of(schedules)]
    return all(np.array_equal(a, b) for other in runs[1:] for a, b in ((other.o, runs[0].o), (other.lse, runs[0].lse)))


ORDER = """
#include "sm100/prefill/order.cuh"
#include <cstdio>
int main() {{
    FmhaParams params{{}};
    params.t = {t}; params.heads = {heads}; params.batch = {planes};
    params.window_left = -1; params.window_right = {right};
    for (int cta = 0; cta < {ctas}; ++cta)
        for (int turn = 0;; ++turn) {{
            const fmha::RowTile tile = fmha::row_tile(params, 256, {ctas}, cta, turn);
            if (tile.block < 0) break;
            std::printf("%d %d %d\\n", cta, tile.block, tile.plane);
        }}
}}
"""


def order(host_compile: HostCompile, t: int, heads: int, planes: int, ctas: int, right: int) -> list[tuple[int, ...]]:
    """CTA, block and plane of each row tile, CTA by CTA in the order in which it takes them."""
    result = host_compile(ORDER.format(t=t, heads=heads, planes=planes, ctas=ctas, right=right))
    assert result.returncode == 0, result.stderr
    return [tuple(map(int, line.split())) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("right", [-1, 0])
@pytest.mark.parametrize(
    ("t", "heads", "planes", "ctas"),
    [(4096, 1, 64, 148), (300, 3, 7, 2), (1, 1, 5, 3), (700, 2, 200, 148), (9, 1, 1, 1)],
)
def test_every_row_tile_comes_once(
    host_compile: HostCompile, t: int, heads: int, planes: int, ctas: int, right: int
) -> None:
    taken = order(host_compile, t, heads, planes, ctas, right)
    blocks = -(-t * heads // 256)
    assert sorted((plane, block) for _, block, plane in taken) == [(p, b) for p in range(planes) for b in range(blocks)]


def test_under_a_mask_ctas_end_together(host_compile: HostCompile) -> None:
    """Prefill of 4096, batch 4, 16 heads: dealt out in order, the last CTA would have an eighth more than the mean."""
    keys: Counter[int] = Counter()
    for cta, block, _ in order(host_compile, 4096, 1, 64, 148, 0):
        keys[cta] += block + 1
    assert max(keys.values()) <= 1.025 * sum(keys.values()) / 148


def test_shapes_are_the_headers(host_compile: HostCompile) -> None:
    for head_dim in (64, 128):
        shape = params.sm100_prefill_shape(head_dim)
        said = host_compile(
            '#include "sm100/prefill/traits.cuh"\n#include <cstdio>\nint main() {'
            f"using T = fmha::PrefillTraits<{head_dim}>;"
            'std::printf("%d %d %d %d %d", T::kRows, T::kKeys, T::kStages, T::kShape.threads, T::kDynamicSharedBytes);}'
        )
        assert said.returncode == 0, said.stderr
        expected = (shape.rows, shape.keys, shape.stages, shape.threads, shape.shared_bytes)
        assert tuple(map(int, said.stdout.split())) == expected


@pytest.mark.parametrize(("head_dim", "rows"), params.SM100_PAIRS)
def test_shapes_of_pairs_are_the_headers(host_compile: HostCompile, head_dim: int, rows: int) -> None:
    shape = params.sm100_pair_shape(head_dim, rows)
    said = host_compile(
        '#include "sm100/pair/traits.cuh"\n#include <cstdio>\nint main() {'
        f"using T = fmha::PairTraits<{head_dim}, {rows}>;"
        'std::printf("%d %d %d %d %d %d %d", T::kRows, T::kCtaKeys, T::kSlots, T::kShape.threads, '
        "T::kDynamicSharedBytes, T::kCtas, T::kRowTile);}"
    )
    assert said.returncode == 0, said.stderr
    expected = (shape.rows, shape.keys, shape.stages, shape.threads, shape.shared_bytes, shape.ctas, shape.row_tile)
    assert tuple(map(int, said.stdout.split())) == expected


@pytest.mark.parametrize(
    "fields", [{"topk": 8, "s_sparse": 20}, {"page_size": 16}, {"splits": 3}, {"kv": "shared"}, {"p_path": "smem"}]
)
def test_what_it_does_not_know_the_other_kernel_runs(fields: dict[str, object]) -> None:
    large = Configuration(128, 4096, 4096, 64)
    assert is_prefill(chosen(large))
    assert not is_prefill(chosen(Configuration(128, 4096, 4096, 64, **fields)))
    asked = variant_for(Configuration(128, 300, 300, rows=256, **fields))
    assert asked == "no kernel for head_dim 128 with 256 rows a CTA on sm_100a yet"


def chosen(configuration: Configuration) -> Variant:
    variant = variant_for(configuration)
    assert isinstance(variant, Variant)
    return variant


@nvcc
@variants
def test_nothing_is_left_unwritten_where_rows_are_fewer_than_a_row_tile(
    artifacts: Mapping[str, Path], variant: Variant
) -> None:
    problem = make_problem(variant.head_dim, 1, 300, batch=3)
    got = run(EmulatorDevice(0, "late"), artifacts, variant, problem)
    assert (unwritten(got), errors(got, problem).nonfinite) == (0, 0)
