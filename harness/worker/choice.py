"""How a call is launched where an architecture leaves a choice: rows of a CTA, number of splits, what overlaps.

Decided by sizes alone, not by the device: what the emulator proves is then the launch that a GPU runs. Each rule holds
where it was measured (results/splits-h200.json; docs/hopper.md, "Which shape") and little beyond:

- *Wide*, 192 rows at head_dim 64: 592 against 681 us in prefill, 64 batch entries of 4096 rows.
- *Short*, in few CTAs: 64 rows and tiles of 64 keys, two CTAs an SM. With 128 rows of one query and 512 keys 4.1
  against 4.4 us at 64, 4.8 against 6.5 at 128, 6.4 against 7.8 at 256.
- *Splits*, without lists: a tile or more for each while there are few rows, since the combine kernel costs less than a
  tile; an eighth of the tiles at least where the GPU has room.
"""

from __future__ import annotations

from typing import Final, Protocol

from fmha.harness.worker.params import sm90_figures

ARCH: Final = "sm_90a"  # of what follows; another architecture has one shape a head_dim, and no clusters
MULTIPROCESSORS: Final = 132  # of an H100 and of an H200
MOST_IN_CLUSTER: Final = 8  # splits: kFmhaSm90MergeSplits of kernel/sm90/launch.h
SHORT_KEYS: Final = {64: 512, 128: 4096, 256: 2048}  # at most
SHORT_ROWS: Final = 64
SHORT_TILES: Final = 32  # of rows, over the batch, at most
LEAST_SHORT_SPLITS: Final = 4
MOST_SPLITS: Final = 32
WORTH: Final = {64: 128, 128: 128, 256: 128, 512: 64}  # splits times tiles of 64 rows; more do not pay for their merge
PAIRS: Final = ((64, 0), (64, 64), (128, 64), (256, 64))  # head_dim and rows of the shapes with two CTAs an SM
WIDE_ROWS: Final = 192


class Sizes(Protocol):
    """Of a Configuration or a Call."""

    @property
    def head_dim(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def t(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def s_k(self) -> int: ...
    @property
    def topk(self) -> int: ...


def rows_of_cta(arch: str, sizes: Sizes, splits: int) -> int:
    """Query rows of a CTA; 0 for the first shape there is."""
    if _is_short(arch, sizes) and splits >= LEAST_SHORT_SPLITS:
        return SHORT_ROWS
    return WIDE_ROWS if splits == 1 and _is_wide(arch, sizes) else 0


def ctas_per_sm(arch: str, head_dim: int, rows: int = 0) -> int:
    """CTAs that a multiprocessor holds at once, of the shape that rows_of_cta calls `rows`."""
    return 2 if arch == ARCH and (head_dim, rows) in PAIRS else 1


def is_plain(arch: str, sizes: Sizes, windowed: bool, in_cluster: bool) -> bool:
    """Whether the kernel without lists, windows and clusters is launched: it has less code to fetch."""
    return arch == ARCH and not (sizes.topk or windowed or in_cluster)


def splits_of(arch: str, sizes: Sizes) -> int | None:
    """The number of splits where a rule has one."""
    if arch != ARCH or sizes.topk:
        return None
    short = SHORT_ROWS if _is_short(arch, sizes) else 0
    rows, keys, *_ = sm90_figures(sizes.head_dim, short)
    ctas = -(-sizes.t * sizes.heads // rows) * sizes.batch
    room = MULTIPROCESSORS * ctas_per_sm(arch, sizes.head_dim, short) // ctas
    tiles = -(-sizes.s_k // keys)
    worth = max(WORTH[sizes.head_dim] // _row_tiles(sizes), tiles // 8)
    return max(1, min(room, tiles, MOST_SPLITS, worth))


def overlaps_grid_before(arch: str, sizes: Sizes, splits: int, shared_kv: bool) -> bool:
    """Whether the forward kernel, which waits itself for the grid before it, is launched to start while that one runs.
    Not where two row tiles of 512 read the same K and V from memory: they read them once while they go side by side,
    and CTAs that start as SMs come free do not."""
    if arch != ARCH:
        return False
    tiles = _row_tiles(sizes)
    reads_twice = sizes.head_dim == 512 and splits > 1 and not shared_kv and tiles > sizes.batch
    return not (reads_twice and tiles * splits > MULTIPROCESSORS // 2)


def partial_f16(arch: str, head_dim: int, output_bf16: bool) -> bool:
    """Whether partial results are f16 and a scale, 11 bits of a row's largest element, where the result keeps 8 of
    each. At 64 they are too few for it to pay. What a cluster leaves of splits that it merged is fp32."""
    return arch == ARCH and head_dim > 64 and output_bf16


def combine_overlaps(arch: str) -> bool:
    """The same of the combine kernel."""
    return arch == ARCH


def _row_tiles(sizes: Sizes) -> int:
    return -(-sizes.t * sizes.heads // SHORT_ROWS) * sizes.batch


def _is_short(arch: str, sizes: Sizes) -> bool:
    if arch != ARCH or sizes.topk:
        return False
    return sizes.s_k <= SHORT_KEYS.get(sizes.head_dim, -1) and _row_tiles(sizes) <= SHORT_TILES


def _is_wide(arch: str, sizes: Sizes) -> bool:
    """Two turns of the multiprocessors at least, and at most a tenth of the rows idle."""
    if arch != ARCH or sizes.topk or sizes.head_dim != 64:
        return False
    rows = sizes.t * sizes.heads
    tiles = -(-rows // WIDE_ROWS)
    return tiles * sizes.batch >= 2 * MULTIPROCESSORS and tiles * WIDE_ROWS <= 1.1 * rows
