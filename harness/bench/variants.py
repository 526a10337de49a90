"""The shapes that are tried."""

from __future__ import annotations

from harness.bench.shapes import SHAPES, Shape

#                     rows keys row column boxes slots head_dim
#                               groups
CANDIDATES = {f"hd{head_dim}": shape for head_dim, shape in SHAPES.items()} | {
    "hd64_3": Shape(192, 128, 3, 1, 1, 11, 64, overlap=True, registers=160),
    "hd64_4": Shape(256, 64, 4, 1, 1, 20, 64, registers=112),
    "hd64_short": Shape(64, 64, 1, 1, 1, 8, 64, registers=168, ctas_per_sm=2),
    "hd128_small": Shape(128, 128, 2, 1, 1, 11, 128, overlap=True),
    "hd128_3": Shape(192, 64, 3, 1, 2, 10, 128, overlap=True, registers=160),
    "hd128_short": Shape(64, 64, 1, 1, 2, 5, 128, registers=168, ctas_per_sm=2),
}
