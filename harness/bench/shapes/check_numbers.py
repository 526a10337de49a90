"""Whether the numbers of a problem are right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.judge.oracle.bf16 import from_bf16

COSINE, LSE = 0.999996, 1e-4  # seed 001's figures, as in matrix.yaml


def verdict(p: Problem, out: dict[str, NDArray[Any]], ref: dict[str, NDArray[Any]]) -> tuple[bool, float, float]:
    """Whether it passes; relative L2 error of o; largest error of lse."""
    o = from_bf16(out["o"]) if p.bf16 else out["o"].astype(np.float64)
    norm = float(np.linalg.norm(ref["o"]))
    error = float(np.linalg.norm(o - ref["o"])) / norm if norm else float(np.abs(o).max())
    cosine = float((o * ref["o"]).sum() / (np.linalg.norm(o) * norm)) if norm else 1.0
    same = np.array_equal(np.isneginf(out["lse"]), np.isneginf(ref["lse"]))
    finite = np.isfinite(ref["lse"])
    worst = max(
        (float(np.abs(out[n][finite] - ref[n][finite]).max(initial=0)) for n in ("lse", "row_max")), default=0.0
    )
    sums = np.allclose(out["row_sum"], ref["row_sum"], rtol=1e-4, atol=0)
    return bool(same and sums and error < 4e-3 and cosine >= COSINE and worst <= LSE), error, worst
