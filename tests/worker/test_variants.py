import pytest

from harness.worker.protocol import Configuration
from harness.worker.variants import VARIANTS, variant_for


@pytest.mark.parametrize(("t", "s_k", "batch"), [(1, 1, 1), (128, 512, 1), (77, 129, 3)])
def test_head_dim_64_runs_any_tail_and_batch(t, s_k, batch):
    variant = variant_for(Configuration(64, t, s_k, batch))
    assert not isinstance(variant, str)
    assert variant.name == "sm100_hd64_ptmem"


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(128, 1, 128), "no kernel for head_dim 128 on sm_100a yet"),
        (Configuration(64, 1, 128, p_path="smem"), "no kernel for head_dim 64 with P through smem on sm_100a yet"),
        (Configuration(64, 1, 128, mask="causal"), "the mask is not in the kernel yet"),
        (Configuration(64, 1, 128, splits=2), "split KV is not in the kernel yet"),
    ],
)
def test_says_why_nothing_runs_it(configuration, reason):
    assert variant_for(configuration) == reason


def test_every_variant_names_a_source_that_has_its_entry(repository):
    for variant in VARIANTS:
        assert f" {variant.entry}(" in (repository / variant.source).read_text()
