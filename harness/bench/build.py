"""Compiles every shape that is tried: `python -m harness.bench.build FOLDER`."""

import sys
from pathlib import Path

from harness.bench.gpu import build
from harness.bench.variants import CANDIDATES

if __name__ == "__main__":
    sources = {name: ("fmha_fwd.cu", shape.defines) for name, shape in CANDIDATES.items()}
    sources |= {f"combine{d}": ("fmha_combine.cu", (f"FMHA_HEAD_DIM={d}",)) for d in (64, 128, 256, 512)}
    for name, text in build(sources, Path(sys.argv[1])).items():
        print(f"{name}: {text}")
