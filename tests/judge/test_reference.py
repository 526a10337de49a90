"""Properties of the definition. Nothing here has a tolerance beyond float64's own rounding."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays, make_inputs
from fmha.harness.judge.oracle.reference import Reference, dense_range, keys_seen, reference
from fmha.harness.judge.random_cases import Space, draw

SPACE = Space(head_dims=(8,), rows=40, keys=80, topk=30, batch=3, work=10**7)
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


@st.composite
def problems(draw_from: st.DrawFn) -> Inputs:
    """Inputs of any legal configuration; head_dim 8 is as general as any and quick."""
    case = draw(draw_from(st.randoms(use_true_random=False)), SPACE)
    return make_inputs(draw_from(st.integers(0, 2**32)), case)


def same(a: Reference, b: Reference) -> None:
    for name in ("o", "o_unnormalised", "row_max", "row_sum", "lse"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), **CLOSE, err_msg=name)


def merged(a: Reference, b: Reference, sink: np.ndarray | None) -> Reference:
    """The formula of docs/understand/semantics.md, written once more."""
    peak = np.maximum(a.row_max, b.row_max)
    shift = np.where(np.isneginf(peak), 0.0, peak)
    first, second = np.exp(a.row_max - shift), np.exp(b.row_max - shift)
    row_sum = a.row_sum * first + b.row_sum * second
    o = a.o_unnormalised * first[..., None] + b.o_unnormalised * second[..., None]
    with np.errstate(divide="ignore", over="ignore"):
        lse = peak + np.log(row_sum)
        extra = 0.0 if sink is None else np.exp(sink.astype(np.float64) - shift)
    divisor = np.where(row_sum == 0, 1.0, row_sum + extra)
    return Reference(o / divisor[..., None], o, peak, row_sum, lse, np.zeros_like(lse), np.ones_like(lse))


def without_sparse(inputs: Inputs) -> Inputs:
    return replace(inputs, sparse=None)


def without_dense(inputs: Inputs) -> Inputs:
    none = inputs.k[:, :0]
    return replace(inputs, k=none, v=None if inputs.v is None else none, kv_lens=None)


@settings(deadline=None)
@given(problems())
def test_nothing_unseen_reaches_an_output(inputs: Inputs) -> None:
    result = reference(inputs)
    assert np.isfinite(result.o).all()
    assert np.isfinite(result.o_unnormalised).all()
    assert np.isfinite(result.row_sum).all()
    assert not np.isnan(result.lse).any()
    assert (np.isneginf(result.lse) == (result.row_sum == 0)).all()
    assert (np.isneginf(result.row_max) == (result.row_sum == 0)).all()
    assert np.isfinite(result.lse_resolution).all()
    assert np.isfinite(result.slope_variance).all()


def test_a_long_key_allows_an_error_to_those_alone_who_see_it() -> None:
    inputs = make_inputs(0, Configuration(64, t=5, s_k=5, mask="causal"))
    longer = inputs.k.copy()
    longer[0, -1] = round_to_bf16(1000.0 * from_bf16(longer[0, -1]))
    before, after = (reference(each).lse_resolution for each in (inputs, replace(inputs, k=longer)))
    np.testing.assert_array_equal(after[0, :-1], before[0, :-1])
    assert (after[0, -1] > 10 * before[0, -1]).all()


def test_a_row_of_zeros_has_a_slope_without_variance() -> None:
    inputs = make_inputs(0, Configuration(64, t=2, s_k=5))
    assert inputs.v is not None
    found = reference(replace(inputs, v=np.zeros_like(inputs.v)))
    np.testing.assert_array_equal(found.slope_variance, 0.0)


@settings(deadline=None)
@given(problems())
def test_window_and_sparse_in_one_softmax_are_the_merge_of_two(inputs: Inputs) -> None:
    both = merged(reference(without_sparse(inputs)), reference(without_dense(inputs)), inputs.sink)
    if inputs.sparse is not None:
        same(reference(inputs), both)


@settings(deadline=None)
@given(problems(), st.integers(0, 80))
def test_splitting_the_keys_anywhere_changes_nothing(inputs: Inputs, place: int) -> None:
    """[0, place) and [place, kv_len), with positions kept."""
    batch, s_k = inputs.k.shape[:2]
    t = inputs.q.shape[1]
    place = min(place, s_k)
    lens = np.full(batch, s_k) if inputs.kv_lens is None else inputs.kv_lens.astype(np.int64)
    rows = t if inputs.q_lens is None else inputs.q_lens
    offsets = lens - rows if inputs.query_offsets is None else inputs.query_offsets.astype(np.int64)

    def part(keys: slice, kv_lens: np.ndarray, shift: int) -> Inputs:
        v = None if inputs.v is None else inputs.v[:, keys]
        return replace(
            inputs, k=inputs.k[:, keys], v=v, kv_lens=kv_lens.astype(np.int32), query_offsets=offsets - shift
        )

    head = part(slice(None, place), np.minimum(lens, place), 0)
    tail = without_sparse(part(slice(place, None), np.maximum(lens - place, 0), place))
    same(reference(inputs), merged(reference(head), reference(tail), inputs.sink))


@settings(deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(inputs: Inputs, random: np.random.Generator) -> None:
    """Without a window, which is about positions. Sparse lists are permuted below their length."""
    inputs = replace(inputs, window_left=None, window_right=None, kv_lens=None)
    order = list(range(inputs.k.shape[1]))
    random.shuffle(order)
    keys = np.isfinite(from_bf16(inputs.k)).all() and (inputs.v is None or np.isfinite(from_bf16(inputs.v)).all())
    if not keys:  # padding became keys
        return
    shuffled = replace(inputs, k=inputs.k[:, order], v=None if inputs.v is None else inputs.v[:, order])
    if inputs.sparse is not None and inputs.sparse.lens is None:
        columns = list(range(inputs.sparse.indices.shape[2]))
        random.shuffle(columns)
        shuffled = replace(shuffled, sparse=replace(inputs.sparse, indices=inputs.sparse.indices[..., columns]))
    same(reference(inputs), reference(shuffled))


@settings(deadline=None)
@given(problems())
def test_the_sink_is_one_more_key_whose_value_is_zero(inputs: Inputs) -> None:
    plain = reference(replace(inputs, sink=None))
    result = reference(inputs)
    for name in ("o_unnormalised", "row_max", "row_sum", "lse"):
        assert np.array_equal(getattr(result, name), getattr(plain, name)), name
    sink = np.full(inputs.q.shape[2], -np.inf) if inputs.sink is None else inputs.sink.astype(np.float64)
    # As a logit of its own: log of the grown denominator, where no exponential can overflow.
    grown = np.logaddexp(plain.lse, np.broadcast_to(sink, plain.lse.shape))
    with np.errstate(invalid="ignore"):
        shrink = np.where(np.isneginf(plain.lse), 0.0, np.exp(plain.lse - grown))
    np.testing.assert_allclose(result.o, plain.o * shrink[..., None], **CLOSE)


@settings(deadline=None)
@given(problems())
def test_seen_keys_are_those_of_the_mask_written_out(inputs: Inputs) -> None:
    batch, t = inputs.q.shape[:2]
    s_k = inputs.k.shape[1]
    for b in range(batch):
        kv_len = s_k if inputs.kv_lens is None else inputs.kv_lens[b]
        rows = t if inputs.q_lens is None else inputs.q_lens[b]
        offset = kv_len - rows if inputs.query_offsets is None else inputs.query_offsets[b]
        for i in range(rows):
            p = i + int(offset)  # far offsets leave 32 bits
            seen = [
                j
                for j in range(s_k)
                if j < kv_len
                and (inputs.window_right is None or j <= p + inputs.window_right)
                and (inputs.window_left is None or j >= p - inputs.window_left)
            ]
            assert list(range(s_k))[dense_range(inputs, b, i)] == seen


def plain(seed: int, **changes: int | str) -> Inputs:
    return make_inputs(seed, Configuration(**({"head_dim": 64, "t": 32, "s_k": 48, "heads": 3, "batch": 2} | changes)))


@pytest.mark.torch
@pytest.mark.parametrize("mask", ["none", "causal", "window"])
@pytest.mark.parametrize("kv", ["separate", "shared"])
def test_agrees_with_torch(mask: str, kv: str) -> None:
    import torch

    inputs = plain(3, mask=mask, kv=kv, window=7 if mask == "window" else 0)
    q, k = (torch.from_numpy(from_bf16(bits)) for bits in (inputs.q, inputs.k))
    v = k if inputs.v is None else torch.from_numpy(from_bf16(inputs.v))
    distance = torch.arange(32)[:, None] + 48 - 32 - torch.arange(48)[None, :]
    visible = {"none": distance > -99, "causal": distance >= 0, "window": (distance >= 0) & (distance < 7)}[mask]
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k[:, None].expand(-1, 3, -1, -1), v[:, None].expand(-1, 3, -1, -1),
        attn_mask=visible, scale=inputs.scale,
    )  # fmt: skip
    np.testing.assert_allclose(reference(inputs).o, expected.transpose(1, 2).numpy(), rtol=1e-11, atol=1e-13)


def test_a_gathered_row_is_a_key() -> None:
    """All rows listed in order, on the sparse side, are the dense branch."""
    inputs = plain(1)
    listed = np.broadcast_to(np.arange(48, dtype=np.int32), (2, 32, 48))
    gathered = replace(without_dense(inputs), sparse=SparseArrays(inputs.k, inputs.v, listed))
    same(reference(inputs), reference(gathered))


def test_an_index_listed_twice_counts_twice_and_invalid_ones_do_not_count() -> None:
    inputs = plain(2, t=1, batch=1)
    indices = np.array([[[5, 5, -1, 48, 7, 9]]], dtype=np.int32)
    sparse = SparseArrays(inputs.k, inputs.v, indices, np.array([[5]], dtype=np.int32))
    k, _ = keys_seen(replace(without_dense(inputs), sparse=sparse), 0, 0)
    assert np.array_equal(k, from_bf16(inputs.k[0, [5, 5, 7]]))


def test_is_stable_where_the_exponential_overflows() -> None:
    q, k, v = (round_to_bf16(np.array(values)) for values in ([[[[1.0]]]], [[[800.0], [804.0]]], [[[1.0], [2.0]]]))
    result = reference(Inputs(q, k, v, 1.0))
    mpmath.mp.dps = 40
    exact = mpmath.log(mpmath.exp(800) + mpmath.exp(804))
    assert result.lse[0, 0, 0] == pytest.approx(float(exact), rel=1e-15)
    assert np.isfinite(result.o).all()


def test_a_row_without_keys() -> None:
    result = reference(plain(0, t=4, s_k=2, mask="causal"))
    assert np.isneginf(result.lse[:, :2]).all()
    assert np.isneginf(result.row_max[:, :2]).all()
    assert (result.row_sum[:, :2] == 0).all()
    assert (result.o[:, :2] == 0).all()
    assert np.isfinite(result.lse[:, 2:]).all()


@pytest.mark.parametrize("sink", ["finite", "mixed"])
def test_a_row_without_keys_has_zeros_whatever_the_sink(sink: str) -> None:
    result = reference(plain(0, t=4, s_k=2, mask="causal", heads=4, sink=sink))
    assert (result.o[:, :2] == 0).all()


def test_infinite_sinks() -> None:
    inputs = plain(0, heads=4, sink="mixed")
    result, bare = reference(inputs), reference(replace(inputs, sink=None))
    assert (result.o[:, :, 1] == 0).all()
    assert np.array_equal(result.o[:, :, 3], bare.o[:, :, 3])
