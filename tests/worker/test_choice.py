"""The rule by which a Hopper launch gets its shape: what was measured, where a rule ends, what overrides it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.reference import reference
from harness.worker import choice
from harness.worker.configuration import Configuration, fault
from harness.worker.devices.base import LaunchConfig
from harness.worker.inputs import make_inputs
from harness.worker.launch import Call, choose_splits
from harness.worker.measure import measure
from harness.worker.protocol import Variant
from harness.worker.run import run_attention
from harness.worker.variants import merges_in_cluster, variant_for
from tests.worker.numpy_device import NumpyDevice

ARCH = choice.ARCH
SIZES: dict[str, dict[str, Any]] = {
    "decode": {"t": 1, "s_k": 8192, "batch": 16, "heads": 128},
    "short": {"t": 1, "s_k": 512, "batch": 1, "heads": 128},
    "prefill": {"t": 4096, "s_k": 4096, "batch": 64, "heads": 1},
}
# The names that results/tried-h200.json has for the shapes that are still there.
NAMES = {
    "hd64_whole": "sm90_hd64",
    "hd64_short": "sm90_hd64_rows64",
    "hd64_3": "sm90_hd64_rows192",
    "hd128": "sm90_hd128",
    "hd128_short": "sm90_hd128_rows64",
    "hd256": "sm90_hd256",
    "hd512": "sm90_hd512",
}
SHORT = Configuration(64, splits=8, **SIZES["short"])
PREFILL = Configuration(64, **SIZES["prefill"])


def name(configuration: Configuration) -> str:
    found = variant_for(configuration, ARCH)
    assert isinstance(found, Variant), found
    return found.name


def launch(configuration: Configuration) -> tuple[str, int, bool]:
    """Kernel, splits and whether a cluster merges them, of a call whose splits are left to us."""
    splits = choice.splits_of_short(ARCH, configuration)
    if splits is None:
        variant = variant_for(configuration, ARCH)
        assert isinstance(variant, Variant)
        sizes = {name: getattr(configuration, name) for name in ("head_dim", "t", "s_k", "batch", "heads")}
        splits = choose_splits(variant, Call(scale=1.0, **sizes), choice.MULTIPROCESSORS)
    item = replace(configuration, splits=splits)
    return name(item), splits, merges_in_cluster(item, ARCH)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("head_dim", [64, 128, 256, 512])
def test_what_is_launched_is_what_was_fastest(repository: Path, kind: str, head_dim: int) -> None:
    """Within 2%, which is what two runs of one kernel differ by."""
    rows = json.loads((repository / "results/tried-h200.json").read_text())["rows"]
    times: dict[tuple[str, int, bool], float] = {}
    for row in rows:
        if (row["kind"], row["head_dim"], row["kernel"]) == (kind, head_dim, "2197194") and row["shape"] in NAMES:
            key = NAMES[row["shape"]], row["splits"], row["cluster"] != [1, 1]
            times[key] = min(row["median_us"], times.get(key, row["median_us"]))
    assert times[launch(Configuration(head_dim, **SIZES[kind]))] <= 1.02 * min(times.values())


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, ("sm90_hd64_rows64", True)),
        ({"s_k": 257}, ("sm90_hd64_rows64", True)),
        ({"s_k": 256}, ("sm90_hd64", False)),
        ({"s_k": 513}, ("sm90_hd64", False)),
        ({"splits": 4}, ("sm90_hd64_rows64", True)),
        ({"splits": 3}, ("sm90_hd64", False)),
        ({"splits": 9}, ("sm90_hd64", False)),
        ({"batch": 7}, ("sm90_hd64_rows64", True)),
        ({"batch": 8}, ("sm90_hd64", False)),  # 16 clusters of 8
        ({"topk": 64, "s_sparse": 64}, ("sm90_hd64", False)),
        ({"head_dim": 256, "batch": 15}, ("sm90_hd256", True)),
        ({"head_dim": 512, "batch": 8}, ("sm90_hd512", False)),
    ],
)
def test_where_a_launch_is_short(changes: dict[str, int], chosen: tuple[str, bool]) -> None:
    item = replace(SHORT, **changes)
    assert (name(item), merges_in_cluster(item, ARCH)) == chosen


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({}, "sm90_hd64_rows192"),
        ({"batch": 12}, "sm90_hd64_rows192"),  # 22 tiles of rows each: two turns
        ({"batch": 11}, "sm90_hd64"),
        ({"t": 128, "batch": 999}, "sm90_hd64"),  # a third of the rows would be idle
        ({"splits": 2}, "sm90_hd64"),
        ({"topk": 64, "s_sparse": 64}, "sm90_hd64"),
        ({"head_dim": 128}, "sm90_hd128"),
    ],
)
def test_where_rows_are_many(changes: dict[str, int], chosen: str) -> None:
    assert name(replace(PREFILL, **changes)) == chosen


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, True),
        ({"splits": 1}, False),
        ({"heads": 64}, False),
        ({"heads": 160}, False),  # three row tiles
        ({"kv": "shared"}, False),
        ({"topk": 64, "s_sparse": 64}, False),
        ({"head_dim": 256}, False),
        ({"batch": 1, "s_k": 512, "splits": 8}, False),  # short: the splits are the cluster
    ],
)
def test_where_row_tiles_share_loads(changes: dict[str, Any], shares: bool) -> None:
    item = replace(Configuration(512, t=1, s_k=8192, heads=128, batch=16, splits=4), **changes)
    assert choice.shares_loads(ARCH, item, item.splits, item.kv == "shared") is shares
    assert not choice.shares_loads("sm_100a", item, item.splits, item.kv == "shared")


def test_a_configuration_overrides_the_rule() -> None:
    assert name(replace(PREFILL, rows=64)) == "sm90_hd64_rows64"
    assert name(replace(SHORT, rows=128)) == "sm90_hd64"
    assert not merges_in_cluster(replace(SHORT, merge="combine"), ARCH)
    assert merges_in_cluster(replace(SHORT, s_k=8192, splits=2, merge="cluster"), ARCH)


def test_what_no_kernel_does_is_refused() -> None:
    assert variant_for(replace(SHORT, rows=96), ARCH) == "no kernel for head_dim 64 with 96 rows a CTA on sm_90a yet"
    refused = "no kernel for head_dim 64 merges 9 splits in a cluster on sm_90a yet"
    assert variant_for(replace(SHORT, splits=9, merge="cluster"), ARCH) == refused
    assert isinstance(variant_for(replace(SHORT, merge="cluster"), "sm_100a"), str)
    assert fault(replace(SHORT, splits=1, merge="cluster")) is not None


def test_the_rule_is_hopper_s() -> None:
    assert choice.rows_of_cta("sm_100a", SHORT, 8) == choice.rows_of_cta("sm_100a", PREFILL, 1) == 0
    assert choice.splits_of_short("sm_100a", SHORT) is None
    assert not choice.merges_in_cluster("sm_100a", SHORT, 8)


@pytest.mark.parametrize(("merge", "launches"), [("auto", 1), ("cluster", 1), ("combine", 2)])
def test_a_cluster_that_merges_needs_no_combine_kernel(merge: Any, launches: int) -> None:
    item = replace(SHORT, heads=3, s_k=300, splits=5, merge=merge)
    variant = variant_for(item, ARCH)
    assert isinstance(variant, Variant)
    device, inputs = NumpyDevice(), make_inputs(0, item)
    outputs = run_attention(device, "module", variant, item, inputs)
    measured = measure(item, outputs, reference(inputs))
    assert (measured.unwritten, measured.nonfinite_mismatches) == (0, 0)
    assert measured.relative_l2 < 1e-6
    assert len(device.launches) == launches
    _, config = device.launches[0]
    cluster = (1, 5, 1) if launches == 1 else (1, 1, 1)
    assert config == LaunchConfig((1, 5, 1), (256, 1, 1), variant.shape.shared_bytes, cluster)
