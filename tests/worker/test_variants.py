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
        (Configuration(128, 1, 128), "no kernel for head_dim 128 yet"),
        (Configuration(64, 1, 128, mask="causal"), "the causal mask is not in the kernel yet"),
        (Configuration(64, 1, 128, mask="window", window=4), "the sliding window is not in the kernel yet"),
        (Configuration(64, 129, 128), "the kernel takes t from 1 to 128, not 129"),
        (Configuration(64, 0, 128), "the kernel takes t from 1 to 128, not 0"),
        (Configuration(64, 1, 0), "s_k and batch start at 1, not at 0"),
    ],
)
def test_says_why_nothing_runs_it(configuration, reason):
    assert variant_for(configuration) == reason


def test_every_variant_names_a_source_that_has_its_entry(repository):
    for variant in VARIANTS:
        assert f" {variant.entry}(" in (repository / variant.source).read_text()
