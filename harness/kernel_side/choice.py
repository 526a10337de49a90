"""How a call is launched where an architecture leaves a choice: rows of a CTA, number of splits, what overlaps.

Decided by sizes alone, not by the device: what the emulator proves is then the launch that a GPU runs. Each rule holds
where it was measured (docs/understand/hopper-launch.md, "Which shape") and little beyond:

- *Wide*, 192 rows at head_dim 64 and 128, and *long*, tiles of 80 keys at 256: prefill. Pages of more than 16 rows are
  not for long tiles, which take them in boxes of 16.
- *Short*, 64 rows and tiles of 64 keys, two CTAs an SM: few rows, split.
- *Narrow*, of the same figures but that CTAs walk, at 128 and 256: short sequences.
- *Splits*, without lists, and the shape of what is split: by price, fmha.harness.kernel_side.price.
- *Walkers*, without splits: a CTA that walks on to another row tile loads it while it finishes the last, and CTAs that
  draw row tiles end together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fmha.harness.kernel_side.cost import (
    B200,
    PREFILL_ROWS,
    PlaneSizes,
    PricedGpu,
    best_of,
    forward_us,
    launch_shape,
    many_rows_pay,
    merge_of,
    rows_of,
)
from fmha.harness.kernel_side.paces import HEADS, LENGTHS, ONE_HEAD, PACES, RATES
from fmha.harness.kernel_side.params import COMBINE_ROWS, SM90_KINDS, sm90_launch, sm100_ctas_per_sm
from fmha.harness.kernel_side.price import (
    BALANCED,
    COMBINE_CTAS,
    MOST_FOR_A_WARP,
    MULTIPROCESSORS,
    PART_KEYS,
    UNKNOWN,
    Decode,
    call_us,
    most_splits,
    splits_to_try,
)

ARCH: Final = "sm_90a"  # of what follows; what sm_100a does is priced: fmha.harness.kernel_side.cost
SHORT_ROWS: Final = 64
BALANCED_ROWS: Final = (0, SHORT_ROWS)  # of the shapes that have balanced splits, as rows_of_cta calls them
MOST_SHORT: Final = 1024  # rows of a plane: prices were fitted to no more
WIDE_ROWS: Final = 192
WIDE_PACE: Final = {64: 1.25, 128: 1.4}  # what a key of wide row tiles takes, over one of the head_dim's own shape
SMALL_BOXES: Final = 1.15  # of that, in pages of more than 16 rows, where a tile of 80 keys comes in boxes of 16
NARROW_PACE: Final = 1.1  # what a key of narrow row tiles takes at 128, likewise
ROW_TILE: Final = 100  # keys that would take what a row tile takes beside its own
LONG_ROWS: Final = 128  # of the shape at head_dim 256
LONG_PACE: Final = 0.95  # of tiles of 80 keys, likewise
SIDE_BY_SIDE: Final = 0.9  # of the CTAs at least have work where those of all K/V heads go side by side
# Of the queries that there were if each batch entry had as many as the longest, and row tiles of 128 rows of all heads:
# where so many are missing, those that there are are looked for.
MISSING: Final = {0.1: 600, 0.4: 450, 0.75: 250}
# Where queries are packed: what a key takes, by the shape; and narrow row tiles are taken of planes of fewer rows than
# so many in the mean.
PACKED_PACE: Final = {64: {0: 1.0, 192: 1.15}, 128: {0: 1.0, 192: 1.3, 64: 1.1}, 256: {0: 1.0, 128: 0.95, 64: 1.4}}
NARROW_ROWS: Final = {128: 250, 256: 64}
SPREAD: Final = (0.3, 0.8, 1.2, 1.7)  # of their mean, what other entries than the longest are taken for,
ALIKE: Final = 1.35  # unless it has no more than so much of the mean
PROVEN_ROWS: Final = 128  # on sm_100a
BALANCED_KEYS: Final = 256  # that a CTA there has at least, with balanced splits, where it has not all of an entry


@dataclass(frozen=True, slots=True)
class Balance:
    """Balanced splits: the tiles of all planes are divided among `ctas` CTAs, `part_tiles` at least for one. On sm_100a
    each row tile has as many, and each plane one at least."""

    ctas: int
    part_tiles: int
    rows: int = 0  # of a CTA, as rows_of_cta calls them


class Sizes(Protocol):
    """Of a Configuration or a Call."""

    @property
    def head_dim(self) -> int:
        """Elements of a row."""

    @property
    def batch(self) -> int:
        """Batch entries."""

    @property
    def t(self) -> int:
        """Queries of an entry, of the longest where they are packed."""

    @property
    def heads(self) -> int:
        """Query heads."""

    @property
    def s_k(self) -> int:
        """Keys of an entry, of the longest where they differ."""

    @property
    def topk(self) -> int:
        """Keys of the sparse branch that a query has; 0 without one."""

    @property
    def page_size(self) -> int:
        """Rows of a page; 0 without pages."""

    @property
    def kv_heads(self) -> int:
        """K/V heads."""

    @property
    def scattered(self) -> bool:
        """Whether queries or keys are packed, or K and V lie in pages."""


def rows_of_cta(
    arch: str, sizes: Sizes, splits: int, windowed: bool, by_head: bool = False, narrow: bool = False, mean: float = 1.0
) -> int:
    """Query rows of a CTA, or of a pair; 0 for the first shape there is. `by_head`, `mean`: as in `cheapest`; `narrow`:
    whether there are kernels of that shape for calls without splits."""
    if arch != ARCH:
        return _sm100_rows(sizes, splits)
    if splits > 1:
        return 0 if sizes.topk else cheapest(sizes, by_head, mean, splits)[0]
    wide = _is_wide(arch, sizes, windowed)
    rows = WIDE_ROWS if wide else LONG_ROWS if _is_long(arch, sizes, windowed) else 0
    return SHORT_ROWS if narrow and _is_narrow(arch, sizes, rows, windowed, mean) else rows


def ctas_per_sm(arch: str, head_dim: int, rows: int = 0) -> int:
    """CTAs that a multiprocessor holds at once, of the shape that rows_of_cta calls `rows`."""
    return sm90_launch(head_dim, rows).ctas_per_sm if arch == ARCH else sm100_ctas_per_sm(head_dim, rows)


def kinds_of(rows: int) -> tuple[str, ...]:
    """The kernels there are of a shape, of SM90_KINDS: a short one walks over no row tiles, a long or wide one is not
    split, and no rule takes it for lists."""
    if rows == SHORT_ROWS:
        return "whole", "plain"
    return ("dense",) if rows else SM90_KINDS


def kind_of(sizes: Sizes, splits: int, windowed: bool) -> str:
    """The kernel that knows enough, and little more: it has less code to fetch."""
    if sizes.topk:
        return "whole"
    return "dense" if windowed or splits == 1 else "plain"


def cheapest(sizes: Sizes, by_head: bool, mean: float = 1.0, splits: int = 0, balance: bool = True) -> tuple[int, int]:
    """Of a call on Hopper the rows that are asked for, as rows_of_cta has them, and splits, or BALANCED in their place:
    what is priced least. With `splits` of so many. `mean` are the planes' keys, as a part of the most; `by_head` says
    whether a kernel must know K/V heads, and `balance` whether splits may be balanced."""
    entries = sizes.batch // sizes.kv_heads
    of = Decode(sizes.head_dim, sizes.batch, sizes.t * sizes.heads, sizes.s_k, mean, entries)
    knows = HEADS if by_head else ONE_HEAD
    there = [asked for asked in (0, SHORT_ROWS) if (of.head_dim, asked, knows) in PACES]
    there = [asked for asked in there if not asked or of.rows <= MOST_SHORT]
    if splits > 1:  # of shapes of which the GPU has places for so many CTAs, if there are any
        there = [asked for asked in there if splits <= most_splits(of, asked)] or there
    tried: list[tuple[int, int]] = []
    for asked in there:
        # Without splits more rows than those of a narrow tile are not priced here: rows_of_cta.
        alone = not asked or (by_head and of.rows <= SHORT_ROWS)
        counts = (splits,) if splits else splits_to_try(of, asked)
        tried += [(asked, count) for count in counts if count > 1 or alone]
        if not splits and balance and may_balance(sizes, asked):
            tried.append((asked, BALANCED))

    def us(choice: tuple[int, int]) -> float:
        asked, count = choice
        pace = PACES[of.head_dim, asked, LENGTHS if count == BALANCED else knows]
        return call_us(of, asked, count, pace, RATES[of.head_dim])

    return min(tried, key=us)


def may_balance(sizes: Sizes, asked: int = 0) -> bool:
    """Whether balanced splits are possible of a shape, of `asked` rows as rows_of_cta calls them: of one row tile a
    plane, where those of all K/V heads go side by side."""
    shape = sm90_launch(sizes.head_dim, asked)
    ctas = MULTIPROCESSORS * shape.ctas_per_sm
    together = ctas // sizes.kv_heads * sizes.kv_heads >= SIDE_BY_SIDE * ctas
    there = sizes.head_dim < 512 and asked in BALANCED_ROWS
    there = there and (not asked or (sizes.head_dim in NARROW_ROWS and not sizes.scattered))
    return there and sizes.t * sizes.heads <= shape.rows and together and sizes.s_k > 0


def division_of(
    arch: str, sizes: Sizes, by_head: bool, ragged: bool, total: int | None
) -> tuple[int | None, Balance | None]:
    """The number of splits, None where no rule has one, and how they are balanced, where they are. `ragged`: entries
    have keys of a number of their own, `s_k` at most, and `total` together where that is known."""
    if arch != ARCH:
        found = balance_of(B200, sizes) if ragged else None
        return (1 if found else splits_of(arch, sizes)), found
    if sizes.topk:
        return splits_of(arch, sizes), None
    asked, splits = cheapest(sizes, by_head, mean_of(sizes, ragged, total))
    if splits != BALANCED:
        return splits, None
    shape = sm90_launch(sizes.head_dim, asked)
    return 1, Balance(MULTIPROCESSORS * shape.ctas_per_sm, -(-PART_KEYS // shape.keys), asked)


def balance_of(gpu: PricedGpu, sizes: Sizes) -> Balance | None:
    """How splits are balanced on sm_100a, by the kernel that would take least time of lengths that do not differ; None
    where the GPU holds no more CTAs than there are planes with their row tiles, or there is nothing to balance. Planes
    of several row tiles are balanced where they would be split anyhow."""
    shape, entries = _shape_of(sizes), sizes.batch // sizes.kv_heads
    if entries < 2 or not sizes.s_k:
        return None
    split = best_of(gpu, shape, _known_to_pairs(sizes))[1] > 1
    found: list[tuple[float, Balance]] = []
    for asked in balanced_rows(sizes):
        tile = launch_shape(sizes.head_dim, asked)
        row_tiles = -(-shape.rows // tile.row_tile) * tile.ctas
        held = gpu.multiprocessors * sm100_ctas_per_sm(sizes.head_dim, asked)
        count = held // (row_tiles * sizes.kv_heads)
        if count > entries and (split or row_tiles == tile.ctas):
            us = forward_us(gpu, shape, asked, -(-count // entries))
            part_tiles = -(-BALANCED_KEYS // (tile.keys * tile.ctas))
            found.append((us, Balance(count * sizes.kv_heads, part_tiles, asked)))
    return min(found, key=lambda one: one[0])[1] if found else None


def balanced_rows(sizes: Sizes) -> tuple[int, ...]:
    """The rows that are asked for of the kernels on sm_100a that balance splits; none where a call has lists."""
    if sizes.topk:
        return ()
    return tuple(rows for rows in rows_of(sizes.head_dim, _known_to_pairs(sizes)) if rows or sizes.head_dim > 64)


def mean_of(sizes: Sizes, ragged: bool, total: int | None) -> float:
    """Keys of an entry, as a part of the most that one has; UNKNOWN where only the device knows."""
    if not ragged or not sizes.s_k:
        return 1.0
    return UNKNOWN if total is None else min(1.0, total / (sizes.batch // sizes.kv_heads * sizes.s_k))


def splits_of(arch: str, sizes: Sizes) -> int | None:
    """The number of splits where a rule has one, each plane as many: what is priced least."""
    if sizes.topk:
        return None
    if arch != ARCH:
        return best_of(B200, _shape_of(sizes), _known_to_pairs(sizes))[1]
    return cheapest(sizes, sizes.kv_heads > 1, balance=False)[1]


def few_queries(sizes: Sizes, total: int) -> bool:
    """Whether batch entries, of `t` packed queries at most and `total` together, have so few that looking for their row
    tiles takes less time than passing over those that are not there."""
    of_all = sizes.batch * sizes.t
    missing = of_all - total
    return any(missing >= share * of_all and missing * sizes.heads >= 128 * tiles for share, tiles in MISSING.items())


def rows_of_packed(sizes: Sizes, queries: int, keys: int, windowed: bool) -> int:
    """As rows_of_cta, without splits, where queries are packed: batch entries have `t` of them and `s_k` keys at most,
    and so many together."""
    head_dim, planes = sizes.head_dim, sizes.batch * sizes.kv_heads
    if head_dim not in PACKED_PACE:
        return 0
    heads = sizes.heads // sizes.kv_heads
    if queries * sizes.heads < NARROW_ROWS.get(head_dim, 0) * planes:
        return SHORT_ROWS
    known: list[tuple[int, int, float]] = [(sizes.t, sizes.s_k, sizes.kv_heads)]
    if sizes.batch > 1:
        rest = max(queries - sizes.t, sizes.batch - 1) / (sizes.batch - 1)
        spread = SPREAD if sizes.t > ALIKE * queries / sizes.batch else (1.0,)
        for share in spread:
            t = min(max(round(share * rest), 1), sizes.t)
            s_k = min(max(round(t * keys / max(queries, 1)), 1), sizes.s_k)
            known.append((t, s_k, (planes - sizes.kv_heads) / len(spread)))

    def time_of(rows: int) -> float:
        pace = PACKED_PACE[head_dim][rows] * (1 if _takes_boxes(sizes, rows) else SMALL_BOXES)
        return pace * _drawn(head_dim, rows, heads, known, windowed)

    return min(PACKED_PACE[head_dim], key=time_of)


def walkers(arch: str, sizes: Sizes, rows: int, tile_rows: int) -> int:
    """CTAs that draw the row tiles of all batch entries, `tile_rows` rows each, without splits, of the shape that
    rows_of_cta calls `rows`: as many as the GPU holds at once. 0 where there are no more row tiles than that."""
    slots = MULTIPROCESSORS * ctas_per_sm(arch, sizes.head_dim, rows)
    return slots if -(-sizes.t * sizes.heads // tile_rows) * sizes.batch > slots else 0


def overlaps_grid_before(arch: str, sizes: Sizes, splits: int, shared_kv: bool) -> bool:
    """Whether the forward kernel, which waits itself for the grid before it, is launched to start while that one runs.
    Not where two row tiles of 512 read the same K and V from memory: they read them once while they go side by side,
    and CTAs that start as SMs come free do not."""
    if arch != ARCH:
        return True
    tiles = _row_tiles(sizes)
    reads_twice = sizes.head_dim == 512 and splits > 1 and not shared_kv and tiles > sizes.batch
    return not (reads_twice and tiles * splits > MULTIPROCESSORS // 2)


def combine_launch(arch: str, sizes: Sizes, splits: int) -> tuple[str, tuple[int, int, int]]:
    """What follows the entry's name of the combine kernel that is launched, and its grid: a row a warp, or four warps a
    row where many splits leave few. On sm_100a both divide a row's columns among CTAs."""
    rows = sizes.t * sizes.heads
    if arch != ARCH:
        merge = merge_of(B200, _shape_of(sizes), splits)
        return merge.suffix, (-(-rows * merge.warps // COMBINE_ROWS), merge.slabs(sizes.head_dim), sizes.batch)
    if splits > MOST_FOR_A_WARP and rows * sizes.batch <= COMBINE_CTAS * MULTIPROCESSORS:
        return "_many", (rows, 1, sizes.batch)
    return "", (-(-rows // COMBINE_ROWS), 1, sizes.batch)


def _shape_of(sizes: Sizes) -> PlaneSizes:
    return PlaneSizes(sizes.head_dim, sizes.batch, sizes.t * sizes.heads, sizes.s_k)


def rows_of_many(sizes: Sizes, windowed: bool, otherwise: int) -> int:
    """Rows of a CTA of sm_100a's kernel for many rows, without splits; `otherwise`, of the six-warp kernel, where it
    does not pay."""
    pays = many_rows_pay(B200, _shape_of(sizes), sizes.heads, windowed, otherwise)
    return PREFILL_ROWS if pays else otherwise


def _sm100_rows(sizes: Sizes, splits: int) -> int:
    """Those of the least cost. Not of lists, whose rows are one query's; and a call of one row tile at head_dim 64 that
    is not split stays with the kernel that the guard runs."""
    proven = sizes.head_dim == 64 and splits == sizes.batch == 1 and sizes.t * sizes.heads <= PROVEN_ROWS
    if sizes.topk or proven:
        return 0
    shape = _shape_of(sizes)
    return min(rows_of(sizes.head_dim, _known_to_pairs(sizes)), key=lambda rows: forward_us(B200, shape, rows, splits))


def _known_to_pairs(sizes: Sizes) -> bool:
    """Whether the kernel of CTA pairs knows what is asked for."""
    return not sizes.topk and not sizes.page_size


def _row_tiles(sizes: Sizes) -> int:
    return -(-sizes.t * sizes.heads // SHORT_ROWS) * sizes.batch


def _is_long(arch: str, sizes: Sizes, windowed: bool) -> bool:
    if arch != ARCH or sizes.topk or sizes.head_dim != 256 or not _takes_boxes(sizes, LONG_ROWS):
        return False
    return LONG_PACE * _drawn_keys(sizes, LONG_ROWS, windowed) < _drawn_keys(sizes, 0, windowed)


def _is_wide(arch: str, sizes: Sizes, windowed: bool) -> bool:
    if arch != ARCH or sizes.topk or sizes.head_dim not in WIDE_PACE:
        return False
    pace = WIDE_PACE[sizes.head_dim] * (1 if _takes_boxes(sizes, WIDE_ROWS) else SMALL_BOXES)
    return pace * _drawn_keys(sizes, WIDE_ROWS, windowed) < _drawn_keys(sizes, 0, windowed)


def _is_narrow(arch: str, sizes: Sizes, rows: int, windowed: bool, mean: float) -> bool:
    """Whether narrow row tiles are done sooner than those of the shape that rows_of_cta calls `rows`. One alone on its
    multiprocessor takes no longer for a key."""
    if arch != ARCH or sizes.topk or sizes.head_dim not in NARROW_ROWS:
        return False
    all_rows = sizes.t * sizes.heads
    if all_rows <= SHORT_ROWS:
        return cheapest(sizes, True, mean, splits=1)[0] == SHORT_ROWS
    if sizes.head_dim == 256:
        return False
    alone = -(-all_rows // SHORT_ROWS) * sizes.batch <= 2 * MULTIPROCESSORS
    pace = (1 if alone else NARROW_PACE) / (WIDE_PACE[128] if rows == WIDE_ROWS else 1)
    return pace * _drawn_keys(sizes, SHORT_ROWS, windowed) <= _drawn_keys(sizes, rows, windowed)


def _drawn_keys(sizes: Sizes, rows: int, windowed: bool) -> float:
    """_drawn of batch entries that all have `t` queries and `s_k` keys."""
    return _drawn(sizes.head_dim, rows, sizes.heads, [(sizes.t, sizes.s_k, sizes.batch)], windowed)


def _drawn(head_dim: int, rows: int, heads: int, planes: Sequence[tuple[int, int, float]], windowed: bool) -> float:
    """How many keys' time passes until CTAs, as many as the GPU holds, have drawn all row tiles of the shape of `rows`
    and are done. `planes`: queries, keys, and how many have so many. A window is taken for a causal one. The last row
    tiles drawn are the shortest, which is what CTAs of the last turn that have none are idle for. No launch is
    shorter than its longest row tile nor, without a mask, where those of so many keys or more are more than CTAs, than
    as many of them as one CTA has."""
    shape = sm90_launch(head_dim, rows)
    each = []  # keys of a row tile, and how many have so many
    for t, s_k, count in planes:
        all_rows = t * heads
        last = range(all_rows, 0, -shape.rows)  # behind the last row of each
        if windowed and shape.rows <= shape.keys:  # the last one lacks rows: Walk::from_end of kernel/sm90/traits.cuh
            last = range(min(shape.rows, all_rows), all_rows + shape.rows, shape.rows)
        for end in last:
            hidden = t - -(-min(end, all_rows) // heads) if windowed else 0
            each.append((-(-max(s_k - hidden, 1) // shape.keys) * shape.keys + ROW_TILE, count))
    slots = MULTIPROCESSORS * shape.ctas_per_sm
    before = total = least = 0.0
    for keys, count in sorted(each, reverse=True):
        before += count
        total += keys * count
        least = max(least, (1 if windowed else math.ceil(before / slots)) * keys)
    turns = before / slots
    return max(least, total / slots + (math.ceil(turns) - turns) * min(each)[0])


def _takes_boxes(sizes: Sizes, rows: int) -> bool:
    """Whether a tile of keys of the shape of `rows` comes in whole pages, or whole from one: those of 80 have boxes of
    16 keys in larger pages than that."""
    keys = sm90_launch(sizes.head_dim, rows).keys
    return math.gcd(keys, sizes.page_size) in (keys, sizes.page_size)
