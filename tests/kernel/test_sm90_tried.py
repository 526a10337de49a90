"""The builds that are tried on silicon, first on the emulator: right numbers, no hazards, and the same bits as the
kernels that they are tried against where the order of the sums is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.bench.shapes.cases import checks
from fmha.harness.bench.shapes.check_numbers import verdict
from fmha.harness.bench.shapes.launch_shapes import BuildShape
from fmha.harness.bench.shapes.problem import Problem, draw, reference
from fmha.harness.bench.shapes.tried_variants import REBUILT, RESHAPED
from tests.kernel import sm90_rig
from tests.kernel.sm90_rig import run

# One worker reads the kernels of each shape.
pytestmark = [pytest.mark.nightly, pytest.mark.nvcc, pytest.mark.xdist_group("sm90-tried")]

EVERY_CHECK = [(name, i) for name, shape in RESHAPED.items() for i in range(len(checks(shape)))]


def own(shape: BuildShape) -> BuildShape:
    """The build without what is tried."""
    return replace(shape, clocks=False)


def split(shape: BuildShape) -> Problem:
    """Several row tiles in two batch entries; the last split has no keys in one of them."""
    return Problem(
        shape.head_dim, heads=70, t=3, s_k=5 * shape.keys + 1, batch=2, splits=5, sink=True, kv_lens=True, bf16=True,
        seed=4,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "index"), EVERY_CHECK)
def test_agrees_with_float64(name: str, index: int) -> None:
    shape = RESHAPED[name]
    p = checks(shape)[index]
    if p.t >= 100:
        p = replace(p, t=70, s_k=80)
    inputs = draw(p)
    out, findings = run(p, inputs, shape=shape)
    assert not findings, findings[0]
    passes, error, lse = verdict(p, out, reference(p, inputs))
    assert passes, (error, lse)


@pytest.mark.parametrize("name", REBUILT)
def test_clocks_change_nothing(name: str) -> None:
    shape = REBUILT[name]
    p = split(shape)
    inputs = draw(p)
    expected, _ = run(p, inputs, shape=own(shape))
    out, findings = run(p, inputs, shape=shape)
    assert not findings, findings[0]
    assert all(np.array_equal(out[key], expected[key], equal_nan=True) for key in expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", REBUILT | RESHAPED)
def test_nothing_spills_and_no_product_waits(name: str, tmp_path: Path) -> None:
    said = sm90_rig.assembled((REBUILT | RESHAPED)[name], tmp_path)
    assert "serialized" not in said
    assert said.count("0 bytes spill stores, 0 bytes spill loads") == 3, said
