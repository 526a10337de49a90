"""The kernels there are, and which configuration each of them runs."""

from __future__ import annotations

from fmha.harness.worker import choice
from fmha.harness.worker.params import SM90_KERNELS, sm90_shape, sm100_shape
from fmha.harness.worker.protocol import Configuration, PPath, Variant


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


PLAIN = ("FMHA_PLAIN", "1")  # of kernel/sm90/launch.h


def _sm90(head_dim: int, rows: int = 0, plain: bool = False) -> Variant:
    return Variant(
        name=f"sm90_hd{head_dim}" + (f"_rows{rows}" if rows else "") + ("_plain" if plain else ""),
        arch="sm_90a",
        source="kernel/sm90/fmha_fwd.cu",
        entry=f"fmha_fwd_sm90_hd{head_dim}",
        head_dim=head_dim,
        p_path="registers",
        shape=sm90_shape(head_dim, rows),
        defines=(
            ("FMHA_HEAD_DIM", str(head_dim)),
            *((("FMHA_ROWS", str(rows)),) if rows else ()),
            *((PLAIN,) if plain else ()),
        ),
        combine="fmha_combine_sm90",
    )


# Of several variants for a head_dim the first is taken, unless P's path or the rows of a CTA are asked for, or
# harness/worker/choice.py has a rule. P through tensor memory is first: it leaves shared memory's bandwidth to K and V,
# which both products read from there. At head_dim 512 P passes through shared memory either way (docs/kernel.md).
VARIANTS: tuple[Variant, ...] = (
    *(_sm100(head_dim, "tmem") for head_dim in (64, 128, 256)),
    *(_sm100(head_dim, "smem") for head_dim in (64, 128, 256, 512)),
    _sm100(512, "tmem"),
    *(_sm90(*kernel, plain) for plain in (False, True) for kernel in SM90_KERNELS),
)


def variant_for(configuration: Configuration, arch: str = "sm_100a") -> Variant | str:
    """The variant for `arch`, as nvcc names it, that runs `configuration`, or the reason why none does yet."""
    variants = [item for item in VARIANTS if item.arch == arch and item.head_dim == configuration.head_dim]
    if not variants:
        return f"no kernel for head_dim {configuration.head_dim} on {arch} yet"
    plain = choice.is_plain(arch, configuration, configuration.mask != "none", merges_in_cluster(configuration, arch))
    variants = [variant for variant in variants if (PLAIN in variant.defines) == plain]
    fitting = [variant for variant in variants if configuration.p_path in ("auto", variant.p_path)]
    if not fitting:
        return f"no kernel for head_dim {configuration.head_dim} with P through {configuration.p_path} on {arch} yet"
    splits = configuration.splits
    if configuration.merge == "cluster" and (arch != choice.ARCH or splits > choice.MOST_IN_CLUSTER):
        return f"no kernel for head_dim {configuration.head_dim} merges {splits} splits in a cluster on {arch} yet"
    rows = configuration.rows or choice.rows_of_cta(arch, configuration, splits)
    right = [variant for variant in fitting if rows in (0, variant.shape.rows)]
    if not right:
        return f"no kernel for head_dim {configuration.head_dim} with {rows} rows a CTA on {arch} yet"
    return right[-1] if rows else right[0]  # one of several with as many rows: the one that has to be asked for


def merges_in_cluster(configuration: Configuration, arch: str) -> bool:
    """Whether the variant for `configuration` is launched so that a cluster merges the splits."""
    return arch == choice.ARCH and configuration.merge == "cluster"
