"""Compiles every shape that is tried: `python -m harness.bench.build FOLDER`."""

import sys
from pathlib import Path

from harness.bench.gpu import build
from harness.bench.variants import CANDIDATES

if __name__ == "__main__":
    sources = {name: ("fmha_fwd.cu", shape.defines) for name, shape in CANDIDATES.items()}
    for name, text in build(sources, Path(sys.argv[1])).items():
        print(f"{name}: {text}")
