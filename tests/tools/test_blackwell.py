"""The rows of Blackwell that the timing model is held to, and how they are told."""

from __future__ import annotations

from collections import Counter

import pytest

from fmha.emulator.timing.architecture import NAMES, architecture
from tools import flash4, published
from tools.blackwell.rows import HALVES, PairsInOrder, Row, Source, ToldRow, in_order, noise, rows, table

SOURCE = Source("a", "a page", "b200", "unknown", "replays of a graph", 0.0)
OTHER = Source("b", "another page", "gb200", "unknown", "once", 5.0)


def row(low: float, high: float, source: Source = SOURCE, half: str = "fit") -> Row:
    return Row(source, half, "x", (low, high), {"size": (1000, 1000, 1000)})


def test_half_of_each_source_is_for_fitting() -> None:
    told = Counter((r.source.name, r.half) for r in rows())
    for source in {name for name, _ in told}:
        assert 0 <= told[source, "fit"] - told[source, "predict"] <= 1
    assert told


def test_halves_alternate_in_the_order_of_the_page() -> None:
    seen: Counter[str] = Counter()
    for r in rows():
        assert r.half == HALVES[seen[r.source.name] % 2]
        seen[r.source.name] += 1


def test_every_row_has_a_machine_that_the_model_knows_and_a_kernel_that_is_launched() -> None:
    kernels, head_dims = {k.name for k in published.KERNELS}, {k.head_dim for k in flash4.KERNELS}
    for r in rows():
        assert r.source.machine in NAMES
        assert all((r.source.where, r.source.power, r.source.timed))
        assert r.how.get("kernel", "v1a") in kernels
        assert r.how.get("head_dim", 64) in head_dims
        assert 0 < r.published[0] <= r.published[1]


@pytest.mark.parametrize(("rate", "error"), [(90, -0.1), (100, 0), (150, 0), (200, 0), (220, 0.1)])
def test_the_error_is_to_the_nearer_end(rate: float, error: float) -> None:
    assert row(100, 200).off(rate) == pytest.approx(error)


def test_a_rate_has_the_time_that_its_source_counts_beside_the_kernel() -> None:
    assert row(1, 1).rate(5e-6) == pytest.approx(2e9 / 5e-6 * 1e-12)
    assert row(1, 1, OTHER).rate(5e-6) == pytest.approx(2e9 / 10e-6 * 1e-12)


def test_pairs_are_of_one_source_and_apart() -> None:
    told = [
        ToldRow(row(100, 110), 90, "memory"),
        ToldRow(row(105, 120), 80, "memory"),
        ToldRow(row(130, 130), 85, "memory"),
    ]
    assert in_order(told) == PairsInOrder(1, 2, 1)  # the first two overlap
    assert in_order([told[0], ToldRow(row(200, 200, OTHER), 300, "memory")]) == PairsInOrder(0, 0, 0)


def test_rows_no_farther_apart_than_one_that_was_published_twice_are_a_tie() -> None:
    gluon = next(r.source for r in rows() if r.source.name == "gluon")
    assert noise("gluon") == pytest.approx(1179.94 / 1096.34 - 1)
    assert noise("learn-cuda") == 0
    for high, found in ((107, PairsInOrder(0, 0, 1)), (108, PairsInOrder(0, 1, 0))):
        assert in_order([ToldRow(row(100, 100, gluon), 2, "tma"), ToldRow(row(high, high, gluon), 1, "tma")]) == found


def test_the_table_counts_what_the_model_could_not_follow() -> None:
    told = [ToldRow(row(100, 100), 110, "memory", 3), ToldRow(row(100, 100, half="predict"), 1, "memory")]
    said = table("fit", told)
    assert "| a | x | b200 | 100 | 110 | +10% | memory; 3 waits not followed |" in said
    assert said.endswith("fit: 1 rows, mean error 10.0%, worst 10%; 0 of 0 pairs in order, 0 ties")


def test_a_gb200_and_a_gb300_are_a_b200_but_for_what_is_said_of_them() -> None:
    b200, gb200, gb300 = (architecture(name) for name in ("b200", "gb200", "gb300"))
    assert (b200.multiprocessors, gb200.multiprocessors, gb300.multiprocessors) == (148, 152, 152)
    assert gb200.times == b200.times
    assert {k for k, v in gb300.times.items() if v != b200.times[k]} == {"mufu_interval"}


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_has_a_source_and_an_uncertainty(name: str) -> None:
    gpu = architecture(name)
    own = [getattr(gpu, n) for n in ("clock_mhz", "power_clock_mhz", "launch_us", "combine_us", "l2_capacity")]
    for constant in (*gpu.times.values(), *own, gpu.l2_partitions, gpu.l2_sharing, gpu.l2_sharing_first):
        assert constant.source
        assert constant.within.endswith(("%", " us"))
        assert constant.room >= 0


def test_launches_are_counted_alike_on_every_gpu() -> None:
    counted = {(architecture(n).launch_us.value, architecture(n).combine_us.value) for n in NAMES}
    assert len(counted) == 1
