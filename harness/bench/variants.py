"""The shapes that are tried."""

from __future__ import annotations

from harness.bench.shapes import Shape

#                          rows keys rg cg box slots hd   pp    registers
CANDIDATES = {
    "hd64": Shape(128, 128, 2, 1, 1, 12, 64),
    "hd64_pp": Shape(128, 128, 2, 1, 1, 12, 64, True),
    "hd64_3": Shape(192, 128, 3, 1, 1, 11, 64, False, 160),
    "hd64_3pp": Shape(192, 128, 3, 1, 1, 11, 64, True, 160),
    "hd64_k64": Shape(128, 64, 2, 1, 1, 22, 64),
    "hd128": Shape(128, 128, 2, 1, 1, 11, 128),
    "hd128_pp": Shape(128, 128, 2, 1, 1, 11, 128, True),
    "hd128_b2": Shape(128, 128, 2, 1, 2, 5, 128),
    "hd128_b2pp": Shape(128, 128, 2, 1, 2, 5, 128, True),
    "hd128_k64": Shape(128, 64, 2, 1, 2, 11, 128),
    "hd256": Shape(128, 64, 2, 1, 2, 9, 256),
    "hd256_pp": Shape(128, 64, 2, 1, 2, 9, 256, True),
    "hd512": Shape(64, 64, 1, 2, 2, 9, 512),
}
