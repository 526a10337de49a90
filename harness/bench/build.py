"""Compiles every shape that is tried: `python -m fmha.harness.bench.build FOLDER`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from fmha.harness.bench.gpu import build
from fmha.harness.bench.shapes import Shape
from fmha.harness.bench.variants import CANDIDATES


def build_candidates(folder: Path, shapes: Mapping[str, Shape] = CANDIDATES) -> dict[str, str]:
    """FOLDER/shape.cubin of each, and what ptxas said of it by name; RuntimeError when one does not compile."""
    return build({name: ("fmha_fwd.cu", shape.defines) for name, shape in shapes.items()}, folder)


if __name__ == "__main__":
    for name, text in build_candidates(Path(sys.argv[1])).items():
        print(f"{name}: {text}")
