import pytest

from fmha.harness.worker.protocol import Configuration
from fmha.harness.worker.variants import variant_for


@pytest.mark.parametrize(("t", "s_k", "batch"), [(1, 1, 1), (128, 512, 1), (77, 129, 3)])
def test_head_dim_64_runs_any_tail_and_batch(t, s_k, batch):
    variant = variant_for(Configuration(64, t, s_k, batch))
    assert not isinstance(variant, str)
    assert variant.name == "sm100_hd64_ptmem"


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(96, 1, 128), "no kernel for head_dim 96 on sm_100a yet"),
    ],
)
def test_says_why_nothing_runs_it(configuration, reason):
    assert variant_for(configuration) == reason
