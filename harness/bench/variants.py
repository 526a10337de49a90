"""The shapes that are tried."""

from __future__ import annotations

from harness.bench.shapes import OTHERS, SHAPES, Shape

#                     rows keys row column boxes slots head_dim
#                               groups
CANDIDATES = {f"hd{head_dim}": shape for head_dim, shape in SHAPES.items()} | {
    "hd64_3": OTHERS[64, 192],
    "hd64_4": Shape(256, 64, 4, 1, 1, 20, 64, registers=112),
    "hd64_short": OTHERS[64, 64],
    "hd128_small": Shape(128, 128, 2, 1, 1, 11, 128, overlap=True),
    "hd128_3": Shape(192, 64, 3, 1, 2, 10, 128, overlap=True, registers=160),
    "hd128_short": OTHERS[128, 64],
}
