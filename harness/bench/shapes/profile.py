"""One launch for ncu, without torch.

`python -m fmha.harness.bench.shapes.profile FOLDER SHAPE KIND SPLITS [kv]`
"""

import sys
from dataclasses import replace
from pathlib import Path

from fmha.harness.bench.shapes.cases import decode, prefill
from fmha.harness.bench.shapes.launch_problem import BuiltKernel, run_once
from fmha.harness.bench.shapes.problem import draw
from fmha.harness.bench.shapes.tried_variants import CANDIDATES
from fmha.harness.worker.devices.cuda import CudaDevice

if __name__ == "__main__":
    folder, name, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    splits = int(sys.argv[4])
    shape = CANDIDATES[name]
    p = {"decode": decode(shape.head_dim), "short": decode(shape.head_dim, 512, 1), "prefill": prefill(shape.head_dim)}[
        kind
    ]
    p = replace(p, splits=splits, shared_kv="kv" in sys.argv)
    device = CudaDevice()
    kernel = BuiltKernel(device.load(folder / f"{name}.cubin"), shape)
    x = draw(p)
    for _ in range(3):
        run_once(device, kernel, p, x)
        device.close()
