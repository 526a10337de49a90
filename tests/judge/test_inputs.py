import dataclasses
import hashlib
import math
from typing import get_args

import numpy as np
import pytest

from fmha.harness.judge.configuration import OF_ONE_HEAD, Configuration, Data
from fmha.harness.judge.oracle import kinds
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.judge.oracle.inputs import POISON_BITS, make_inputs, softmax_scale
from fmha.harness.judge.oracle.reference import dense_range, sparse_rows
from fmha.harness.judge.random_cases import Space, draw_cases

CONFIGURATION = Configuration(64, 4, 128, batch=2)


def digest(inputs):
    return hashlib.sha256(inputs.q.tobytes() + inputs.k.tobytes() + inputs.v.tobytes()).hexdigest()


def test_shapes_and_scale():
    inputs = make_inputs(0, CONFIGURATION)
    assert inputs.q.shape == (2, 4, 1, 64)
    assert inputs.k.shape == inputs.v.shape == (2, 128, 64)
    assert inputs.scale == 0.125


def test_the_stream_is_pinned():
    # A change here means that no result can be compared with an archived one.
    expected = "c1a006e909a3119bd7acfd55633ca82f98002b4835471c6237d026e5e9def880"
    assert digest(make_inputs(0, CONFIGURATION)) == expected


def test_depends_on_seed_and_configuration_alone():
    first = digest(make_inputs(0, CONFIGURATION))
    make_inputs(0, Configuration(64, 1, 128))
    assert digest(make_inputs(0, CONFIGURATION)) == first
    assert digest(make_inputs(1, CONFIGURATION)) != first
    assert digest(make_inputs(0, Configuration(64, 4, 128, batch=2, mask="causal"))) != first


def test_is_standard_normal():
    values = from_bf16(make_inputs(0, Configuration(64, 128, 512)).k)
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02


@pytest.mark.torch
def test_rounds_as_torch_does():
    import torch

    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    values[:4] = [1.00390625, 1.01171875, -0.0, 3.3e38]  # two ties, a signed zero, a finite value near the top
    ours = from_bf16(round_to_bf16(values))
    theirs = torch.from_numpy(values).to(torch.bfloat16).to(torch.float64).numpy()
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("head_dim", [64, 128, 256, 512])
def test_scale_is_what_a_float32_holds(head_dim):
    assert softmax_scale(head_dim) == float(np.float32(softmax_scale(head_dim)))
    assert softmax_scale(head_dim) == pytest.approx(head_dim**-0.5, rel=1e-7)


RAGGED = Configuration(64, 6, 200, batch=5, kv_lens="ragged", topk=20, s_sparse=90, sparse_indices="holes", kv="shared")


def test_a_problem_s_inputs_do_not_depend_on_how_it_is_run():
    first = digest(make_inputs(0, CONFIGURATION))
    for changes in ({"splits": 3}, {"output": "bf16"}, {"p_path": "smem"}, {"output": "fp32", "statistics": "lse"}):
        assert digest(make_inputs(0, dataclasses.replace(CONFIGURATION, **changes))) == first


def test_everything_that_may_hold_anything_is_poison_and_nothing_else_is():
    inputs = make_inputs(0, RAGGED)
    finite = np.isfinite(from_bf16(inputs.k)).all(axis=2) & (np.abs(from_bf16(inputs.k)) < 1e30).all(axis=2)
    assert np.array_equal(finite, np.arange(200) < inputs.kv_lens[:, np.newaxis])
    assert set(POISON_BITS) == set(inputs.k[~finite].reshape(-1))
    for entry in range(5):
        named = {int(row) for query in range(6) for row in sparse_rows(inputs.sparse, entry, query)}
        clean = (np.abs(from_bf16(inputs.sparse.k[entry])) < 1e30).all(axis=1)
        assert {int(row) for row in np.flatnonzero(clean)} == named


def test_ragged_lengths_have_an_empty_one_and_a_full_one():
    lens = make_inputs(0, dataclasses.replace(RAGGED, batch=16)).kv_lens
    assert 0 in lens
    assert 200 in lens
    assert len(set(lens)) > 8


def test_holes_are_invalid_on_both_sides_and_some_entries_are_not():
    indices = make_inputs(0, RAGGED).sparse.indices
    assert (indices < -1).any()
    assert (indices == -1).any()
    assert (indices >= 90).any()
    assert 0.5 < ((indices >= 0) & (indices < 90)).mean() < 0.8


def test_mixed_offsets_leave_some_queries_without_keys_and_some_with_all():
    inputs = make_inputs(0, Configuration(64, 30, 20, batch=40, mask="causal", query_offsets="mixed"))
    seen = {len(range(20)[dense_range(inputs, b, i)]) for b in range(40) for i in range(30)}
    assert {0, 20} < seen


def test_each_kind_of_data_but_the_usual_one_has_its_row():
    assert set(kinds._KINDS) == set(get_args(Data)) - {"normal"}


def test_extreme_logits_span_nine_decades():
    inputs = make_inputs(0, Configuration(64, 32, 256, heads=4, data="extreme"))
    logits = inputs.scale * from_bf16(inputs.q).reshape(-1, 64) @ from_bf16(inputs.k[0]).T
    peaks = np.abs(logits).max(axis=1)
    assert peaks.min() < 1e-4
    assert peaks.max() > 1e3


def logits_of(inputs, entry=0):
    """[t * heads, s_k] of a batch entry of one K/V head, in natural-log units."""
    head_dim = inputs.q.shape[-1]
    return inputs.scale * from_bf16(inputs.q[entry]).reshape(-1, head_dim) @ from_bf16(inputs.k[entry]).T


@pytest.mark.parametrize("scale", ["root", "0.02"])
def test_an_early_key_is_a_sink_and_the_rest_small_one_by_one(scale):
    inputs = make_inputs(0, Configuration(128, 4, 2048, batch=3, heads=2, data="sinkkey", scale=scale))
    for entry in range(3):
        weights = np.exp(logits_of(inputs, entry))
        sinks = set(weights.argmax(axis=1))
        assert len(sinks) == 1
        (sink,) = sinks
        assert sink < 4
        others = np.delete(weights, sink, axis=1)
        assert (others.max(axis=1) < 1e-3 * weights[:, sink]).all()
        assert (others.sum(axis=1) > 0.015 * weights[:, sink]).all()
        lengths = np.linalg.norm(from_bf16(inputs.v[entry]), axis=1)
        assert lengths[sink] < 0.05 * np.delete(lengths, sink).min()


def test_without_dense_keys_the_sink_is_a_row_of_lists():
    inputs = make_inputs(0, Configuration(64, 3, 0, topk=40, s_sparse=40, data="sinkkey"))
    rows = from_bf16(inputs.sparse.k[0])
    weights = np.exp(inputs.scale * from_bf16(inputs.q).reshape(-1, 64) @ rows.T)
    assert (weights.argmax(axis=1) == 0).all()


def test_recent_keys_count_more():
    inputs = make_inputs(0, Configuration(64, 8, 1024, heads=4, data="recency"))
    means = logits_of(inputs).reshape(32, 8, 128).mean(axis=2)
    paces = means[:, -1] - means[:, 0]
    assert (np.diff(means, axis=1) > -0.5).all()
    assert paces.min() < 3
    assert paces.max() > 15


def test_twins_lie_close_by_and_apart_from_other_blocks():
    keys = from_bf16(make_inputs(0, Configuration(64, 1, 256, data="twins")).k[0]).reshape(16, 16, 64)
    within = np.linalg.norm(keys - keys.mean(axis=1, keepdims=True), axis=2)
    centres = keys.mean(axis=1)
    between = np.linalg.norm(centres[:, None] - centres[None], axis=2)[~np.eye(16, dtype=bool)]
    assert within.min() > 0.1
    assert within.max() < 0.1 * between.min()
    assert len(np.unique(keys.reshape(256, 64), axis=0)) == 256


def test_a_few_channels_are_large_over_the_whole_sequence():
    keys = from_bf16(make_inputs(0, Configuration(128, 1, 300, batch=2, data="channels")).k)
    means = np.abs(keys.mean(axis=(0, 1)))
    assert np.count_nonzero(means > 10) == 4
    assert np.count_nonzero(means < 0.5) == 124


@pytest.mark.parametrize("data", [kind for kind in get_args(Data) if kind not in OF_ONE_HEAD])
def test_data_that_are_not_of_one_head_have_several_and_packed_queries(data):
    inputs = make_inputs(
        0, Configuration(64, 5, 90, batch=3, heads=4, kv_heads=2, packed="q", q_lens="ragged", data=data)
    )
    assert inputs.k.shape == (3, 90, 2, 64)
    assert np.isfinite(from_bf16(inputs.q)).all()


@pytest.mark.parametrize(("asked", "expected"), [("root", 1 / math.sqrt(128)), ("0.02", 0.02), ("0.25", 0.25)])
def test_the_scale_is_what_a_configuration_asks_for(asked, expected):
    assert make_inputs(0, Configuration(128, 1, 9, scale=asked)).scale == float(np.float32(expected))


def test_a_mixed_sink_has_both_infinities():
    sink = make_inputs(0, Configuration(64, 1, 8, heads=6, sink="mixed")).sink
    assert np.isposinf(sink[[1, 5]]).all()
    assert np.isneginf(sink[3])
    assert np.isfinite(sink[[0, 2, 4]]).all()


CASES = draw_cases(1, 40, Space(head_dims=(8,), rows=50, keys=100, topk=40, batch=4, work=10**8))


@pytest.mark.parametrize("configuration", CASES, ids=lambda item: item.id)
def test_shapes_are_those_of_the_semantics(configuration):
    item, inputs = configuration, make_inputs(0, configuration)
    assert inputs.q.shape == (item.batch, item.t, item.heads, item.head_dim)
    heads = (item.kv_heads,) if item.kv_heads > 1 else ()
    assert inputs.k.shape == (item.batch, item.s_k, *heads, item.head_dim)
    assert (inputs.v is None) == (item.kv == "shared")
    assert (inputs.sparse is None) == (item.topk == 0)
    assert (inputs.kv_lens is None) == (item.kv_lens == "full")
    assert (inputs.sink is None) == (item.sink == "none")
    if inputs.sparse is not None:
        assert inputs.sparse.k.shape == (item.batch, item.s_sparse, item.head_dim)
        assert (inputs.sparse.v is None) == (inputs.v is None)
        assert inputs.sparse.indices.shape == (item.batch, item.t, item.topk)
        assert inputs.sparse.indices.dtype == np.int32
