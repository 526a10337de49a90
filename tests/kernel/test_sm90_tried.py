"""The builds that are tried on silicon, first on the emulator: right numbers, no hazards, and the same bits as the
kernels that they are tried against where the order of the sums is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.bench.cases import checks
from harness.bench.check_numbers import verdict
from harness.bench.problem import Problem, draw, reference
from harness.bench.shapes import Shape
from harness.bench.variants import PARTIAL, REBUILT, RESHAPED
from tests.kernel import sm90_rig
from tests.kernel.sm90_rig import run

pytestmark = pytest.mark.nvcc

EVERY_CHECK = [
    (name, i) for name, shape in RESHAPED.items() for i in range(len(checks(shape.head_dim, shape.keys, False)))
]
MERGED = {name: shape for name, shape in REBUILT.items() if shape.merge != "combine"}


def own(shape: Shape) -> Shape:
    """The build without what is tried."""
    return replace(shape, merge="combine", clocks=False)


def split(shape: Shape) -> Problem:
    """Several row tiles in two batch entries; the last split has no keys in one of them."""
    return Problem(
        shape.head_dim, heads=70, t=3, s_k=5 * shape.keys + 1, batch=2, splits=5, sink=True, kv_lens=True, bf16=True,
        seed=4,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "index"), EVERY_CHECK)
def test_agrees_with_float64(name: str, index: int) -> None:
    shape = RESHAPED[name]
    p = checks(shape.head_dim, shape.keys, False)[index]
    if p.t >= 100:
        p = replace(p, t=70, s_k=80)
    inputs = draw(p)
    out, findings = run(p, inputs, shape=shape)
    assert not findings, findings[0]
    passes, error, lse = verdict(p, out, reference(p, inputs))
    assert passes, (error, lse)


@pytest.mark.parametrize("name", MERGED)
def test_who_merges_does_not_show(name: str) -> None:
    """Twice over the same counters: the last to count in leaves them at zero."""
    shape = MERGED[name]
    p = split(shape)
    inputs = draw(p)
    expected, _ = run(p, inputs, shape=own(shape))
    out, findings = run(p, inputs, shape=shape, launches=2)
    assert not findings, findings[0]
    assert all(np.array_equal(out[key], expected[key], equal_nan=True) for key in expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["hd64_last", "hd64_together", "hd512_together"])
def test_nor_does_the_schedule(name: str, seed: int) -> None:
    shape = MERGED[name]
    p = split(shape)
    inputs = draw(p)
    expected, _ = run(p, inputs, shape=own(shape))
    out, findings = run(p, inputs, seed=seed, schedule="random", shape=shape)
    assert not findings, findings[0]
    assert all(np.array_equal(out[key], expected[key], equal_nan=True) for key in expected)


@pytest.mark.parametrize(
    "edit",
    [
        ("atom.acq_rel.gpu.global.inc.u32", "atom.relaxed.gpu.global.inc.u32"),
        ("atom.acq_rel.gpu.global.inc.u32", "atom.release.gpu.global.inc.u32"),
        ("atom.acq_rel.gpu.global.inc.u32", "atom.acquire.gpu.global.inc.u32"),
        ("atom.acq_rel.gpu.global.inc.u32", "atom.acq_rel.cta.global.inc.u32"),
    ],
    ids=["relaxed", "release", "acquire", "cta"],
)
def test_a_count_that_orders_too_little_is_seen(edit: tuple[str, str]) -> None:
    shape = MERGED["hd64_last"]
    _, findings = run(split(shape), draw(split(shape)), shape=shape, edit=edit)
    assert findings


def test_a_wait_that_acquires_nothing_is_seen() -> None:
    shape = MERGED["hd64_together"]
    edit = ("ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32")
    _, findings = run(split(shape), draw(split(shape)), shape=shape, edit=edit)
    assert findings


@pytest.mark.parametrize("name", [name for name, shape in REBUILT.items() if shape.clocks])
def test_clocks_change_nothing(name: str) -> None:
    shape = REBUILT[name]
    p = split(shape)
    inputs = draw(p)
    expected, _ = run(p, inputs, shape=own(shape))
    out, findings = run(p, inputs, shape=shape)
    assert not findings, findings[0]
    assert all(np.array_equal(out[key], expected[key], equal_nan=True) for key in expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", REBUILT | RESHAPED | PARTIAL)
def test_nothing_spills_and_no_product_waits(name: str, tmp_path: object) -> None:
    said = sm90_rig.compile_for((REBUILT | RESHAPED | PARTIAL)[name], tmp_path / "kernel.cubin", "-cubin", "-Xptxas=-v")  # type: ignore[operator]
    assert "serialized" not in said
    assert said.count("0 bytes spill stores, 0 bytes spill loads") == 2, said
