"""Holds fmha.harness.kernel_side.cost.row_tiles_us to the timing model: both kernels over a grid of sizes on a B200.

    python -m tools.prefill_choice     # some minutes

Prints of each call what the model and what the cost function says of either kernel, and where the choice is not the
model's, by how much it is slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fmha.harness import account
from fmha.harness.attention.decision import BUILD_SECONDS
from fmha.harness.kernel_side.cost import B200, PREFILL, PREFILL_ROWS, PlaneSizes, row_tiles_us
from fmha.harness.kernel_side.launch import Call
from fmha.harness.kernel_side.variants import VARIANTS, is_prefill
from fmha.harness.see.call_time import model
from fmha.harness.worker.compilers.build_kernels import build_variants

GPU: Final = "b200"
ROOT: Final = Path(__file__).resolve().parents[1]
# Planes, queries and keys: about a turn of CTAs, and some turns; long and short ones, whole row tiles and parts.
GRID: Final = (
    (1, 256, 128), (1, 256, 1024), (1, 256, 4096), (40, 512, 1024), (75, 256, 1024), (120, 256, 1024), (148, 256, 1024),
    (150, 256, 1024), (30, 1024, 1024), (40, 1024, 1024), (64, 1024, 1024), (16, 2048, 2048), (10, 2048, 2048),
    (300, 128, 1024), (300, 200, 1024),
)  # fmt: skip


def main() -> None:
    """Prints which kernel is faster for prefill by the model, over a grid of sizes."""
    for head_dim, _ in PREFILL:
        both = [v for v in VARIANTS if v.head_dim == head_dim and v.arch == "sm_100a" and v.p_path == "tmem"]
        both.sort(key=is_prefill)
        built = build_variants(ROOT, both, account.folder("builds"), BUILD_SECONDS, 2, print)
        for planes, t, s_k in GRID:
            for causal in (False, True):
                call = Call(
                    head_dim=head_dim, batch=planes, t=t, heads=1, s_k=s_k, window_right=0 if causal else None,
                    scale=head_dim**-0.5, normalise=True, output_bf16=True,
                )  # fmt: skip
                said = [model(GPU, item.variant, Path(item.ptx), call).seconds() * 1e6 for item in built]
                shape = PlaneSizes(head_dim, planes, t, s_k)
                guessed = [row_tiles_us(B200, shape, 1, asked, causal) for asked in (0, PREFILL_ROWS)]
                wrong = (said[1] < said[0]) != (guessed[1] < guessed[0])
                name = f"{head_dim} {planes}x{t}x{s_k}{' causal' * causal}"
                print(
                    f"{name}: six warps {said[0]:.1f} us ({guessed[0]:.1f}), "
                    f"many rows {said[1]:.1f} us ({guessed[1]:.1f})"
                    + f", the choice is {max(said) / min(said) - 1:.1%} slower"
                    * wrong
                )


if __name__ == "__main__":
    main()
