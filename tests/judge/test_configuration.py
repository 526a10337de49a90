import dataclasses
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.harness.judge import random_cases
from fmha.harness.judge.configuration import AXES, DEFAULTS, Configuration, fault, parse_id
from fmha.harness.judge.random_cases import Space, draw, smaller, work

SPACE = Space(head_dims=(64, 128, 256, 512), rows=256, keys=1000, topk=300, batch=4, work=10**9)
CASES = st.randoms(use_true_random=False).map(lambda random: draw(random, SPACE))


@given(CASES)
def test_a_name_says_everything(case):
    assert parse_id(case.id) == case
    assert fault(case) is None
    assert work(case) <= SPACE.work


@given(CASES)
def test_smaller_cases_are_legal_and_smaller(case):
    for less in smaller(case):
        assert fault(less) is None
        assert less != case
        assert work(less) <= work(case)


@given(CASES)
def test_every_field_is_set_to_its_default_where_that_is_legal(case):
    names = {step.id for step in smaller(case)}
    sizes = {"head_dim", "t", "s_k", "window", "left", "right", "s_sparse"}  # go down step by step, or not at all
    for name in set(DEFAULTS) - sizes:
        simpler = replace(case, **{name: DEFAULTS[name]})
        assert simpler == case or fault(simpler) or simpler.id in names, name


def test_a_field_that_says_what_is_drawn_changes_nothing_else_of_what_is_drawn(monkeypatch):
    tight = replace(SPACE, work=10**6)  # most proposals are too much: what is drawn with one is not to move the next
    plain = [draw(Random(seed), tight) for seed in range(100)]
    monkeypatch.setattr(random_cases, "AXES", AXES | {"merge": replace(AXES["merge"], drawn=("auto", "combine"))})
    drawn = [draw(Random(seed), tight) for seed in range(100)]
    assert [replace(case, merge="auto") for case in drawn] == plain
    assert {case.merge for case in drawn} == {"auto", "combine"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "hd64_t32_sk384"),
        ({"batch": 2, "mask": "causal"}, "hd64_t32_sk384_b2_causal"),
        ({"mask": "window", "window": 128}, "hd64_t32_sk384_window128"),
        ({"mask": "band", "left": 3}, "hd64_t32_sk384_band3toall"),
        ({"heads": 64, "kv": "shared", "topk": 512, "s_sparse": 2048}, "hd64_t32_sk384_h64_kvshared_top512_of2048"),
        ({"output": "bf16", "splits": 4, "p_path": "smem"}, "hd64_t32_sk384_out-bf16_splits4_p-smem"),
        ({"heads": 8, "kv_heads": 2, "layout": "fused"}, "hd64_t32_sk384_h8_kvh2_layout-fused"),
        ({"page_size": 16, "q_lens": "ragged", "packed": "q"}, "hd64_t32_sk384_qlens-ragged_page16_packed-q"),
        ({"data": "sinkkey", "scale": "0.25"}, "hd64_t32_sk384_data-sinkkey_scale-0.25"),
        ({"scale": "0.02", "output": "bf16", "statistics": "lse"}, "hd64_t32_sk384_scale-0.02_out-bf16_stats-lse"),
        ({"batch": 2, "p_path": "smem", "before": 65533}, "hd64_t32_sk384_b2_p-smem_before65533"),
    ],
)
def test_names_are_stable(changes, name):
    assert Configuration(64, 32, 384, **changes).id == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'' is no part"),
        ("hd64_t32", "it has no s_k"),
        ("hd64_t32_sk384_sk1", "'sk1' says s_k a second time"),
        ("hd64_t32_sk384_loud", "'loud' is no part"),
        ("hd64_t0_sk384", "t: must be at least 1, not 0"),
        ("hd64_t1_sk128_window8589934592", "window: must be at most 2147483647, not 8589934592"),
        ("hd64_t1_sk128_band2147483648to0", "left: must be at most 2147483647, not 2147483648"),
        ("hd64_t1_sk9999999999", "s_k: must be at most 2147483647, not 9999999999"),
        ("t32_hd64_sk384", "it is written hd64_t32_sk384"),
        ("hd64_t32_sk384_b1", "it is written hd64_t32_sk384"),
        ("hd64_t32_sk0384", "it is written hd64_t32_sk384"),
        ("hd64_t32_sk384_sink-mixed", "mixed needs at least 4 heads"),
        ("hd64_t32_sk384_b2_before65534", "makes 65536 batch entries; at most 65535 are launched"),
        ("hd64_t32_sk384_h8_kvh3", "kv_heads: must divide heads, 8; it is 3"),
        ("hd64_t32_sk384_h8_kvh2_data-steps", "kv_heads: must be 1 for data steps"),
        ("hd64_t32_sk384_h8_kvh2_top4_of9", "topk: must be 0 with several K/V heads"),
        ("hd64_t32_sk384_top4_of9_page16", "topk: must be 0 with .*, with pages and with packed sequences"),
        ("hd64_t32_sk384_page48", "page_size: must be one of 16, 32, 64, 128, 256, not 48"),
        ("hd64_t32_sk384_page16_packed-both", "packed: must be none or q with pages, not both"),
        ("hd64_t32_sk384_qlens-ragged_packed-k", "q_lens: must be full unless queries are packed; it is ragged"),
        ("hd64_t32_sk384_qlens-ragged_data-steps_packed-q", "q_lens: must be full for data steps"),
        ("hd64_t32_sk384_scale-0.3", "'scale-0.3' is no part"),
        ("hd64_t32_sk384_data-onesign_scale-0.25", "scale: must be root for data onesign"),
        ("hd64_t32_sk384_stats-lse", "statistics: must be all with output unnormalised"),
        ("hd64_t32_sk384_packed-k_before9", "before: is for one K/V head in layout bshd"),
        ("hd64_t32_sk384_layout-bhsd_before9", "before: is for one K/V head in layout bshd"),
        ("hd64_t32_sk384_out-bf16_splits2_before9", "before: is not for splits of output bf16"),
        ("hd64_t1_sk384_top4_of9_splits2_merge-balanced", "merge: must not be balanced with topk or before"),
        ("hd64_t1_sk384_splits2_merge-balanced_before9", "merge: must not be balanced with topk or before"),
        ("hd64_t1_sk384_h4_kvh4_splits3_merge-balanced", "splits: must be at least kv_heads, 4, with merge balanced"),
    ],
)
def test_what_is_no_name_is_refused_with_a_reason(name, message):
    with pytest.raises(ValueError, match=message):
        parse_id(name)


@pytest.mark.parametrize(
    "changes",
    [
        {"window": 3},
        {"mask": "window"},
        {"left": 3},
        {"mask": "band", "right": -2},
        {"s_sparse": 4},
        {"sparse_indices": "holes"},
        {"topk": 4},
        {"splits": 0},
        {"heads": 3, "sink": "mixed"},
    ],
)
def test_illegal_ones_have_a_fault(changes):
    assert fault(dataclasses.replace(Configuration(64, 1, 1), **changes)) is not None
