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


def variant_for(configuration: Configuration, arch: str = "sm_100a") -> Variant | str:
    """The variant for `arch`, as nvcc names it, that runs `configuration`, or the reason why none does yet."""
    variants = [item for item in VARIANTS if item.arch == arch and item.head_dim == configuration.head_dim]
    if not variants:
        return f"no kernel for head_dim {configuration.head_dim} on {arch} yet"
    fitting = [variant for variant in variants if configuration.p_path in ("auto", variant.p_path)]
    if not fitting:
        return f"no kernel for head_dim {configuration.head_dim} with P through {configuration.p_path} on {arch} yet"
    return missing(configuration) or fitting[0]


def missing(configuration: Configuration) -> str | None:
    """What the kernels do not have yet and the configuration needs; None when they have it all."""
    item = configuration
    for needed, what in (
        (item.mask != "none", "the mask"),
        (item.kv_lens != "full", "kv_lens"),
        (item.kv == "shared", "K and V in one tensor"),
        (item.topk > 0, "the sparse branch"),
        (item.output != "unnormalised", "normalised output"),
        (item.splits > 1, "split KV"),
        (item.s_k == 0, "a dense branch without keys"),
    ):
        if needed:
            return f"{what} is not in the kernel yet"
    return None
