import dataclasses

import numpy as np
import pytest

from fmha.harness.contract.device import DeviceError, LaunchConfig, LaunchReport
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.outputs import POISON, POISON_BF16
from fmha.harness.judge.oracle.reference import reference
from fmha.harness.judge.random_cases import Space, draw_cases
from fmha.harness.kernel_side.launch import (
    LEAST_TILES_A_SPLIT,
    Call,
    choose_splits,
    contiguous,
    forward_grid,
    query_box,
    tile_rows,
    walkers_of,
)
from fmha.harness.kernel_side.variants import VARIANTS, variant_for
from fmha.harness.worker.launch.run_attention import run_attention
from tests.worker.numpy_device import NumpyDevice

VARIANT = dataclasses.replace(VARIANTS[0], combine="combine")
SPACE = Space(head_dims=(64,), rows=40, keys=150, topk=40, batch=3, work=10**8)


class IdleDevice(NumpyDevice):
    """Accepts a launch and does nothing."""

    def launch(self, module, entry, config, params):
        return LaunchReport()


def run(device, configuration):
    inputs = make_inputs(0, configuration)
    return run_attention(device, "module", VARIANT, configuration, inputs), reference(inputs)


@pytest.mark.parametrize("configuration", draw_cases(0, 60, SPACE), ids=lambda item: item.id)
def test_what_the_device_computes_arrives(configuration):
    """Through the C ABI and back: the device sees nothing but addresses, maps and packed parameters."""
    outputs, expected = run(NumpyDevice(), configuration)
    measurement = measure(configuration, outputs, expected)
    assert measurement.relative_l2 < (4e-3 if configuration.output == "bf16" else 1e-6)
    # LSE leaves as float32, which rounds by as much as its size asks for.
    largest = np.max(np.abs(expected.lse), where=np.isfinite(expected.lse), initial=0.0)
    rounding = max(1e-6, np.spacing(np.float32(largest)))
    if "lse" in configuration.stored:
        assert measurement.lse_error < (1e-3 if configuration.data == "extreme" else rounding)
    stored = {name for name in ("row_max", "row_sum", "lse") if getattr(outputs, name) is not None}
    assert stored == set(configuration.stored)
    assert (measurement.unwritten, measurement.nonfinite_mismatches) == (0, 0)


def test_launch_shape():
    device = NumpyDevice()
    run(device, Configuration(64, 129, 130, batch=3))
    assert device.launches == [
        (VARIANT.entry, LaunchConfig((2, 1, 3), (192, 1, 1), VARIANT.shape.shared_bytes, overlaps=True))
    ]


def test_splits_launch_a_combine_kernel():
    device = NumpyDevice()
    run(device, Configuration(64, 5, 130, heads=3, batch=2, splits=4))
    forward, combine = device.launches
    assert forward == (VARIANT.entry, LaunchConfig((1, 4, 2), (192, 1, 1), VARIANT.shape.shared_bytes, overlaps=True))
    assert combine == ("combine", LaunchConfig((4, 1, 2), (128, 1, 1), overlaps=True))


def test_tensor_maps_are_those_of_the_header():
    device = NumpyDevice()
    run(device, Configuration(64, 4, 130, batch=3, heads=2, topk=8, s_sparse=20))
    q, k, v, sparse_k, sparse_v = device.maps
    assert (q.global_dim, q.global_strides) == ((64, 8, 3), (128, 1024))
    assert (k.global_dim, k.global_strides) == ((64, 130, 3), (128, 130 * 128))
    assert v.global_dim == k.global_dim
    assert (sparse_k.global_dim, sparse_k.global_strides) == ((64, 60), (128,))
    assert sparse_v.global_dim == sparse_k.global_dim
    assert [spec.box_dim for spec in device.maps] == [(64, 128, 1)] * 3 + [(64, 1)] * 2
    assert {spec.swizzle for spec in device.maps} == {"128B"}
    assert {spec.dtype for spec in device.maps} == {"bf16"}
    assert len({spec.address for spec in device.maps}) == 5


def test_a_tensor_without_elements_has_no_map():
    device = NumpyDevice()
    run(device, Configuration(64, 4, 0, topk=8, s_sparse=20, kv="shared"))
    assert [spec.global_dim for spec in device.maps] == [(64, 4, 1), (64, 20)]


@pytest.mark.parametrize(("output", "poison"), [("fp32", POISON), ("bf16", POISON_BF16)])
def test_outputs_are_poisoned_before_the_launch(output, poison):
    configuration = Configuration(64, 3, 128, output=output)
    outputs, expected = run(IdleDevice(), configuration)
    for array in (outputs.row_max, outputs.row_sum, outputs.lse):
        assert (array.view(np.uint32) == POISON).all()
    assert (outputs.o.view(np.uint16 if output == "bf16" else np.uint32) == poison).all()
    measurement = measure(configuration, outputs, expected)
    assert measurement.unwritten == 3 * 64 + 3 * 3
    assert measurement.nonfinite_mismatches == measurement.unwritten


def test_a_device_that_has_no_room_says_so():
    with pytest.raises(DeviceError, match="device numpy cannot have a tensor's end alone"):
        run(NumpyDevice(), Configuration(64, 5, 130, before=3))


def test_the_poison_is_a_nan_that_arithmetic_does_not_make():
    poison = np.array([POISON], dtype=np.uint32).view(np.float32)
    assert np.isnan(poison).all()
    with np.errstate(invalid="ignore"):
        made = np.array([np.inf], dtype=np.float32) - np.float32(np.inf)
    assert POISON not in (int(made.view(np.uint32)[0]), 0x7FFFFFFF)


def splits(multiprocessors=132, **sizes):
    call = Call(**({"head_dim": 64, "batch": 1, "t": 1, "heads": 1, "s_k": 8192, "scale": 1.0} | sizes))
    return choose_splits(VARIANT, call, multiprocessors)


def test_a_long_sequence_is_split_over_the_multiprocessors():
    tiles = 8192 // VARIANT.shape.keys
    assert splits() == tiles // LEAST_TILES_A_SPLIT
    assert splits(s_k=2**20) == 132
    assert splits(s_k=2**20, batch=4) == 33


def test_a_launch_that_fills_the_machine_or_has_few_keys_is_not_split():
    assert splits(batch=132) == splits(batch=1000) == 1
    assert splits(s_k=128) == splits(s_k=0) == 1


def test_what_a_window_hides_is_no_work():
    assert splits(window_left=127, window_right=0) == 1
    assert splits(window_left=127) == splits()


@pytest.mark.parametrize(
    ("rows", "heads", "hopper", "blackwell"),
    [
        (128, 4, (4, 32), (4, 32)),
        (128, 128, (128, 1), (128, 1)),
        (128, 3, (3, 42), (1, 1)),  # two rows are idle
        (192, 5, (5, 38), (1, 1)),
        (64, 15, (15, 4), (1, 1)),
        (128, 72, (8, 1), (8, 1)),  # 56 rows would be, and there are but 16 boxes
        (128, 65, (65, 1), (1, 1)),  # 63, for 128 boxes
        (64, 65, (1, 1), (1, 1)),
        (64, 96, (32, 1), (32, 1)),  # a query has more rows than a CTA
    ],
)
def test_a_box_of_queries(rows, heads, hopper, blackwell):
    assert query_box("sm_90a", rows, heads) == hopper
    assert query_box("sm_100a", rows, heads) == blackwell


@pytest.mark.parametrize(
    ("configuration", "rows", "grid"),
    [
        (Configuration(128, 43, 20, heads=9, kv_heads=3, batch=2), 63, (3, 1, 6)),
        (Configuration(128, 43, 20, heads=9, kv_heads=3, batch=2, rows=128), 126, (2, 1, 6)),
        (Configuration(64, 25, 200, heads=10, kv_heads=2, batch=2, splits=3), 60, (3, 3, 4)),
        (Configuration(64, 5, 65, heads=80, layout="fused"), 64, (7, 1, 1)),  # 80 rows a query, boxes of 16
        (Configuration(64, 39, 20, heads=25, kv_heads=5, batch=14, rows=192), 190, (132, 1, 1)),  # 140 row tiles, drawn
        (Configuration(64, 38, 20, heads=25, kv_heads=5, batch=14, rows=192), 190, (1, 1, 70)),
        (Configuration(128, 43, 20, heads=3), 128, (2, 1, 1)),  # no K/V heads: every row
    ],
    ids=lambda item: getattr(item, "id", None),
)
def test_row_tiles_are_of_whole_queries(configuration, rows, grid):
    variant = variant_for(configuration, "sm_90a")
    assert isinstance(variant, Variant)
    sizes = ("head_dim", "batch", "t", "heads", "s_k", "splits", "kv_heads")
    strides = contiguous(configuration.t, configuration.heads, configuration.head_dim)
    call = Call(
        scale=1.0,
        q_strides=strides if configuration.layout == "fused" else None,
        **{name: getattr(configuration, name) for name in sizes},
    )
    assert tile_rows(variant, call) == rows
    assert forward_grid(variant, call) == grid
    assert walkers_of(variant, call) == (grid[0] if grid[0] == 132 else 0)
