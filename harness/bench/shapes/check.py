"""Compares the kernels with float64: `python -m fmha.harness.bench.shapes.check FOLDER [VARIANT...]`.

Writes one line a problem.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fmha.harness.bench.shapes.cases import checks
from fmha.harness.bench.shapes.check_numbers import verdict
from fmha.harness.bench.shapes.launch_problem import BuiltKernel, run_once
from fmha.harness.bench.shapes.problem import draw, reference
from fmha.harness.bench.shapes.tried_variants import ALL, CANDIDATES
from fmha.harness.worker.devices.cuda import CudaDevice

FEW = 8  # the branches


def main() -> int:
    """Compares candidates with the reference on the GPU. 1 where one is wrong."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    few = "--few" in names
    names = [n for n in names if n != "--few"] or list(CANDIDATES)
    device = CudaDevice()
    failed = 0
    for name in names:
        shape = ALL[name]
        kernel = BuiltKernel(device.load(folder / f"{name}.cubin"), shape)
        start, errors, bad = time.monotonic(), [], 0
        problems = checks(shape)
        for p in problems[:FEW] if few else problems:
            x = draw(p)
            out, _ = run_once(device, kernel, p, x)
            device.close()
            good, error, lse = verdict(p, out, reference(p, x))
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
