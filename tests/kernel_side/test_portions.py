"""How lengths divide the CTAs of a launch on sm_100a, and which calls are launched so."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.kernel_side import choice
from fmha.harness.kernel_side.launch import Call, combine_of, forward_grid
from fmha.harness.kernel_side.portions import portions_of
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.lengths import given, lengths_of, work_of
from fmha.harness.worker.launch.run_attention import call_of

ARCH = "sm_100a"
DECODE = Configuration(128, 1, 8192, batch=24, heads=128, kv_lens="ragged", output="bf16")


def longest(tiles: Sequence[int], portions: Sequence[int]) -> int:
    return max(-(-max(n, 1) // of) for n, of in zip(tiles, portions, strict=True))


def test_no_division_of_as_many_portions_has_a_shorter_longest_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        entries = int(rng.integers(1, 70))
        count, least = int(rng.integers(entries, 300)), int(rng.integers(1, 5))
        tiles = [int(n) for n in rng.integers(0, rng.integers(1, 500), entries)]
        found = portions_of(tiles, count, least)
        assert min(found) >= 1
        assert sum(found) <= count
        shorter = longest(tiles, found) - 1
        if shorter >= least:
            assert sum(-(-max(n, 1) // shorter) for n in tiles) > count
        assert all(of == 1 for n, of in zip(tiles, found, strict=True) if n <= least)


@pytest.mark.parametrize(
    ("changes", "rows", "grid"),
    [
        ({}, 0, (1, 148, 1)),
        ({"head_dim": 64}, 64, (2, 148, 1)),
        ({"head_dim": 256}, 128, (2, 74, 1)),
        ({"head_dim": 512, "kv": "shared"}, 128, (2, 74, 1)),
        ({"heads": 128, "kv_heads": 4}, 32, (1, 37, 4)),
        ({"head_dim": 512, "page_size": 64}, 0, None),  # two row tiles of 64 rows: 74 for 24 entries
        ({"batch": 150}, None, None),  # more planes than CTAs
        ({"batch": 1}, None, None),
        ({"kv_lens": "full"}, None, None),
    ],
)
def test_which_calls_are_balanced(changes: dict[str, Any], rows: int | None, grid: tuple[int, ...] | None) -> None:
    item = replace(DECODE, **changes)
    splits, balance = choice.division_of(ARCH, item.planes, True, item.kv_lens != "full", None)
    assert (balance.rows if balance else None) == rows
    if balance is None:
        assert splits == choice.splits_of(ARCH, item.planes)
    elif grid:
        variant = variant_for(replace(item, merge="balanced", splits=balance.ctas), ARCH, balance.rows)
        assert not isinstance(variant, str)
        of = Call(head_dim=item.head_dim, batch=24, t=1, heads=item.heads, s_k=8192, scale=1.0, balance=balance)
        call = replace(of, kv_heads=item.kv_heads, output_bf16=True)
        assert forward_grid(variant, call) == grid
        suffix, merge = combine_of(variant, call)
        assert suffix.endswith("_heads")
        assert merge[2] == 24 * item.kv_heads


@pytest.mark.parametrize("name", ["hd64_t2_sk700_b7_h30_causal_lens-ragged_splits25", "hd512_t1_sk900_b4_h70_splits14"])
def test_what_each_cta_has_is_what_its_rows_see(name: str) -> None:
    item = parse_id(f"{name}_merge-balanced" if "ragged" in name else f"{name}_rows128_merge-balanced")
    item = replace(item, kv_lens="ragged")
    of, variant = given(item), variant_for(item, ARCH)
    assert not isinstance(variant, str)
    call = call_of(item, of.inputs, ARCH)
    work, grid = work_of(variant, call, lengths_of(of)), forward_grid(variant, call)
    assert len(work) == grid[0] // variant.shape.ctas * grid[1] * grid[2]
    assert of.inputs.kv_lens is not None
    tile = variant.shape.keys * variant.shape.ctas
    tiles = sum(-(-int(keys) // tile) for keys in of.inputs.kv_lens)
    row_tiles = grid[0] // variant.shape.ctas
    assert tiles * (row_tiles - 1) < sum(work) <= tiles * row_tiles
