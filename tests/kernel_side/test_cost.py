"""What sm_100a is launched with: by price, and how far the prices are from the timing model's times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.kernel_side import choice, cost
from fmha.harness.kernel_side.cost import B200, BY_CTA, BY_WARP, PlaneSizes
from fmha.harness.kernel_side.params import SM100_FEW_ROWS
from fmha.harness.kernel_side.variants import VARIANTS, rows_define, variant_for
from tools import priced

ARCH = "sm_100a"
DECODE = Configuration(head_dim=64, t=1, s_k=512, heads=128, output="bf16")


def test_what_is_cheapest_is_nearly_what_the_model_has_as_fastest(repository: Path) -> None:
    """Of every choice that was modelled: results/priced-b200.json, made by `python -m tools.priced`."""
    found = priced.choices(json.loads((repository / "results/priced-b200.json").read_text())["rows"])
    losses = {name: priced.loss(tried) for name, tried in found.items()}
    assert len(losses) == len(priced.CALLS) * len(priced.HEAD_DIMS)
    assert sum(losses.values()) / len(losses) <= 0.03
    assert max(losses.values()) <= 0.15, losses


def test_there_is_a_pace_for_each_variant() -> None:
    of_variants = {(v.head_dim, rows_define(v)) for v in VARIANTS if v.arch == ARCH}
    own = {(head_dim, 0) for head_dim in (64, 128, 256, 512)}
    assert of_variants == own | set(SM100_FEW_ROWS) | set(cost.PAIRS)
    assert set(cost.PACES) == of_variants | set(cost.PREFILL)


@pytest.mark.parametrize(
    ("changes", "splits", "name"),
    [
        ({}, 4, "sm100_hd64_rows32"),
        ({}, 1, "sm100_hd64_ptmem"),  # what the guard runs
        ({"heads": 64, "batch": 64, "s_k": 4096}, 4, "sm100_hd64_rows64"),
        ({"batch": 16, "s_k": 8192}, 9, "sm100_hd64_rows64"),  # of which an SM has two
        ({"head_dim": 128, "batch": 16, "s_k": 8192}, 9, "sm100_hd128_ptmem"),  # rows for all CTAs' threads
        ({"heads": 32}, 2, "sm100_hd64_rows32"),
        ({"batch": 2}, 1, "sm100_hd64_rows32"),
        ({"t": 2, "heads": 65}, 1, "sm100_hd64_rows32"),
        ({"p_path": "smem"}, 4, "sm100_hd64_psmem"),
        ({"p_path": "tmem"}, 4, "sm100_hd64_ptmem"),
        ({"rows": 64}, 4, "sm100_hd64_rows64"),
        ({"topk": 65, "s_sparse": 130}, 1, "sm100_hd64_ptmem"),
        ({"t": 4096, "s_k": 4096, "heads": 16, "batch": 4}, 1, "sm100_hd64_prefill"),
        ({"head_dim": 512}, 8, "sm100_hd512_psmem"),
        ({"head_dim": 512, "rows": 64}, 8, "sm100_hd512_psmem"),
        ({"head_dim": 512, "batch": 16, "s_k": 8192}, 4, "sm100_hd512_pair128"),
        ({"head_dim": 512, "batch": 16, "s_k": 8192, "kv": "shared"}, 4, "sm100_hd512_pair128"),
        ({"head_dim": 512, "batch": 16, "s_k": 8192, "page_size": 64}, 4, "sm100_hd512_psmem"),
        ({"head_dim": 512, "batch": 16, "s_k": 8192, "topk": 65, "s_sparse": 130}, 4, "sm100_hd512_psmem"),
        ({"head_dim": 512, "t": 4096, "s_k": 4096, "heads": 16, "batch": 4}, 1, "sm100_hd512_pair128"),
        ({"head_dim": 256, "t": 4096, "s_k": 4096, "heads": 16, "batch": 4}, 1, "sm100_hd256_pair256"),
        ({"head_dim": 256, "t": 4096, "s_k": 4096, "heads": 16, "batch": 4, "p_path": "smem"}, 1, "sm100_hd256_psmem"),
        ({"head_dim": 256, "batch": 16, "s_k": 8192}, 4, "sm100_hd256_pair128"),
        ({"head_dim": 256, "rows": 128}, 3, "sm100_hd256_pair128"),
    ],
)
def test_which_kernel_runs(changes: dict[str, object], splits: int, name: str) -> None:
    found = variant_for(replace(DECODE, **changes, splits=splits), ARCH)  # type: ignore[arg-type]
    assert isinstance(found, Variant)
    assert found.name == name


def test_rows_that_no_variant_has_are_refused() -> None:
    refused = "no kernel for head_dim 256 with 32 rows a CTA on sm_100a yet"
    assert variant_for(replace(DECODE, head_dim=256, rows=32), ARCH) == refused


@pytest.mark.parametrize("head_dim", [64, 128, 256, 512])
def test_splits_leave_no_cta_without_a_tile_nor_without_room(head_dim: int) -> None:
    for planes, rows, keys in (
        (1, 16, 131072),
        (16, 128, 8192),
        (64, 64, 4096),
        (500, 1, 64),
        (1, 1, 1),
        (3, 300, 999),
    ):
        shape = PlaneSizes(head_dim, planes, rows, keys)
        asked, splits = cost.best_of(B200, shape)
        tile = cost.launch_shape(head_dim, asked)
        assert 1 <= splits <= -(-keys // (tile.keys * tile.ctas))
        held = B200.multiprocessors * choice.ctas_per_sm(ARCH, head_dim, asked)
        assert splits == 1 or splits * planes * -(-rows // tile.row_tile) * tile.ctas <= held
        assert asked == min(
            cost.rows_of(head_dim), key=lambda given: cost.forward_us(B200, shape, given, splits)
        ) or splits not in cost.splits_to_try(B200, shape, 0)


def test_many_parts_of_few_rows_are_merged_by_four_warps_a_row() -> None:
    few, many = PlaneSizes(256, 1, 16, 131072), PlaneSizes(256, 16, 128, 8192)
    assert cost.merge_of(B200, few, 148) is BY_CTA
    assert cost.merge_of(B200, many, 9) is BY_WARP
    assert [merge.parts(head_dim) for merge in (BY_WARP, BY_CTA) for head_dim in (64, 512)] == [4, 1, 32, 32]
