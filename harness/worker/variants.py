"""The kernels there are, and which configuration each of them runs."""

from __future__ import annotations

from harness.worker.params import sm90_shape, sm100_shape
from harness.worker.protocol import Configuration, PPath, Variant


def _sm100(head_dim: int, p_path: PPath) -> Variant:
    entry = f"fmha_fwd_sm100_hd{head_dim}_p{p_path}"
    return Variant(
        name=f"sm100_hd{head_dim}_p{p_path}",
        arch="sm_100a",
        source="kernel/sm100/fmha_fwd.cu",
        entry=entry,
        head_dim=head_dim,
        p_path=p_path,
        shape=sm100_shape(head_dim, p_path),
        defines=(
            ("FMHA_HEAD_DIM", str(head_dim)),
            ("FMHA_P_IN_SHARED", str(int(p_path == "smem"))),
            ("FMHA_ENTRY", entry),
        ),
        combine="fmha_combine",
    )


def _sm90(head_dim: int) -> Variant:
    return Variant(
        name=f"sm90_hd{head_dim}",
        arch="sm_90a",
        source="kernel/sm90/fmha_fwd.cu",
        entry=f"fmha_fwd_sm90_hd{head_dim}",
        head_dim=head_dim,
        p_path="registers",
        shape=sm90_shape(head_dim),
        defines=(("FMHA_HEAD_DIM", str(head_dim)),),
        combine="fmha_combine_sm90",
    )


# Of two variants for a head_dim the first is taken, unless P's path is asked for. P through tensor memory is first: it
# leaves shared memory's bandwidth to K and V, which both products read from there. At head_dim 512 P passes through
# shared memory either way (docs/kernel.md).
VARIANTS: tuple[Variant, ...] = (
    *(_sm100(head_dim, "tmem") for head_dim in (64, 128, 256)),
    *(_sm100(head_dim, "smem") for head_dim in (64, 128, 256, 512)),
    _sm100(512, "tmem"),
    *(_sm90(head_dim) for head_dim in (64, 128, 256, 512)),
)


def variant_for(configuration: Configuration, arch: str = "sm_100a") -> Variant | str:
    """The variant for `arch`, as nvcc names it, that runs `configuration`, or the reason why none does yet."""
    variants = [item for item in VARIANTS if item.arch == arch and item.head_dim == configuration.head_dim]
    if not variants:
        return f"no kernel for head_dim {configuration.head_dim} on {arch} yet"
    fitting = [variant for variant in variants if configuration.p_path in ("auto", variant.p_path)]
    if not fitting:
        return f"no kernel for head_dim {configuration.head_dim} with P through {configuration.p_path} on {arch} yet"
    return fitting[0]
