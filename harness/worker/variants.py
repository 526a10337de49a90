"""The kernels there are, and which configuration each of them runs."""

from __future__ import annotations

from harness.worker.params import sm100_shape
from harness.worker.protocol import Configuration, PPath, Variant


def _sm100(head_dim: int, p_path: PPath) -> Variant:
    return Variant(
        name=f"sm100_hd{head_dim}_p{p_path}",
        arch="sm_100a",
        source="kernel/sm100/fmha_fwd.cu",
        entry=f"fmha_fwd_sm100_hd{head_dim}_p{p_path}",
        head_dim=head_dim,
        p_path=p_path,
        shape=sm100_shape(head_dim, p_path),
        defines=(("FMHA_HEAD_DIM", str(head_dim)),),
    )


VARIANTS: tuple[Variant, ...] = (_sm100(64, "tmem"),)

MAXIMUM_T = 128
MASK_NAMES = {"causal": "the causal mask", "window": "the sliding window"}


def variant_for(configuration: Configuration) -> Variant | str:
    """The variant that runs `configuration`, or the reason why none does yet."""
    variant = next((variant for variant in VARIANTS if variant.head_dim == configuration.head_dim), None)
    if variant is None:
        return f"no kernel for head_dim {configuration.head_dim} yet"
    if configuration.mask != "none":
        return f"{MASK_NAMES[configuration.mask]} is not in the kernel yet"
    if not 1 <= configuration.t <= MAXIMUM_T:
        return f"the kernel takes t from 1 to {MAXIMUM_T}, not {configuration.t}"
    if configuration.s_k < 1 or configuration.batch < 1:
        return f"s_k and batch start at 1, not at {min(configuration.s_k, configuration.batch)}"
    return variant
