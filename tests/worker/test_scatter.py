"""K and V in pages, and packed rows: what lies where, and what poison is around it."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.oracle.inputs import POISON_BITS, make_inputs
from fmha.harness.worker.launch.run_attention import call_of, laid_out
from fmha.harness.worker.launch.scatter import key_lengths, packed, scattered, scattered_call, unpacked


def test_v_lies_otherwise_than_k_where_heads_are_apart() -> None:
    """Or a launcher could read V by the strides of K."""
    item = parse_id("hd64_t1_sk300_b3_h10_kvh5_layout-bhsd")
    inputs = make_inputs(0, item)
    call = call_of(item, inputs, "sm_100a")
    assert call.k_strides is not None
    assert call.v_strides is not None
    assert call.k_strides != call.v_strides
    assert inputs.v is not None
    memory = laid_out(inputs.v, call.v_strides, item.head_dim)
    entry, row, head = call.v_strides
    for place in np.ndindex(3, 300, 5):
        start = int(np.dot(place, (entry, row, head)))
        np.testing.assert_array_equal(memory[start : start + 64], inputs.v[place])
    assert np.isin(memory, POISON_BITS).sum() >= 64 * (3 * 5 - 1)  # behind each head but the last


@pytest.mark.parametrize(
    "name",
    [
        "hd64_t3_sk100_b6_h4_kvh2_lens-ragged_page16",
        "hd64_t3_sk128_b2_page64",
        "hd64_t3_sk100_b3_window20_lens-ragged_page32",
    ],
)
def test_pages_hold_what_queries_see_and_all_else_is_poison(name: str) -> None:
    item = parse_id(name)
    inputs = make_inputs(0, item)
    found, call = scattered(item, inputs), scattered_call(item, inputs)
    size, pages, table = item.page_size, found["k"], found["block_table"]
    assert pages.shape == (call["pages"], size, *inputs.k.shape[2:])
    assert table.shape == (item.batch, call.get("s_k", item.s_k) // size)
    lengths, seen = key_lengths(inputs), np.zeros(pages.shape[:2], bool)
    for entry, length in enumerate(lengths):
        first = max(0, length - item.t - 19) if item.mask == "window" else 0
        for key in range(first, length):
            page, row = table[entry, key // size], key % size
            np.testing.assert_array_equal(pages[page, row], inputs.k[entry, key])
            seen[page, row] = True
        unseen = table[entry, -(-int(length) // size) :]
        assert not seen[unseen[(unseen >= 0) & (unseen < len(pages))]].any()
    assert seen.sum(axis=1).min() == 0
    if item.mask == "none":
        assert np.isin(pages[~seen], POISON_BITS).all()
    assert ("kv_lens" in found) == (item.kv_lens == "ragged")


def test_packed_rows_come_back_in_order() -> None:
    rows = np.arange(24.0).reshape(3, 4, 2)
    lengths = np.array([3, 0, 2], np.int32)
    together = packed(rows, lengths)
    assert together[0].tolist() == [*rows[0, :3].tolist(), *rows[2, :2].tolist()]
    apart = unpacked(together[0], lengths, 4, -1.0)
    assert (apart[0, :3] == rows[0, :3]).all()
    assert (apart[0, 3:] == -1.0).all()
    assert (apart[1] == -1.0).all()


def test_packed_operands_say_where_sequences_begin() -> None:
    item = parse_id("hd64_t5_sk20_b6_h4_kvh2_lens-ragged_qlens-ragged_packed-both")
    inputs = make_inputs(0, item)
    found, call = scattered(item, inputs), scattered_call(item, inputs)
    assert inputs.q_lens is not None
    assert inputs.kv_lens is not None
    assert found["cu_seqlens_q"].tolist() == [0, *np.cumsum(inputs.q_lens)]
    assert found["cu_seqlens_k"].tolist() == [0, *np.cumsum(inputs.kv_lens)]
    assert found["q"].shape == (1, call["total_q"], 4, 64)
    assert found["v"].shape == (1, call["total_k"], 2, 64)
    assert found["kv_lens"].size == 0
    begin, end = found["cu_seqlens_k"][5:7]
    np.testing.assert_array_equal(found["k"][0, begin:end], inputs.k[5, : end - begin])
