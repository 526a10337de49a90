import mpmath
import numpy as np
import pytest
import torch

from harness.worker.bf16 import from_bf16
from harness.worker.inputs import make_inputs
from harness.worker.protocol import Configuration
from harness.worker.reference import attention, reference_for, visible_keys


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_agrees_with_torch(mask):
    configuration = Configuration(64, 32, 32, batch=2, mask=mask)
    inputs = make_inputs(3, configuration)
    reference = reference_for(configuration, inputs)
    q, k, v = (torch.from_numpy(from_bf16(array)) for array in (inputs.q, inputs.k, inputs.v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", scale=inputs.scale)
    np.testing.assert_allclose(reference.o, expected.numpy(), rtol=1e-12, atol=1e-14)


def test_its_parts_fit_together():
    configuration = Configuration(64, 5, 200)
    inputs = make_inputs(0, configuration)
    reference = reference_for(configuration, inputs)
    scores = inputs.scale * from_bf16(inputs.q) @ from_bf16(inputs.k).swapaxes(1, 2)
    np.testing.assert_allclose(reference.row_max, scores.max(axis=2), rtol=1e-14)
    np.testing.assert_allclose(reference.o * reference.row_sum[..., None], reference.o_unnormalised, rtol=1e-14)
    np.testing.assert_allclose(reference.lse, np.log(np.exp(scores).sum(axis=2)), rtol=1e-13)


def test_is_stable_where_the_exponential_overflows():
    q, k, v = np.array([[[1.0]]]), np.array([[[800.0], [801.0]]]), np.array([[[1.0], [2.0]]])
    result = attention(q, k, v, 1.0, visible_keys(1, 2, "none"))
    mpmath.mp.dps = 40
    exact = mpmath.log(mpmath.exp(800) + mpmath.exp(801))
    assert result.lse[0, 0] == pytest.approx(float(exact), rel=1e-15)
    assert np.isfinite(result.o).all()


def test_a_row_without_keys():
    configuration = Configuration(64, 4, 2, mask="causal")
    reference = reference_for(configuration, make_inputs(0, configuration))
    assert np.isneginf(reference.lse[0, :2]).all()
    assert np.isneginf(reference.row_max[0, :2]).all()
    assert (reference.row_sum[0, :2] == 0).all()
    assert (reference.o[0, :2] == 0).all()
    assert np.isfinite(reference.lse[0, 2:]).all()


def test_masks_align_the_last_query_with_the_last_key():
    assert visible_keys(2, 4, "causal").astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible_keys(2, 4, "window", 2).astype(int).tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert visible_keys(2, 3, "none").all()
