"""The kernels there are, and which configuration each of them runs."""

from __future__ import annotations

from collections.abc import Sequence

from fmha.harness.contract.protocol import Configuration, PPath, Variant
from fmha.harness.kernel_side import choice
from fmha.harness.kernel_side.cost import B200
from fmha.harness.kernel_side.params import (
    SM90_KERNELS,
    SM90_KINDS,
    SM90_SHAPES,
    SM100_FEW_ROWS,
    SM100_PAIRS,
    sm90_shape,
    sm100_pair_shape,
    sm100_prefill_shape,
    sm100_shape,
)

_PREFILL = "kernel/sm100/prefill/fmha_prefill.cu"
_PAIR = "kernel/sm100/pair/fmha_pair.cu"

# The shapes of sm_90a whose CTAs walk from row tile to row tile, or of which one divides head_dim.
_DENSE = tuple(made for made in SM90_KERNELS if made[1] != choice.SHORT_ROWS or SM90_SHAPES[made].dense_overlap)


def _sm100(head_dim: int, p_path: PPath, rows: int = 0) -> Variant:
    name = f"sm100_hd{head_dim}" + (f"_rows{rows}" if rows else f"_p{p_path}")
    entry = f"fmha_fwd_{name}"
    return Variant(
        name=name,
        arch="sm_100a",
        source="kernel/sm100/fmha_fwd.cu",
        entry=entry,
        head_dim=head_dim,
        p_path=p_path,
        shape=sm100_shape(head_dim, p_path, rows),
        defines=(
            ("FMHA_HEAD_DIM", str(head_dim)),
            ("FMHA_P_IN_SHARED", str(int(p_path == "smem"))),
            *((("FMHA_ROWS", str(rows)),) if rows else ()),
            ("FMHA_ENTRY", entry),
        ),
        combine="fmha_combine",
    )


def _sm100_prefill(head_dim: int) -> Variant:
    entry = f"fmha_prefill_sm100_hd{head_dim}"
    return Variant(
        name=f"sm100_hd{head_dim}_prefill",
        arch="sm_100a",
        source=_PREFILL,
        entry=entry,
        head_dim=head_dim,
        p_path="tmem",
        shape=sm100_prefill_shape(head_dim),
        defines=(("FMHA_HEAD_DIM", str(head_dim)), ("FMHA_ENTRY", entry)),
    )


def _sm100_pair(head_dim: int, rows: int) -> Variant:
    shape = sm100_pair_shape(head_dim, rows)
    name = f"sm100_hd{head_dim}_pair{shape.row_tile}"
    entry = f"fmha_fwd_{name}"
    return Variant(
        name=name,
        arch="sm_100a",
        source=_PAIR,
        entry=entry,
        head_dim=head_dim,
        p_path="smem",
        shape=shape,
        defines=(("FMHA_HEAD_DIM", str(head_dim)), ("FMHA_ROWS", str(shape.row_tile)), ("FMHA_ENTRY", entry)),
        combine="fmha_combine",
    )


def sm90_variant(
    head_dim: int,
    rows: int = 0,
    kind: str = "whole",
    by_head: bool = False,
    paged: bool = False,
    by_length: bool = False,
) -> Variant:
    """The Hopper kernel of these properties."""
    return Variant(
        name=f"sm90_hd{head_dim}"
        + (f"_rows{rows}" if rows else "")
        + ("" if kind == "whole" else f"_{kind}")
        + ("_paged" if paged else "_heads" if by_head else "")
        + ("_lengths" if by_length else ""),
        arch="sm_90a",
        source="kernel/sm90/fmha_fwd.cu",
        entry=f"fmha_fwd_sm90_hd{head_dim}",
        head_dim=head_dim,
        p_path="registers",
        shape=sm90_shape(head_dim, rows, kind),
        defines=(
            ("FMHA_HEAD_DIM", str(head_dim)),
            *((("FMHA_ROWS", str(rows)),) if rows else ()),
            *((("FMHA_KIND", str(SM90_KINDS.index(kind))),) if kind != "whole" else ()),
            *((("FMHA_KV_HEADS", "1"),) if by_head or paged else ()),
            *((("FMHA_PAGED", "1"),) if paged else ()),
            *((("FMHA_BY_LENGTH", "1"),) if by_length else ()),
        ),
        combine="fmha_combine_sm90",
    )


# Of several variants for a head_dim the first is taken, unless P's path or the rows of a CTA are asked for, or
# fmha.harness.kernel_side.choice has a rule. P through tensor memory is first: it leaves shared memory's bandwidth to
# K and V, which both products read from there. At head_dim 512 P passes through shared memory either way:
# docs/understand/kernel.md.
VARIANTS: tuple[Variant, ...] = (
    *(_sm100(head_dim, "tmem") for head_dim in (64, 128, 256)),
    *(_sm100(head_dim, "smem") for head_dim in (64, 128, 256, 512)),
    _sm100(512, "tmem"),
    *(_sm100(head_dim, "smem", rows) for head_dim, rows in SM100_FEW_ROWS),
    *(_sm100_prefill(head_dim) for head_dim in (64, 128)),
    *(_sm100_pair(head_dim, rows) for head_dim, rows in SM100_PAIRS),
    *(sm90_variant(*made, kind) for kind in SM90_KINDS for made in SM90_KERNELS if kind in choice.kinds_of(made[1])),
    # What knows K/V heads has maps of more dimensions to go through; others stay as they are without.
    *(sm90_variant(*made, "dense", by_head=True) for made in _DENSE),
    # Likewise what knows pages and packed sequences, whose producer looks up where each box lies.
    *(sm90_variant(*made, "dense", paged=True) for made in _DENSE),
    # And what orders its work by lengths: row tiles of packed queries, and balanced splits, which other shapes than a
    # head_dim's own have none of.
    *(
        sm90_variant(head_dim, rows, "dense", by_head=True, paged=paged, by_length=True)
        for paged in (False, True)
        for head_dim, rows in _DENSE
        if head_dim < 512 and (paged or rows in choice.BALANCED_ROWS)
    ),
)


def variant_for(configuration: Configuration, arch: str = "sm_100a", by_rule: int | None = None) -> Variant | str:
    """The variant for `arch`, as nvcc names it, that runs `configuration`, or the reason why none does yet. `by_rule`
    is what a rule that knows more has in the place of choice.rows_of_cta."""
    variants = [item for item in VARIANTS if item.arch == arch and item.head_dim == configuration.head_dim]
    if not variants:
        return f"no kernel for head_dim {configuration.head_dim} on {arch} yet"
    by_head = arch == choice.ARCH and configuration.by_head
    paged = arch == choice.ARCH and configuration.scattered
    if arch == choice.ARCH and _by_length(configuration):
        return _ordering(configuration, variants, by_rule)
    fitting = [
        variant
        for variant in variants
        if configuration.p_path in ("auto", variant.p_path)
        and (knows_heads(variant), knows_pages(variant), knows_lengths(variant)) == (by_head, paged, False)
        and not (is_prefill(variant) and (configuration.splits > 1 or configuration.kv == "shared"))
        and not (goes_through_row_tiles(variant) and (configuration.topk or configuration.page_size))
    ]
    if not fitting:
        return f"no kernel for head_dim {configuration.head_dim} with P through {configuration.p_path} on {arch} yet"
    if configuration.merge == "balanced":
        return _balancing(configuration, fitting, by_rule)
    splits = configuration.splits
    if configuration.merge == "cluster":
        return f"no kernel for head_dim {configuration.head_dim} merges {splits} splits in a cluster on {arch} yet"
    windowed = configuration.mask != "none"
    narrow = by_head and configuration.packed not in ("q", "both")
    if arch != choice.ARCH and configuration.p_path != "auto":
        by_rule = 0  # a path of P is asked for, and there are several for a head_dim's own rows alone
    elif by_rule is None:
        by_rule = choice.rows_of_cta(
            arch, configuration.planes, splits, windowed, by_head, narrow, _mean(configuration)
        )
        if any(map(is_prefill, fitting)):
            by_rule = choice.rows_of_many(configuration.planes, windowed, by_rule)
    rows = configuration.rows or by_rule
    right = [variant for variant in fitting if rows in (0, variant.shape.row_tile)]
    if not right:
        return f"no kernel for head_dim {configuration.head_dim} with {rows} rows a CTA on {arch} yet"
    # Of several with as many rows the one that has to be asked for.
    chosen = next((item for item in right if rows_define(item) == rows), right[0])
    if arch != choice.ARCH:
        return chosen
    kind = choice.kind_of(configuration, splits, windowed)
    alike = {kind_of(item): item for item in right if rows_define(item) == rows_define(chosen)}
    enough = [alike[name] for name in SM90_KINDS[SM90_KINDS.index(kind) :: -1] if name in alike]  # and ever more
    of = "for pages or packed sequences" if paged else "for several K/V heads" if by_head else f"of {rows} rows a CTA"
    return enough[0] if enough else f"no kernel {of} knows lists on {arch} yet"


def _by_length(configuration: Configuration) -> bool:
    """Whether lengths decide who has what: with balanced splits, or where queries of different numbers are packed and
    their row tiles have no splits."""
    ragged = configuration.q_lens != "full" and configuration.splits == 1 and configuration.head_dim < 512
    return configuration.merge == "balanced" or ragged


def _ordering(configuration: Configuration, variants: Sequence[Variant], by_rule: int | None) -> Variant | str:
    """Of `variants` the one that orders its work by lengths."""
    balanced, own = configuration.merge == "balanced", configuration.t * configuration.planes.heads
    if by_rule is None and balanced:
        by_rule = 0
    elif by_rule is None:
        by_rule = choice.rows_of_cta(choice.ARCH, configuration.planes, 1, configuration.mask != "none", by_head=True)
    rows = configuration.rows or by_rule
    right = [
        variant
        for variant in variants
        if knows_lengths(variant)
        and knows_pages(variant) == configuration.scattered
        and configuration.p_path in ("auto", variant.p_path)
        and rows in (0, variant.shape.rows)
        and not (balanced and (not balances(variant) or own > variant.shape.rows))
    ]
    if not right:
        of = f"with {rows} rows a CTA " if rows else f"of {own} rows a plane " if balanced else ""
        return f"no kernel for head_dim {configuration.head_dim} {of}orders its work by lengths on {choice.ARCH} yet"
    return next((variant for variant in right if rows_define(variant) == rows), right[0])


def _balancing(configuration: Configuration, fitting: Sequence[Variant], by_rule: int | None) -> Variant | str:
    """Of `fitting` on sm_100a the one that balances splits."""
    planes = configuration.planes
    right = [variant for variant in fitting if balances(variant)]
    if by_rule is None and configuration.p_path == "auto":
        found = choice.balance_of(B200, planes)
        by_rule = found.rows if found else 0
    if rows := configuration.rows or by_rule:
        right = [variant for variant in right if variant.shape.row_tile == rows]
    if not right:
        of = f"with {rows} rows a CTA " if rows else ""
        return f"no kernel for head_dim {configuration.head_dim} {of}balances splits on sm_100a yet"
    return next((variant for variant in right if rows_define(variant) == rows), right[0])


def _mean(configuration: Configuration) -> float:
    """As choice.cheapest has it; how long the entries are is not asked."""
    ragged = configuration.kv_lens != "full" or configuration.packed in ("k", "both")
    return choice.mean_of(configuration.planes, ragged, None)


def is_prefill(variant: Variant) -> bool:
    """Whether it is the kernel for many rows, whose CTAs go through row tiles by themselves."""
    return variant.source == _PREFILL


def is_pair(variant: Variant) -> bool:
    """Whether it is the kernel of CTA pairs, which go through row tiles likewise."""
    return variant.source == _PAIR


def goes_through_row_tiles(variant: Variant) -> bool:
    """Whether it is one of the two, neither of which knows lists and pages."""
    return is_prefill(variant) or is_pair(variant)


def kind_of(variant: Variant) -> str:
    """What a kernel knows, one of SM90_KINDS."""
    return SM90_KINDS[int(dict(variant.defines).get("FMHA_KIND", 0))]


def knows_heads(variant: Variant) -> bool:
    """Whether it is a variant for several K/V heads alone."""
    return "FMHA_KV_HEADS" in dict(variant.defines)


def knows_pages(variant: Variant) -> bool:
    """Whether it is a variant for pages and packed sequences alone."""
    return "FMHA_PAGED" in dict(variant.defines)


def knows_lengths(variant: Variant) -> bool:
    """Whether it is a variant that orders its work by lengths."""
    return "FMHA_BY_LENGTH" in dict(variant.defines)


def balances(variant: Variant) -> bool:
    """Whether it balances splits: kFmhaSm90Balances of kernel/sm90/launch.h, FMHA_BALANCES of kernel/sm100."""
    asked = rows_define(variant)
    if variant.arch != choice.ARCH:
        return not is_prefill(variant) and (asked > 0 or variant.head_dim != 64)
    return knows_lengths(variant) and asked in choice.BALANCED_ROWS and not (asked and knows_pages(variant))


def rows_define(variant: Variant) -> int:
    """What choice.rows_of_cta calls the rows of a CTA."""
    return int(dict(variant.defines).get("FMHA_ROWS", 0))


def walks(variant: Variant) -> bool:
    """Whether a CTA may have several row tiles."""
    dense = variant.arch == choice.ARCH and kind_of(variant) == "dense"
    return dense and variant.head_dim is not None and variant.head_dim < 512
