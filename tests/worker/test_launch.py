import numpy as np
import pytest

from harness.worker.devices.base import LaunchReport
from harness.worker.inputs import make_inputs
from harness.worker.launch import POISON, run_attention
from harness.worker.measure import measure
from harness.worker.protocol import Configuration
from harness.worker.reference import reference_for
from harness.worker.variants import VARIANTS
from tests.worker.numpy_device import NumpyDevice

HD64 = next(variant for variant in VARIANTS if variant.head_dim == 64)


class IdleDevice(NumpyDevice):
    """Accepts a launch and does nothing."""

    def launch(self, module, entry, grid, block, shared_bytes, params):
        return LaunchReport()


def run(device, configuration):
    inputs = make_inputs(0, configuration)
    return run_attention(device, "module", HD64, configuration, inputs), reference_for(configuration, inputs)


@pytest.mark.parametrize("configuration", [Configuration(64, 1, 1), Configuration(64, 128, 300, batch=2)])
def test_what_the_device_computes_arrives(configuration):
    outputs, reference = run(NumpyDevice(), configuration)
    measurement = measure(outputs, reference)
    assert measurement.cosine > 1 - 1e-12
    assert measurement.lse_error < 1e-6
    assert measurement.unwritten == 0


def test_launch_shape():
    device = NumpyDevice()
    run(device, Configuration(64, 129, 130, batch=3))
    assert device.launches == [(HD64.entry, (2, 1, 3), (192, 1, 1), HD64.shape.shared_bytes)]


def test_tensor_maps_are_those_of_the_header():
    device = NumpyDevice()
    run(device, Configuration(64, 4, 130, batch=3))
    q, k, v = device.maps
    assert (q.global_dim, q.global_strides) == ((64, 4, 3), (128, 512))
    assert (k.global_dim, k.global_strides) == ((64, 130, 3), (128, 130 * 128))
    assert v.global_dim == k.global_dim
    assert {spec.box_dim for spec in device.maps} == {(64, 128, 1)}
    assert {spec.swizzle for spec in device.maps} == {"128B"}
    assert {spec.dtype for spec in device.maps} == {"bf16"}
    assert len({spec.address for spec in device.maps}) == 3


def test_outputs_are_poisoned_before_the_launch():
    outputs, reference = run(IdleDevice(), Configuration(64, 3, 128))
    for array in (outputs.o, outputs.row_max, outputs.row_sum, outputs.lse):
        assert (array.view(np.uint32) == POISON).all()
    measurement = measure(outputs, reference)
    assert measurement.unwritten == 3 * 64 + 3 * 3
    assert measurement.nonfinite_mismatches == measurement.unwritten


def test_the_poison_is_a_nan_that_arithmetic_does_not_make():
    poison = np.array([POISON], dtype=np.uint32).view(np.float32)
    assert np.isnan(poison).all()
    with np.errstate(invalid="ignore"):
        made = np.array([np.inf], dtype=np.float32) - np.float32(np.inf)
    assert POISON not in (int(made.view(np.uint32)[0]), 0x7FFFFFFF)
