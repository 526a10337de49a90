from dataclasses import replace

import pytest

from fmha.harness.contract.protocol import Configuration
from fmha.harness.kernel_side.variants import variant_for


@pytest.mark.parametrize(("t", "s_k", "batch"), [(1, 1, 1), (128, 512, 1), (77, 129, 3)])
def test_head_dim_64_runs_any_tail_and_batch(t, s_k, batch):
    variant = variant_for(Configuration(64, t, s_k, batch))
    assert not isinstance(variant, str)
    assert variant.name == ("sm100_hd64_ptmem" if batch == 1 else "sm100_hd64_rows32")


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(96, 1, 128), "no kernel for head_dim 96 on sm_100a yet"),
    ],
)
def test_says_why_nothing_runs_it(configuration, reason):
    assert variant_for(configuration) == reason


def test_kv_heads_have_variants_of_their_own_on_hopper_alone():
    apart = Configuration(64, 1, 300, heads=8, kv_heads=2, splits=5)
    assert variant_for(apart).name == "sm100_hd64_rows32"
    assert variant_for(apart, "sm_90a").name == "sm90_hd64_dense_heads"
    assert variant_for(Configuration(64, 1, 300, heads=8, layout="fused"), "sm_90a").name == "sm90_hd64_dense_heads"
    assert variant_for(Configuration(64, 1, 300, heads=8, layout="bhsd"), "sm_90a").name == "sm90_hd64_dense"
    for head_dim, rows in ((64, "_rows192"), (128, "_rows192"), (256, "_rows128")):  # prefill walks, as it does folded
        prefill = Configuration(head_dim, 2048, 2048, heads=32, kv_heads=8, batch=4)
        assert variant_for(prefill, "sm_90a").name == f"sm90_hd{head_dim}{rows}_dense_heads"
        folded = replace(prefill, heads=4, kv_heads=1, batch=32)
        assert variant_for(folded, "sm_90a").name == f"sm90_hd{head_dim}{rows}_dense"
    for scattered in ({"page_size": 16}, {"packed": "q"}, {"packed": "both", "kv_heads": 2}):
        own = "sm100_hd64_rows32" if "kv_heads" in scattered else "sm100_hd64_ptmem"  # of two planes, and of one
        assert variant_for(Configuration(64, 1, 300, heads=8, **scattered)).name == own
        assert variant_for(Configuration(64, 1, 300, heads=8, **scattered), "sm_90a").name == "sm90_hd64_dense_paged"
    in_cluster = Configuration(64, 1, 300, heads=8, kv_heads=2, splits=5, merge="cluster")
    assert variant_for(in_cluster, "sm_90a") == "no kernel for head_dim 64 merges 5 splits in a cluster on sm_90a yet"


@pytest.mark.parametrize(
    ("head_dim", "scattered", "name"),
    [
        (64, {"packed": "both"}, "sm90_hd64_rows192_dense_paged"),
        (64, {"page_size": 16}, "sm90_hd64_rows192_dense_paged"),
        (64, {"page_size": 256, "packed": "q"}, "sm90_hd64_rows192_dense_paged"),
        (128, {"page_size": 64}, "sm90_hd128_dense_paged"),
        (256, {"packed": "both"}, "sm90_hd256_rows128_dense_paged"),
        (256, {"page_size": 16}, "sm90_hd256_rows128_dense_paged"),
        (256, {"page_size": 32}, "sm90_hd256_dense_paged"),  # whose long tiles would have boxes of 16 keys
        (256, {"page_size": 256, "packed": "q"}, "sm90_hd256_dense_paged"),
        (512, {"packed": "both"}, "sm90_hd512_dense_paged"),
    ],
)
def test_prefill_of_pages_and_packed_sequences_has_its_shapes(head_dim, scattered, name):
    prefill = Configuration(head_dim, 2048, 2048, heads=32, kv_heads=8, batch=4)
    assert variant_for(replace(prefill, **scattered), "sm_90a").name == name
    split = variant_for(replace(prefill, splits=3, **scattered), "sm_90a")
    assert split.name == f"sm90_hd{head_dim}_dense_paged"  # what is split has each head_dim's first shape
