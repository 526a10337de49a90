"""Every forward variant on the emulator, strict profile, against the float64 reference."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator.explore import schedules_of
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.oracle.inputs import SparseArrays
from fmha.harness.judge.oracle.outputs import Outputs
from fmha.harness.judge.oracle.reference import reference, sparse_rows
from fmha.harness.kernel_side.launch import launch_attention
from fmha.harness.kernel_side.variants import VARIANTS, goes_through_row_tiles, kind_of, variant_for
from fmha.harness.see.lengths import given
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.devices.factory import device_factory
from fmha.harness.worker.launch.run_attention import run_attention
from tests.builds import Artifacts, Builds
from tests.kernel.kept import marks
from tests.kernel.rig import Errors, Problem, errors, make_problem, run, unwritten

pytestmark = pytest.mark.nvcc

INFINITY = np.float32(np.inf)
MIN_COSINE = 0.999996  # seed 001's figure
MIN_COSINE_BF16 = 0.99999  # O rounded to bf16: relative 2^-9 an element
MAX_LSE_ERROR = 1e-4

NAN, INF = 0x7FC0, 0x7F80  # of bf16


def each(chosen: Iterable[Variant]) -> pytest.MarkDecorator:
    """Tests of one variant go to one worker, which reads and decodes its PTX once."""
    groups = {variant: [pytest.mark.xdist_group(f"forward-{variant.name}"), *marks(variant)] for variant in chosen}
    return pytest.mark.parametrize("variant", [pytest.param(v, marks=m, id=v.name) for v, m in groups.items()])


# What knows no windows and lists, and what of sm_90a has other rows: test_sm90.py; for many rows: test_prefill.py.
variants = each(
    v
    for v in VARIANTS
    if not goes_through_row_tiles(v)
    and (v.arch == "sm_100a" or (kind_of(v) == "whole" and "FMHA_ROWS" not in dict(v.defines)))
)
# One of each head_dim, and the other path of P.
some = each(
    v
    for v in VARIANTS
    if (v.head_dim, v.p_path) in ((64, "tmem"), (256, "smem"), (512, "smem")) and not goes_through_row_tiles(v)
)


@pytest.fixture(scope="module")
def artifacts(builds: Builds) -> Mapping[str, Path]:
    return Artifacts(builds)


def check(
    artifacts: Mapping[str, Path], variant: Variant, problem: Problem, schedule: str = "realistic", seed: int = 0
) -> tuple[Outputs, Errors]:
    got = run(EmulatorDevice(seed, schedule), artifacts, variant, problem)
    found = errors(got, problem)
    where = f"{schedule}, seed {seed}"
    assert got.report.findings == (), where
    assert (unwritten(got), found.nonfinite) == (0, 0), where
    assert found.cosine >= (MIN_COSINE_BF16 if problem.output_bf16 else MIN_COSINE), where
    assert found.lse <= MAX_LSE_ERROR, where
    assert found.row_max <= MAX_LSE_ERROR, where
    assert found.row_sum <= MAX_LSE_ERROR, where
    return got, found


@some
def test_sums_as_silicon_makes_them_differ_in_the_last_bits(artifacts: Mapping[str, Path], variant: Variant) -> None:
    problem = make_problem(variant.head_dim, 32, 256, batch=2)  # CTAs on two threads
    fast, _ = check(artifacts, variant, problem)
    silicon = run(device_factory("emulator-silicon")(0, "realistic"), artifacts, variant, problem)
    assert silicon.report.findings == ()
    difference = np.linalg.norm(silicon.o_values - fast.o_values) / np.linalg.norm(fast.o_values)
    assert 0 < difference < 1e-4


def poisoned(problem: Problem) -> Problem:
    """NaN and infinity wherever the semantics says that anything may be."""
    inputs = problem.inputs
    filling = np.where(np.arange(inputs.q.shape[3]) % 2, NAN, INF).astype(np.uint16)
    changed: dict[str, object] = {}
    if inputs.kv_lens is not None:
        past = np.arange(inputs.k.shape[1]) >= inputs.kv_lens[:, np.newaxis]
        changed = {"k": filled(inputs.k, past, filling), "v": filled(inputs.v, past, filling)}
    if (sparse := inputs.sparse) is not None:
        unnamed = np.ones(sparse.k.shape[:2], dtype=np.bool_)
        for b, i in np.ndindex(*sparse.indices.shape[:2]):
            unnamed[b, sparse_rows(sparse, b, i)] = False
        k, v = filled(sparse.k, unnamed, filling), filled(sparse.v, unnamed, filling)
        changed["sparse"] = SparseArrays(k, v, sparse.indices, sparse.lens)
    assert changed, "nothing to poison"
    return problem.replace(**changed)


def filled(tensor: NDArray[np.uint16] | None, rows: NDArray[np.bool_], filling: NDArray[np.uint16]) -> Any:
    """`tensor` with `filling` in some of its rows."""
    return None if tensor is None else np.where(rows[..., np.newaxis], filling, tensor)


@variants
@pytest.mark.parametrize(("t", "s_k"), [(1, 1), (77, 129), (128, 512)])
def test_dense(artifacts: Mapping[str, Path], variant: Variant, t: int, s_k: int) -> None:
    check(artifacts, variant, make_problem(variant.head_dim, t, s_k))


@variants
def test_rows_beyond_one_cta(artifacts: Mapping[str, Path], variant: Variant) -> None:
    check(artifacts, variant, make_problem(variant.head_dim, 3, 200, heads=70, batch=2, window_right=0))
    check(artifacts, variant, make_problem(variant.head_dim, 141, 150, window_left=40, window_right=0))


@variants
def test_keys_and_values_in_one_tensor(artifacts: Mapping[str, Path], variant: Variant) -> None:
    for s_k in (1, 64, 128, 700):
        check(artifacts, variant, make_problem(variant.head_dim, 3, s_k, heads=8, shared_kv=True))


@variants
def test_masks(artifacts: Mapping[str, Path], variant: Variant) -> None:
    head_dim = variant.head_dim
    check(artifacts, variant, make_problem(head_dim, 70, 384, window_right=0))
    # More queries than keys: the first 70 see nothing.
    check(artifacts, variant, make_problem(head_dim, 130, 60, window_right=0))
    check(artifacts, variant, make_problem(head_dim, 33, 384, window_left=127, window_right=0))
    check(artifacts, variant, make_problem(head_dim, 33, 200, window_left=3, window_right=5))
    # As wide as an int32 goes, which must not wrap.
    check(artifacts, variant, make_problem(head_dim, 5, 200, window_left=2**31 - 1, window_right=2**31 - 1))
    offsets = np.array([-40, 150, 500], dtype=np.int32)
    check(
        artifacts,
        variant,
        make_problem(head_dim, 60, 200, batch=3, window_left=70, window_right=10, query_offsets=offsets),
    )


@variants
def test_lengths_with_anything_in_the_padding(artifacts: Mapping[str, Path], variant: Variant) -> None:
    lengths = np.array([0, 1, 129, 200, 63], dtype=np.int32)
    for fields in ({}, {"window_right": 0}, {"window_left": 20, "window_right": 0}, {"shared_kv": True}):
        problem = make_problem(variant.head_dim, 4, 200, heads=3, batch=5, kv_lens=lengths, **fields)
        check(artifacts, variant, poisoned(problem))


@variants
def test_a_sequence_without_keys(artifacts: Mapping[str, Path], variant: Variant) -> None:
    got, _ = check(artifacts, variant, make_problem(variant.head_dim, 3, 0, heads=2))
    assert np.isneginf(got.lse).all()
    assert not got.o_values.any()


@variants
def test_sparse_branch(artifacts: Mapping[str, Path], variant: Variant) -> None:
    head_dim = variant.head_dim
    lens = np.array([[0, 1, 64], [130, 65, 129]], dtype=np.int32)
    sparse = {"heads": 5, "batch": 2, "s_sparse": 100, "topk": 130}
    check(artifacts, variant, poisoned(make_problem(head_dim, 3, 200, **sparse, window_left=99, window_right=0)))
    check(artifacts, variant, poisoned(make_problem(head_dim, 3, 0, **sparse, sparse_lens=lens)))
    check(artifacts, variant, poisoned(make_problem(head_dim, 3, 70, **sparse, sparse_lens=lens, shared_kv=True)))
    # Heads that do not fill the last CTA of a query, whose other rows belong to the next query.
    check(artifacts, variant, make_problem(head_dim, 2, 60, heads=130, s_sparse=40, topk=3, window_right=0))


def with_indices(problem: Problem, indices: NDArray[np.int32]) -> Problem:
    sparse = problem.inputs.sparse
    assert sparse is not None
    return problem.replace(sparse=dataclasses.replace(sparse, indices=indices))


@variants
def test_index_lists_that_name_nothing(artifacts: Mapping[str, Path], variant: Variant) -> None:
    nothing = np.full((1, 2, 70), -1, dtype=np.int32)
    problem = make_problem(variant.head_dim, 2, 90, heads=3, s_sparse=50, topk=70)
    problem = with_indices(problem, nothing).replace(window_left=0, window_right=0)
    check(artifacts, variant, poisoned(problem))
    check(artifacts, variant, make_problem(variant.head_dim, 2, 90, heads=3, s_sparse=0, topk=7))
    # Some tiles empty and others not, in a row: the anchor is set by the first key that is seen.
    gaps = np.full((1, 2, 400), -1, dtype=np.int32)
    gaps[0, :, 300] = 7
    problem = make_problem(variant.head_dim, 2, 0, heads=3, s_sparse=50, topk=400)
    check(artifacts, variant, poisoned(with_indices(problem, gaps)))


@variants
@pytest.mark.parametrize("bf16", [False, True])
def test_normalised_with_sinks(artifacts: Mapping[str, Path], variant: Variant, bf16: bool) -> None:
    sink = np.array([-INFINITY, INFINITY, 0.0, 3.0, -80.0, 120.0], dtype=np.float32)
    fields = {"heads": 6, "normalise": True, "output_bf16": bf16, "sink": sink}
    got, _ = check(artifacts, variant, make_problem(variant.head_dim, 3, 150, **fields))
    assert not got.o_values[:, :, 1].any()
    # The first queries see no key: a sink gives them none.
    check(artifacts, variant, make_problem(variant.head_dim, 8, 3, window_right=0, **fields))


@variants
def test_normalising_in_the_epilogue_costs_nothing(artifacts: Mapping[str, Path], variant: Variant) -> None:
    """Seed 003 lost 3% in a round trip; here both ways differ by rounding."""
    problem = make_problem(variant.head_dim, 32, 384)
    unnormalised, _ = check(artifacts, variant, problem)
    normalised, _ = check(artifacts, variant, problem.replace(normalise=True))
    expected = unnormalised.o_values / unnormalised.row_sum[..., np.newaxis]
    np.testing.assert_allclose(normalised.o_values, expected, rtol=1e-6)


@variants
def test_splits(artifacts: Mapping[str, Path], variant: Variant) -> None:
    sink = np.array([0.5, -1.0, INFINITY], dtype=np.float32)
    lengths = np.array([0, 700], dtype=np.int32)
    problem = make_problem(variant.head_dim, 5, 700, heads=3, batch=2, kv_lens=lengths, window_right=0, sink=sink)
    problem = poisoned(problem.replace(normalise=True))
    for splits in (2, 5, 40):  # the last: more splits than tiles
        first, _ = check(artifacts, variant, problem.replace(splits=splits))
        again, _ = check(artifacts, variant, problem.replace(splits=splits), "random", 3)
        for name in ("o", "row_max", "row_sum", "lse"):
            np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    sparse = make_problem(
        variant.head_dim, 2, 300, heads=3, s_sparse=90, topk=200, splits=4, output_bf16=True, normalise=True
    )
    check(artifacts, variant, poisoned(sparse))
    check(artifacts, variant, make_problem(variant.head_dim, 40, 512, splits=3))


# Balanced splits on the kernels that know them, 16 heads of packed queries.
BEHIND = "t40_sk600_b3_h16_lens-ragged_qlens-ragged_out-bf16_splits25"
OF_64 = f"hd64_{BEHIND}_rows64_merge-balanced_packed-both"
OF_128 = f"hd128_{BEHIND}_merge-balanced_packed-both"
OF_256 = f"hd256_{BEHIND}_rows128_merge-balanced_packed-both"


@pytest.mark.parametrize(
    ("name", "queries"),
    [
        (OF_64, (40, 1, 40)),
        (OF_128, (0, 40, 5)),
        pytest.param(OF_64, (0, 40, 5), marks=pytest.mark.nightly),
        pytest.param(OF_128, (40, 1, 40), marks=pytest.mark.nightly),
        # Pairs never did otherwise.
        pytest.param(OF_256, (40, 1, 40), marks=pytest.mark.nightly),
        pytest.param(OF_256, (0, 40, 5), marks=pytest.mark.nightly),
    ],
)
def test_behind_the_last_query_nothing_is_loaded_or_multiplied(
    artifacts: Mapping[str, Path], name: str, queries: tuple[int, ...]
) -> None:
    item = parse_id(name)
    variant = variant_for(item, "sm_100a")
    assert isinstance(variant, Variant)
    module, keys = Path(artifacts[variant.name]), np.full(3, 600, np.int32)

    def got(of: tuple[int, ...]) -> tuple[Outputs, Problem]:
        inputs = given(item, keys, np.array(of, np.int32)).inputs
        device = EmulatorDevice(0, "realistic")
        found = run_attention(device, device.load(module), variant, item, inputs)
        return found, Problem(inputs, {"normalise": True, "output_bf16": True})

    def row_tiles(of: tuple[int, ...]) -> int:
        return sum(-(-count * item.heads // (variant.shape.rows * variant.shape.ctas)) for count in of)

    (some_rows, problem), (all_rows, _) = got(queries), got((40, 40, 40))
    found = errors(some_rows, problem)
    assert (some_rows.report.findings, found.nonfinite) == ((), 0)
    assert found.cosine >= MIN_COSINE_BF16
    for counted in ("mma", "bulk_loads"):
        each = all_rows.report.stats[counted] // row_tiles((40, 40, 40))
        assert some_rows.report.stats[counted] == each * row_tiles(queries)


@some
@pytest.mark.parametrize("splits", [1, 2])
def test_statistics_may_be_left_out(artifacts: Mapping[str, Path], variant: Variant, splits: int) -> None:
    problem = make_problem(variant.head_dim, 3, 300, splits=splits)
    device = EmulatorDevice(0, "realistic")
    addresses = {name: device.alloc(count * 4, name) for name, count in problem.call.partial_elements.items()}
    addresses["o"] = device.alloc(problem.inputs.q.size * 4, "o")
    for name in ("q", "k", "v"):
        tensor = getattr(problem.inputs, name)
        addresses[name] = device.alloc(tensor.nbytes, name)
        device.upload(addresses[name], tensor)
    report = launch_attention(device, device.load(artifacts[variant.name]), variant, problem.call, addresses)
    assert report.findings == ()
    o = device.download(addresses["o"], problem.inputs.q.size * 4).view(np.float32)
    np.testing.assert_array_equal(o, run(device, artifacts, variant, problem).o.ravel())


def growing(head_dim: int, step: float, t: int = 4) -> Problem:
    """Scores whose maximum grows by `step` (natural units) from one tile of 64 keys to the next."""
    problem = make_problem(head_dim, t, 512, heads=2, scale=1.0)
    q, k = np.zeros_like(problem.inputs.q), np.zeros_like(problem.inputs.k)
    q[..., 0] = 0x3F80  # 1.0
    levels = np.repeat(np.arange(8, dtype=np.float32) * np.float32(step), 64)
    k[0, :, 0] = (levels.view(np.uint32) >> 16).astype(np.uint16)
    return problem.replace(q=q, k=k)


@variants
def test_rescale_below_and_above_the_threshold(artifacts: Mapping[str, Path], variant: Variant) -> None:
    """8 in log2 is 5.5: steps of 4 cross it every other tile."""
    check(artifacts, variant, growing(variant.head_dim, 4.0))


@some
@pytest.mark.parametrize("step", [1.0, 64.0, -8.0])
def test_rescale_seldom_always_and_never(artifacts: Mapping[str, Path], variant: Variant, step: float) -> None:
    """Steps of 1 add up to the threshold, steps of 64 cross it every time, -8 never."""
    check(artifacts, variant, growing(variant.head_dim, step))


@variants
@pytest.mark.parametrize("amplitude", [1e-4, 30.0])
def test_small_and_large_logits(artifacts: Mapping[str, Path], variant: Variant, amplitude: float) -> None:
    check(artifacts, variant, make_problem(variant.head_dim, 32, 300, amplitude=amplitude, window_right=0))


@some
def test_very_large_logits(artifacts: Mapping[str, Path], variant: Variant) -> None:
    """LSE and row_max are as exact as a dot product in fp32; row_sum, relative to the true maximum, does not suffer."""
    problem = make_problem(variant.head_dim, 16, 300, amplitude=3000.0)
    got = run(EmulatorDevice(0, "realistic"), artifacts, variant, problem)
    expected = reference(problem.inputs)
    found = errors(got, problem, expected)
    peak = float(np.abs(expected.row_max).max())
    assert peak > 5000
    assert (found.nonfinite, unwritten(got), got.report.findings) == (0, 0, ())
    assert found.cosine >= MIN_COSINE
    # The roundings of head_dim additions of fp32, a random walk.
    assert found.lse <= peak * variant.head_dim**0.5 * 2**-24
    assert found.row_sum <= 1e-4


@pytest.mark.slow
@variants
def test_many_schedules(artifacts: Mapping[str, Path], variant: Variant) -> None:
    """With every feature at once, and with a maximum that grows; equal bits under all schedules."""
    sink = np.linspace(-2, 2, 5, dtype=np.float32)
    lengths = np.array([300, 77], dtype=np.int32)
    problem = make_problem(
        variant.head_dim, 2, 300, heads=5, batch=2, s_sparse=90, topk=150, kv_lens=lengths, window_left=249,
        window_right=0, sink=sink, normalise=True, splits=2,
    )  # fmt: skip
    problem = poisoned(problem)
    plain = make_problem(variant.head_dim, 128, 448, amplitude=8.0, shared_kv=True)
    for item, schedules in ((problem, 10), (plain, 6)):
        runs = [check(artifacts, variant, item, schedule, seed)[0] for schedule, seed in schedules_of(schedules)]
        for other in runs[1:]:
            np.testing.assert_array_equal(other.o, runs[0].o)
            np.testing.assert_array_equal(other.lse, runs[0].lse)
