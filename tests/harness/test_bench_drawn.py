"""Shapes drawn by a seed: the same again, in any count, none of the bench's; and what is said of records together."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fmha.harness.bench.peers.peer_rows import PeerRow

pytestmark = pytest.mark.torch
SEED = 4804


def drawn(seed: int, count: int) -> list[PeerRow]:
    from fmha.harness.bench.runs.drawn import drawn

    return list(drawn(seed, count))


def test_a_seed_draws_the_same_shapes_in_any_count() -> None:
    few, many = drawn(SEED, 4), drawn(SEED, 9)
    assert few == many[: len(few)]
    assert few != drawn(SEED + 1, 4)


def test_each_class_has_as_many_and_none_is_a_row_of_the_bench() -> None:
    from fmha.harness.bench.peers.peer_rows import ROWS
    from fmha.harness.bench.runs.drawn import CLASSES, MOST_BYTES, MOST_FLOP

    rows = drawn(SEED, 30)
    assert [row.name for row in islice(rows, 5)] == list(CLASSES)
    assert {kind: sum(row.name == kind for row in rows) for kind in CLASSES} == dict.fromkeys(CLASSES, 30)
    sizes = {(row.head_dim, row.batch, row.heads, row.kv_heads, row.t, row.s_k) for row in ROWS}
    assert not any((row.head_dim, row.batch, row.heads, row.kv_heads, row.t, row.s_k) in sizes for row in rows)
    assert all(row.bytes <= MOST_BYTES and row.flop <= MOST_FLOP for row in rows)


def test_a_row_of_each_class_has_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmha.harness.attention import decision
    from fmha.harness.bench.runs.drawn import variant_of

    monkeypatch.setattr(decision, "EMULATED", "sm_90a")
    decision._head_dims.cache_clear()
    for row in drawn(SEED, 6):
        assert variant_of(row, "cpu").head_dim == row.head_dim


def record(name: str, head_dim: int, ours: float, **peers: float) -> dict[str, Any]:
    times = {"ours": ours, **peers}
    return {"name": name, "head_dim": head_dim, "results": {key: {"median_us": us} for key, us in times.items()}}


def test_records_are_pooled_and_shapes_behind_are_counted() -> None:
    from fmha.harness.bench.runs.drawn import said

    first = {"rows": [record("packed", 64, 10.0, fa3=12.1, cudnn=20.0), record("packed", 64, 10.0, fa3=9.0)]}
    second = {
        "rows": [
            record("packed", 64, 10.0, fa3=10.0),
            record("prefill", 128, 10.0),
            record("prefill", 128, 5.0, fa3=9.7),
        ]
    }
    lines = list(said([first, second]))
    assert "| packed | 64 | 3 | 1.03 | 0.90 | 1 (33%) | 1 |" in lines
    assert "| prefill | all | 1 | 1.94 | 1.94 | 0 (0%) | 0 |" in lines
    assert "| all | all | 4 | 1.21 | 0.90 | 1 (25%) | 1 |" in lines
