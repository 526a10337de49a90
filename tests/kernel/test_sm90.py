"""The sm_90a kernels on the emulator: right numbers and no hazards, for every mask, branch, output and way to split."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fmha.harness.bench.shapes.cases import checks
from fmha.harness.bench.shapes.check_numbers import verdict
from fmha.harness.bench.shapes.launch_shapes import BuildShape, shape_of
from fmha.harness.bench.shapes.problem import Problem, draw, reference
from fmha.harness.kernel_side.choice import kinds_of
from fmha.harness.kernel_side.params import SM90_KERNELS, SM90_KINDS, SM90_SHAPES, sm90_shape
from fmha.harness.kernel_side.variants import sm90_variant
from tests.kernel.kept import marks
from tests.kernel.sm90_rig import KERNELS, ROOT, run

# Of the builds of a head_dim, which differ in tiles and in what they leave out, each has every second problem, and the
# next one those between. All pairs of fields are in the suite cover-sm90.
PROBLEMS = [
    (p, rows, kind)
    for n, (d, rows, kind) in enumerate(KERNELS)
    for p in [p for p in checks(shape_of(d, rows, kind)) if p.t < 100][n % 2 :: 2]
]


def name(value: Problem | int | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"rows{value}"
    p = value
    parts = [f"hd{p.head_dim}", f"h{p.heads}", f"t{p.t}", f"s{p.s_k}"]
    parts += [f"top{p.topk}"] * (p.topk > 0) + [f"split{p.splits}"] * (p.splits > 1)
    parts += [f"walkers{p.walkers}"] * (p.walkers > 0)
    parts += ["kv"] * p.shared_kv
    return "-".join(parts)


@pytest.mark.parametrize(
    ("p", "rows", "kind"),
    [pytest.param(p, rows, kind, marks=marks(sm90_variant(p.head_dim, rows, kind))) for p, rows, kind in PROBLEMS],
    ids=name,
)
def test_agrees_with_float64_and_shows_no_hazard(p: Problem, rows: int, kind: str) -> None:
    inputs = draw(p)
    out, findings = run(p, inputs, shape=shape_of(p.head_dim, rows, kind))
    assert not findings, findings[0]
    passes, error, lse = verdict(p, out, reference(p, inputs))
    assert passes, (error, lse)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))])
@pytest.mark.parametrize(("head_dim", "rows"), [(64, 0), (64, 64), (64, 192), (128, 0), (128, 64), (256, 64), (512, 0)])
def test_the_schedule_does_not_show(head_dim: int, rows: int, seed: int) -> None:
    """Splits that are merged, a tail to clear and lists to gather."""
    shape = shape_of(head_dim, rows)
    p = Problem(
        head_dim, heads=16, t=9, s_k=2 * shape.keys + 1, splits=2, topk=70, s_sparse=200,
        kv_lens=True, sparse_lens=True, seed=3,
    )  # fmt: skip
    inputs = draw(p)
    expected, _ = run(p, inputs, shape=shape)
    out, findings = run(p, inputs, seed=seed, schedule="random", shape=shape)
    assert not findings, findings[0]
    assert all(np.array_equal(out[key], expected[key], equal_nan=True) for key in expected)


@pytest.mark.parametrize("exponent", [-100, 100])
@pytest.mark.parametrize("head_dim", [128, 256, 512])
def test_partial_results_in_f16_have_the_range_of_bf16(head_dim: int, exponent: int) -> None:
    """V times a power of two is the result times that power, bit by bit, however far that is from what f16 holds."""
    p = Problem(head_dim, heads=70, t=1, s_k=200, splits=3, bf16=True, poison=False)
    inputs = draw(p)
    shape = shape_of(head_dim, kind="plain")
    out, findings = run(p, inputs, shape=shape)
    scaled = inputs["v"] + np.uint16(exponent << 7 & 0xFFFF)  # of bf16's exponent; no element of V is zero or near
    assert (inputs["v"] << 1 != 0).all()
    large, more = run(p, inputs | {"v": scaled}, shape=shape)
    assert not (findings + more), (findings + more)[0]
    np.testing.assert_array_equal(large["o"], out["o"] + np.uint16(exponent << 7 & 0xFFFF))


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


def test_a_wrong_number_fails() -> None:
    p = Problem(64, heads=2, t=3, s_k=40)
    inputs = draw(p)
    expected = reference(p, inputs)
    right = {key: value.astype(np.float32) for key, value in expected.items()}
    assert verdict(p, right, expected)[0]
    for key in ("o", "lse", "row_max", "row_sum"):
        wrong = right | {key: right[key] * np.float32(1.02)}
        assert not verdict(p, wrong, expected)[0], key
    assert not verdict(p, right | {"o": np.full_like(right["o"], np.nan)}, expected)[0]


def test_the_guide_has_the_figures_of_the_shapes() -> None:
    """A row of hopper.md a shape: head_dim, rows, keys, warpgroups, S, O, ring, shared memory; both if *dense*."""
    rows = re.findall(
        r"^\| (\d+)[^|]*((?:\|[^|]+){9})\|$", (ROOT / "docs/understand/hopper.md").read_text(), re.MULTILINE
    )
    told = []
    for head_dim, cells in rows[: len(SM90_KERNELS)]:
        cta, keys, groups, _, _, ring, shared, *dense = (cell.strip() for cell in cells.split("|")[1:])
        two = "two CTAs" in groups
        figures = int(head_dim), int(cta), int(keys), int(groups.split()[0].strip(",")), two, _slots(ring), int(shared)
        told.append(figures + (() if dense == ["none", "none"] else tuple(map(int, dense))))
    known = []
    for (dim, asked), shape in SM90_SHAPES.items():
        kinds = [kind for kind in ("whole", "dense") if kind in kinds_of(asked)]
        rings = [figure for kind in kinds for figure in (shape.slots_of(kind), shape.shared_bytes(dim, kind))]
        two = shape.ctas_per_sm == 2
        known.append((dim, shape.rows, shape.keys, shape.row_groups * shape.column_groups, two, *rings))
    assert sorted(told) == sorted(known)


def _slots(ring: str) -> int:
    """Of "6 x 16 KiB", or of "2 of 3 x 24 KiB"."""
    return math.prod(map(int, ring.split(" x ")[0].split(" of ")))


def test_python_has_the_launch_shapes_of_the_header(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None
    source = tmp_path / "print.cpp"
    source.write_text("""
        #include <cstdio>
        #include <cstdlib>
        #include "launch.h"
        int main(int count, char** given) {
            for (int i = 1; i < count; i += 3) {
                const int d = std::atoi(given[i]), rows = std::atoi(given[i + 1]), kind = std::atoi(given[i + 2]);
                const FmhaSm90Launch l = fmha_sm90_launch(d, rows);
                std::printf("%d %d %d %d %d %d %d %d %d %d %d\\n", l.rows, l.keys, l.row_groups, l.column_groups,
                            l.boxes_per_unit, fmha_sm90_slots(d, rows, kind), fmha_sm90_overlap(d, rows, kind),
                            fmha_sm90_registers(d, rows, kind), l.ctas_per_sm, fmha_sm90_threads(d, rows),
                            fmha_sm90_shared_bytes(d, rows, kind));
            }
        }
    """)
    program = tmp_path / "print"
    subprocess.run([compiler, "-std=c++17", f"-I{ROOT / 'kernel/sm90'}", "-o", program, source], check=True)
    kernels = [(*kernel, kind) for kernel in SM90_KERNELS for kind in kinds_of(kernel[1])]
    asked = [str(value) for d, rows, kind in kernels for value in (d, rows, SM90_KINDS.index(kind))]
    printed = subprocess.run([program, *asked], check=True, capture_output=True, text=True).stdout.splitlines()
    for (d, asked_rows, kind), line in zip(kernels, printed, strict=True):
        *figures, threads, shared_bytes = map(int, line.split())
        rows, keys, row_groups, column_groups, boxes, slots, overlap, registers, ctas = figures
        header = BuildShape(
            rows, keys, row_groups, column_groups, boxes, slots, d, bool(overlap), registers, ctas, kind
        )
        assert header == shape_of(d, asked_rows, kind)
        assert asked_rows in (0, rows)
        assert (threads, shared_bytes) == (header.threads, header.shared_bytes)
        launch = sm90_shape(d, asked_rows, kind)
        assert dataclasses.astuple(launch) == (rows, keys, slots, threads, shared_bytes, 1)  # no pair of CTAs
