"""Compares the kernels with float64: `python -m harness.bench.check FOLDER [VARIANT...]`, one line a problem."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.bench.cases import checks
from harness.bench.gpu import initialise, load_forward, run_once
from harness.bench.problem import Problem, draw, reference, widen
from harness.bench.variants import CANDIDATES

COSINE, LSE = 0.999996, 1e-4  # seed 001's figures, as in matrix.yaml


def verdict(p: Problem, out: dict[str, NDArray[Any]], ref: dict[str, NDArray[Any]]) -> tuple[bool, float, float]:
    """Whether it passes; relative L2 error of o; largest error of lse."""
    o = widen(out["o"]) if p.bf16 else out["o"].astype(np.float64)
    norm = float(np.linalg.norm(ref["o"]))
    error = float(np.linalg.norm(o - ref["o"])) / norm if norm else float(np.abs(o).max())
    cosine = float((o * ref["o"]).sum() / (np.linalg.norm(o) * norm)) if norm else 1.0
    same = np.array_equal(np.isneginf(out["lse"]), np.isneginf(ref["lse"]))
    finite = np.isfinite(ref["lse"])
    worst = max((float(np.abs(out[n][finite] - ref[n][finite]).max(initial=0)) for n in ("lse", "row_max")), default=0.0)
    sums = np.allclose(out["row_sum"], ref["row_sum"], rtol=1e-4, atol=0)
    return bool(same and sums and error < 4e-3 and cosine >= COSINE and worst <= LSE), error, worst


def main() -> int:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    few = "--few" in names
    names = [n for n in names if n != "--few"] or list(CANDIDATES)
    initialise()
    failed = 0
    for name in names:
        shape = CANDIDATES[name]
        kernel = load_forward(folder / f"{name}.cubin", shape)
        start, errors, bad = time.monotonic(), [], 0
        problems = checks(shape.head_dim, shape.keys, shape.boxes >= 2)
        for p in problems[:8] if few else problems:
            x = draw(p)
            good, error, lse = verdict(p, run_once(kernel, p, x), reference(p, x))
            errors.append((error, lse))
            if not good:
                bad += 1
                print(f"FAIL {name}: o {error:.2e}, lse {lse:.2e}: {p}", flush=True)
        worst = [max(e) for e in zip(*errors, strict=True)]
        print(
            f"{name}: {len(errors) - bad}/{len(errors)} pass, o {worst[0]:.2e}, lse {worst[1]:.2e}, "
            f"{time.monotonic() - start:.1f} s",
            flush=True,
        )
        failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
