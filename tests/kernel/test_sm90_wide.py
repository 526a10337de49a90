"""Clusters whose CTAs have two row tiles and share their loads. Nothing that the harness launches has them, so that no
suite can notice a mistake there: the kernels' own tests do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha.emulator import Module, load_ptx
from fmha.harness.bench.shapes.check_numbers import verdict
from fmha.harness.bench.shapes.launch_shapes import shape_of
from fmha.harness.bench.shapes.problem import Problem, draw, reference
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import VARIANTS
from tests.kernel.sm90_rig import ROOT, compile_for, run
from tools.mutants import library
from tools.mutants.examine import copy_kernel

DRAW = ROOT / "tools/mutants/draws/2026-11-28.yaml"
SHAPE = shape_of(128, 64)
# Mistakes that no suite notices, and what shows them: two splits that load long runs of tiles for two row tiles each;
# two queries whose lists are of different lengths, and longer than the ring.
SHOWN_BY = {
    "multicast-to-the-first-pair": Problem(
        128, heads=16, t=9, s_k=8 * SHAPE.keys + 1, splits=2, cluster=(2, 2), seed=3
    ),
    "gathered-slots-given-back-to-both": Problem(
        128, heads=16, t=3, s_k=0, cluster=(2, 1), topk=900, s_sparse=1000, sparse_lens=True, seed=3
    ),
}


def passes(p: Problem, kernel: Module | None = None) -> bool:
    inputs = draw(p)
    out, findings = run(p, inputs, shape=SHAPE, kernel=kernel)
    return not findings and verdict(p, out, reference(p, inputs))[0]


def test_the_harness_launches_no_cluster_of_two_row_tiles() -> None:
    """By which the draw's mistakes in them are argued."""
    assert {variant.shape.ctas for variant in VARIANTS if variant.arch == ARCH} == {1}


@pytest.mark.parametrize("p", SHOWN_BY.values(), ids=SHOWN_BY)
def test_row_tiles_that_share_loads_agree_with_float64(p: Problem) -> None:
    assert passes(p)


@pytest.mark.nvcc
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "p"), SHOWN_BY.items(), ids=SHOWN_BY)
def test_a_mistake_where_row_tiles_share_loads_is_noticed(name: str, p: Problem, tmp_path: Path) -> None:
    (mutant,) = [mutant for mutant in library.load(DRAW) if mutant.name == name]
    texts = {edit.file: (ROOT / "kernel" / edit.file).read_text(encoding="utf-8") for edit in mutant.edits}
    copy_kernel(ROOT, tmp_path, {edit.file: edit.applied(texts[edit.file]) for edit in mutant.edits})
    compile_for(SHAPE, tmp_path / "kernel.ptx", tmp_path)
    assert not passes(p, load_ptx((tmp_path / "kernel.ptx").read_text()))


def test_partial_results_reach_the_ends_of_float32() -> None:
    """A part of 2^127, whose reciprocal is no normal number, and one of 2^-126: values that are all alike come out as
    they are."""
    p = Problem(128, heads=70, t=1, s_k=200, splits=3, bf16=True, poison=False)
    shape = shape_of(128, kind="plain")
    inputs = draw(p) | {"q": np.zeros_like(draw(p)["q"])}
    for exponent in (120, -126):  # 128 keys of a part: 2^127
        v = np.full_like(inputs["v"], (exponent + 127) << 7)
        out, findings = run(p, inputs | {"v": v}, shape=shape)
        assert not findings, findings[0]
        np.testing.assert_array_equal(out["o"], np.full_like(out["o"], (exponent + 127) << 7))
