"""What a call is given beside its sizes where that changes its time: lengths, pages, packed sequences, layouts; and
what each CTA has to do of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays, softmax_scale
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.launch import Call, forward_grid, tile_rows, walkers_of
from fmha.harness.kernel_side.params import query_blocks
from fmha.harness.kernel_side.portions import portions_of
from fmha.harness.kernel_side.variants import goes_through_row_tiles
from fmha.harness.worker.launch.scatter import key_lengths, query_lengths, scattered

PERIOD: Final = 1 << 16  # elements that are drawn; tensors repeat them, each from a place of its own


def numbers(count: int, tensor: int) -> NDArray[np.uint16]:
    """What a tensor holds, as bf16."""
    drawn = round_to_bf16(np.random.default_rng(0).standard_normal(PERIOD, np.float32))
    return np.resize(np.roll(drawn, 12345 * tensor), count)


@dataclass(frozen=True, slots=True)
class Given:
    """A configuration's operands."""

    item: Configuration
    inputs: Inputs

    @property
    def others(self) -> Mapping[str, NDArray[Any]]:
        """What takes the place of the inputs, and what comes to them, by FmhaParams' names."""
        return scattered(self.item, self.inputs)


def is_plain(item: Configuration) -> bool:
    """Whether its sizes say all."""
    lengths = item.kv_lens != "full" or item.q_lens != "full"
    return not (lengths or item.topk or item.scattered or item.layout != "bshd" or item.sink != "none")


def given(
    item: Configuration, keys: NDArray[np.int32] | None = None, queries: NDArray[np.int32] | None = None
) -> Given:
    """The operands of a configuration, with these lengths of its batch entries or with lengths that are drawn as the
    configuration says: uniform up to the longest, and every fourth 0 or the longest in turn."""
    shape = (item.batch, item.s_k, *((item.kv_heads,) if item.kv_heads > 1 else ()), item.head_dim)
    random = np.random.default_rng(item.batch)
    if keys is None:
        keys = _drawn(random, item.kv_lens, item.batch, item.s_k)
    if queries is None:
        queries = _drawn(random, item.q_lens, item.batch, item.t)
    sizes = (item.batch, item.t, item.heads, item.head_dim)
    count = int(np.prod(shape))
    q, k = numbers(int(np.prod(sizes)), 0).reshape(sizes), numbers(count, 1).reshape(shape)
    v = None if item.kv == "shared" else numbers(count, 2).reshape(shape)
    sink = None if item.sink == "none" else random.standard_normal(item.heads).astype(np.float32)
    scale = softmax_scale(item.head_dim, item.scale)
    inputs = Inputs(q, k, v, scale, *item.bounds, kv_lens=keys, sink=sink, q_lens=queries, sparse=_lists(random, item))
    return Given(item, inputs)


def _lists(random: np.random.Generator, item: Configuration) -> SparseArrays | None:
    """The sparse branch: of every query as many rows as its list may have, each once, in no order."""
    if not item.topk:
        return None
    shape = (item.batch, item.s_sparse, item.head_dim)
    count = int(np.prod(shape))
    k, v = numbers(count, 3).reshape(shape), None if item.kv == "shared" else numbers(count, 4).reshape(shape)
    lists = [random.permutation(item.s_sparse)[: item.topk] for _ in range(item.batch * item.t)]
    return SparseArrays(k, v, np.stack(lists).astype(np.int32).reshape(item.batch, item.t, item.topk))


def _drawn(random: np.random.Generator, pattern: str, count: int, longest: int) -> NDArray[np.int32] | None:
    if pattern == "full":
        return None
    if pattern == "empty":
        return np.zeros(count, np.int32)
    lengths = random.integers(0, longest, count, endpoint=True).astype(np.int32)
    lengths[1::8], lengths[5::8] = 0, longest
    return lengths


def lengths_of(given: Given) -> list[tuple[int, int]]:
    """(queries, keys) of each batch entry."""
    return [(int(q), int(k)) for q, k in zip(query_lengths(given.inputs), key_lengths(given.inputs), strict=True)]


def seen_by(call: Call, queries: int, keys: int) -> float:
    """Keys that all queries of an entry see, of one head."""
    last = np.arange(queries) + keys - queries  # each query's own key
    end = keys if call.window_right is None else np.minimum(last + call.window_right + 1, keys)
    begin = 0 if call.window_left is None else np.maximum(last - call.window_left, 0)
    return float(np.sum(np.maximum(end - begin, 0) + np.zeros(queries)))


def work_of(variant: Variant, call: Call, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Tiles of keys of each CTA of the forward kernel, in the order of a grid in which each row tile has its own; empty
    where nobody draws and all of one x have as much, as they have with balanced splits on sm_90a."""
    if call.balance and variant.arch != ARCH:
        return _of_portions(variant, call, pairs)
    if call.balance or (len(set(pairs)) == 1 and not walkers_of(variant, call)):
        return []
    (x, splits, _), of_planes = forward_grid(variant, call, draws=False), _of_row_tiles(variant, call, pairs)
    if goes_through_row_tiles(variant):
        return _of_turns(call, x // variant.shape.ctas, splits, of_planes)
    # On sm_90a the last row tile comes first, but for the kernels that launch as clusters.
    order = -1 if variant.arch == ARCH and "FMHA_KIND" in dict(variant.defines) else 1
    return [
        float(count * (y + 1) // splits - count * y // splits)
        for tiles in of_planes
        for y in range(splits)
        for count in tiles[::order]
    ]


def _of_turns(call: Call, clusters: int, splits: int, of_planes: Sequence[Sequence[int]]) -> list[float]:
    """The same where CTAs, or pairs of them, go through row tiles by kernel/sm100/prefill/order.cuh. Empty under a
    mask."""
    if call.window_left is not None or call.window_right is not None:
        return []
    tiles = [count for plane in of_planes for count in plane]
    return [
        float(sum(count * (y + 1) // splits - count * y // splits for count in tiles[first::clusters]))
        for y in range(splits)
        for first in range(clusters)
    ]


def _of_portions(variant: Variant, call: Call, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """The same of balanced splits on sm_100a; CTAs behind the last portion have nothing."""
    _, count, heads = forward_grid(variant, call)
    assert call.balance is not None
    tile = variant.shape.keys * variant.shape.ctas
    portions = portions_of([-(-keys // tile) for _, keys in pairs], count, call.balance.part_tiles)
    of_planes = _of_row_tiles(variant, call, pairs)
    found = []
    for head in range(heads):
        of_head = [
            float(tiles // of + (split >= of - tiles % of))
            for of, row_tiles in zip(portions, of_planes[head::heads], strict=True)
            for split in range(of)
            for tiles in row_tiles
        ]
        found += of_head + [0.0] * (count * len(of_planes[head]) - len(of_head))
    return found


def from_end(variant: Variant, call: Call) -> bool:
    """Whether row tiles end with a plane's last row: Walk::from_end of kernel/sm90/walk.cuh."""
    windowed = call.window_left is not None or call.window_right is not None
    return windowed and variant.shape.rows > variant.shape.keys and walkers_of(variant, call) > 0


def pieces_of(variant: Variant, call: Call, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """How long each row tile is that CTAs draw: its tiles of keys, and as much as one of these to begin and to end. Of
    packed queries those behind an entry's last one are not drawn."""
    of_planes = _of_row_tiles(variant, call, pairs)
    packed = call.total_q is not None
    return [1.0 + count for tiles in of_planes for count in tiles if count or not packed]


def _of_row_tiles(variant: Variant, call: Call, pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Tiles of keys of each row tile, by the plane."""
    heads, ctas = call.planes.heads, variant.shape.ctas
    rows, keys_of_tile = tile_rows(variant, call) * ctas, variant.shape.keys * ctas
    row_tiles = query_blocks(replace(variant.shape, rows=rows), call.t, heads, call.topk)
    of_planes = []
    for queries, keys in pairs:
        lacking = -queries * heads % rows if from_end(variant, call) else 0
        tiles = []
        for x in range(row_tiles):
            begin = max(x * rows - lacking, 0)
            first, last = begin // heads, min(-(-((x + 1) * rows - lacking) // heads), queries) - 1
            tiles.append(_tiles(call, keys_of_tile, queries, keys, first, last) if last >= first else 0)
        of_planes += [tiles] * call.kv_heads
    return of_planes


def _tiles(call: Call, tile: int, queries: int, keys: int, first: int, last: int) -> int:
    """Of keys, that queries from `first` to `last` see together."""
    offset = keys - queries
    end = keys if call.window_right is None else min(keys, last + offset + call.window_right + 1)
    begin = 0 if call.window_left is None else max(0, first + offset - call.window_left)
    return max(0, -(-end // tile) - begin // tile)
