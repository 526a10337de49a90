"""The shapes and builds that are tried beside those of the harness; docs/understand/hopper.md says what for."""

from __future__ import annotations

from dataclasses import replace

from fmha.harness.bench.shapes.launch_shapes import OTHERS, SHAPES, BuildShape, shape_of
from fmha.harness.kernel_side.params import SM90_KERNELS

# What the bench's tables call shapes beside a head_dim's own; others are called by their rows.
_CALLED = {
    (64, 192): "hd64_3",
    (64, 64): "hd64_short",
    (128, 192): "hd128_3",
    (128, 64): "hd128_short",
    (256, 64): "hd256_short",
    (256, 128): "hd256_long",
}
CANDIDATES = {f"hd{head_dim}": shape for head_dim, shape in SHAPES.items()}
CANDIDATES |= {_CALLED.get(kernel, f"hd{kernel[0]}_rows{kernel[1]}"): shape for kernel, shape in OTHERS.items()}
#                     rows keys row column boxes slots head_dim
#                               groups
CANDIDATES |= {
    "hd64_4": BuildShape(256, 64, 4, 1, 1, 20, 64, registers=112, kind="plain"),
    "hd64_whole": BuildShape(128, 128, 2, 1, 1, 12, 64, overlap=True, registers=224, kind="plain"),
    "hd128_small": BuildShape(128, 128, 2, 1, 1, 11, 128, overlap=True, kind="plain"),
}

# What the harness launches, by head_dim and FMHA_ROWS; then the same without lists, and without windows.
LAUNCHED = {name: kernel for name, shape in CANDIDATES.items() for kernel in SM90_KERNELS if shape == shape_of(*kernel)}
OF_KIND = {
    f"{name}_{kind}": shape_of(*kernel, kind) for kind in ("dense", "plain") for name, kernel in LAUNCHED.items()
}
CANDIDATES |= OF_KIND

# Two CTAs an SM of half the rows, one of which begins while another multiplies.
RESHAPED = {
    "hd128_half64": BuildShape(64, 64, 1, 1, 2, 5, 128, overlap=True, registers=208, ctas_per_sm=2, kind="plain"),
}

REBUILT = {f"hd{head_dim}_clocks": replace(shape, kind="plain", clocks=True) for head_dim, shape in SHAPES.items()}

ALL = CANDIDATES | RESHAPED | REBUILT
