"""The shapes that are tried."""

from __future__ import annotations

from harness.bench.shapes import Shape

#                     rows keys row column boxes slots head_dim
#                               groups
CANDIDATES = {
    "hd64": Shape(128, 128, 2, 1, 1, 12, 64),
    "hd64_pp": Shape(128, 128, 2, 1, 1, 12, 64, ping_pong=True),
    "hd64_peel": Shape(128, 128, 2, 1, 1, 12, 64, ping_pong=True, peeled=True),
    "hd64_3": Shape(192, 128, 3, 1, 1, 11, 64, registers=160),
    "hd64_3peel": Shape(192, 128, 3, 1, 1, 11, 64, registers=160, peeled=True),
    "hd64_3pppeel": Shape(192, 128, 3, 1, 1, 11, 64, ping_pong=True, registers=160, peeled=True),
    "hd64_k64": Shape(128, 64, 2, 1, 1, 22, 64),
    "hd128": Shape(128, 128, 2, 1, 1, 11, 128),
    "hd128_peel": Shape(128, 128, 2, 1, 1, 11, 128, peeled=True),
    "hd128_b2pp": Shape(128, 128, 2, 1, 2, 5, 128, ping_pong=True),
    "hd128_b2peel": Shape(128, 128, 2, 1, 2, 5, 128, peeled=True),
    "hd128_k64": Shape(128, 64, 2, 1, 2, 11, 128),
    "hd256": Shape(128, 64, 2, 1, 2, 9, 256),
    "hd256_peel": Shape(128, 64, 2, 1, 2, 9, 256, peeled=True),
    "hd256_pp": Shape(128, 64, 2, 1, 2, 9, 256, ping_pong=True),
    "hd256_early": Shape(128, 64, 2, 1, 2, 9, 256, early_release=True),
    "hd512": Shape(64, 64, 1, 2, 2, 9, 512, peeled=True, early_release=True),
    "hd512_whole": Shape(64, 64, 1, 2, 2, 9, 512, early_release=True),
    "hd512_late": Shape(64, 64, 1, 2, 2, 9, 512, peeled=True),
}
