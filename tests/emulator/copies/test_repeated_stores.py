"""Bulk stores that the lanes of a warp issue alike: to the machine they are 32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.bulk_rig import tiled
from tests.emulator.clusterlab import run

OUT = {"out": np.zeros(256, np.uint32)}

# 32 words in shared memory, each its number, for the async proxy.
TILE = """
mov.u32 %r30, tile;
shl.b32 %r31, %tid, 2;
add.u32 %r31, %r31, %r30;
st.shared.u32 [%r31], %tid;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
"""

# CuTe DSL, epilogues: the whole warp issues a store that one lane should.
STORE = (
    TILE
    + """
cp.async.bulk.global.shared::cta.bulk_group [%out], [%r30], 128;
{again}
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""
)


@pytest.mark.parametrize("schedule", ["realistic", "late", "random"])
def test_a_bulk_store_that_every_lane_issues(schedule: str) -> None:
    done = run(STORE.format(again=""), OUT, profile="lenient", schedule=schedule).clean()
    np.testing.assert_array_equal(done.arrays["out"][:32], np.arange(32))
    assert run(STORE.format(again=""), OUT, schedule=schedule).rules == {"bulk-store-repeated"}


TENSOR_STORE = (
    TILE
    + """
mov.u32 %r32, 0;
cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%map, {{%r32}}], [%r30];
cp.async.bulk.commit_group;
{pause}
add.u32 %r33, %tid, 100;
st.shared.u32 [%r31], %r33;
{pause}
cp.async.bulk.wait_group 0;
"""
)


def test_lanes_that_store_alike_read_each_at_its_own_moment() -> None:
    """A race: in the end `out` has what the last of the 32 stores has read, long after the first."""
    body = TENSOR_STORE.format(pause="add.u32 %r34, %r32, 1;\n" * 400)
    last = set()
    for seed in range(3):
        done = run(body, OUT, {"map": tiled("out", (32,), (32,))}, profile="lenient", schedule="random", seed=seed)
        assert done.rules == {"bulk-store-in-flight"}
        last.add(int(done.arrays["out"][0]))
    assert 100 in last


def test_another_store_to_the_same_place_is_no_repetition() -> None:
    again = "add.u32 %r30, %r30, 16;\ncp.async.bulk.global.shared::cta.bulk_group [%out], [%r30], 112;"
    assert "bulk-store-in-flight" in run(STORE.format(again=again), OUT, profile="lenient").rules
