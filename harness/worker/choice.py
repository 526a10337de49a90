"""How a call is launched where an architecture leaves a choice: rows of a CTA, number of splits, who merges them.

Decided by sizes alone, not by the device: what the emulator proves is then the launch that a GPU runs. Each rule holds
where it was measured (results/tried-h200.json; docs/hopper.md, "Which shape") and little beyond:

- *Wide*, 192 rows at head_dim 64: 592 against 715 us in prefill, 64 batch entries of 4096 rows.
- *Short*, at most 512 keys in few CTAs: 64 rows at head_dim 64 and 128, a split for every 64 keys, merged in a cluster.
  With 128 rows of one query 4.7 against 7.1 us at 64, 6.4 against 7.8 at 128, 10.0 against 11.0 at 256 and 10.7 against
  13.8 at 512. A grid of more clusters than the GPU holds takes two turns, and merging in them loses.
"""

from __future__ import annotations

from typing import Final, Protocol

ARCH: Final = "sm_90a"  # of what follows; another architecture has one shape a head_dim, and no clusters
MULTIPROCESSORS: Final = 132  # of an H100 and of an H200
CLUSTERS: Final = 15  # of eight CTAs, an SM each, that they hold at once
MOST_IN_CLUSTER: Final = 8  # splits: kFmhaSm90MergeSplits of kernel/sm90/launch.h
SHORT_KEYS: Final = range(257, 513)
SHORT_TILE: Final = 64
SHORT_SPLITS: Final = range(4, MOST_IN_CLUSTER + 1)
SHORT_ROWS: Final = {64: 64, 128: 64, 256: 128, 512: 64}
WIDE_ROWS: Final = 192
SHARED_ROWS: Final = 64  # of a CTA at head_dim 512: two of one query read the same keys


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
    if _is_short(arch, sizes) and splits in SHORT_SPLITS:
        return SHORT_ROWS[sizes.head_dim]
    return WIDE_ROWS if splits == 1 and _is_wide(arch, sizes) else 0


def merges_in_cluster(arch: str, sizes: Sizes, splits: int) -> bool:
    """Whether the CTAs of a row tile are a cluster, which merges their splits; else the combine kernel does."""
    return splits in SHORT_SPLITS and _is_short(arch, sizes)


def splits_of_short(arch: str, sizes: Sizes) -> int | None:
    """The number of splits where the rule for short launches has one."""
    return -(-sizes.s_k // SHORT_TILE) if _is_short(arch, sizes) else None


def shares_loads(arch: str, sizes: Sizes, splits: int, shared_kv: bool) -> bool:
    """Whether two row tiles are a cluster and load each key for both."""
    if arch != ARCH or sizes.head_dim != 512 or sizes.topk or shared_kv or splits == 1:
        return False
    tiles = -(-sizes.t * sizes.heads // SHARED_ROWS)
    return tiles % 2 == 0 and not merges_in_cluster(arch, sizes, splits)


def _is_short(arch: str, sizes: Sizes) -> bool:
    if arch != ARCH or sizes.topk or sizes.s_k not in SHORT_KEYS or sizes.head_dim not in SHORT_ROWS:
        return False
    return -(-sizes.t * sizes.heads // SHORT_ROWS[sizes.head_dim]) * sizes.batch <= CLUSTERS


def _is_wide(arch: str, sizes: Sizes) -> bool:
    """Two turns of the multiprocessors at least, and at most a tenth of the rows idle."""
    if arch != ARCH or sizes.topk or sizes.head_dim != 64:
        return False
    rows = sizes.t * sizes.heads
    tiles = -(-rows // WIDE_ROWS)
    return tiles * sizes.batch >= 2 * MULTIPROCESSORS and tiles * WIDE_ROWS <= 1.1 * rows
