"""K and V in pages, and queries and keys one batch entry behind the other: the memory that a call is given of inputs
that lie in order, and outputs in order again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import Inputs, poison
from fmha.harness.judge.oracle.reference import dense_range

UNUSED_PAGES: Final = 3  # that no entry of a block table names, or one that nobody may look at
UNUSED_ENTRIES: Final = 2  # of each row of a block table, behind those that s_k keys need


def scattered_call(item: Configuration, inputs: Inputs) -> dict[str, Any]:
    """The fields of Call that say how the inputs of a configuration are scattered."""
    found: dict[str, Any] = {}
    if item.page_size:
        most = -(-item.s_k // item.page_size)
        found |= {"page_size": item.page_size, "pages": item.batch * most + UNUSED_PAGES}
        if _has_lengths(item, inputs):
            found["s_k"] = (most + UNUSED_ENTRIES) * item.page_size
    if item.packed in ("q", "both"):
        found["total_q"] = int(query_lengths(inputs).sum())
    if item.packed in ("k", "both"):
        found["total_k"] = int(key_lengths(inputs).sum())
    return found


def scattered(item: Configuration, inputs: Inputs) -> dict[str, NDArray[Any]]:
    """What takes the place of the operands of `inputs`, and what comes to them, by FmhaParams' names."""
    found: dict[str, NDArray[Any]] = {}
    if item.page_size:
        found |= _paged(item, inputs)
    if item.packed in ("q", "both"):
        lengths = query_lengths(inputs)
        found |= {"q": packed(inputs.q, lengths), "cu_seqlens_q": _ends(lengths)}
    if item.packed in ("k", "both"):
        lengths = key_lengths(inputs)
        found |= {"k": packed(inputs.k, lengths), "cu_seqlens_k": _ends(lengths), "kv_lens": np.zeros(0, np.int32)}
        if inputs.v is not None:
            found["v"] = packed(inputs.v, lengths)
    return found


def query_lengths(inputs: Inputs) -> NDArray[np.int32]:
    """Queries of each batch entry."""
    batch, t = inputs.q.shape[:2]
    return np.full(batch, t, np.int32) if inputs.q_lens is None else inputs.q_lens


def key_lengths(inputs: Inputs) -> NDArray[np.int32]:
    """Keys of each batch entry."""
    batch, s_k = inputs.k.shape[:2]
    return np.full(batch, s_k, np.int32) if inputs.kv_lens is None else inputs.kv_lens


def packed(array: NDArray[Any], lengths: NDArray[np.int32]) -> NDArray[Any]:
    """[1, sum of lengths, ...]: the first rows of each batch entry, as many as it has, one entry behind the other."""
    return np.concatenate([rows[:length] for rows, length in zip(array, lengths, strict=True)])[np.newaxis]


def unpacked(array: NDArray[Any], lengths: NDArray[np.int32], t: int, missing: float) -> NDArray[Any]:
    """The other way round, [batch, t, ...]; rows that no entry has hold `missing`."""
    found = np.full((len(lengths), t, *array.shape[1:]), missing, array.dtype)
    for entry, end, length in zip(found, np.cumsum(lengths), lengths, strict=True):
        entry[:length] = array[end - length : end]
    return found


def _has_lengths(item: Configuration, inputs: Inputs) -> bool:
    """Whether a call is given kv_lens: else entries fill their pages."""
    return inputs.kv_lens is not None or item.s_k % item.page_size > 0


def _paged(item: Configuration, inputs: Inputs) -> dict[str, NDArray[Any]]:
    """Pages in an order of chance. Poison lies in pages that nobody needs and behind the last key of others; entries of
    the table that nobody may look at name those pages, or none."""
    call = scattered_call(item, inputs)
    size, pages = item.page_size, call["pages"]
    random = np.random.default_rng((item.batch, item.s_k, size))
    order = random.permutation(pages).astype(np.int32)
    table = random.choice(np.array([-1, pages, 2**31 - 1, -(2**31), *order[:UNUSED_PAGES]], np.int32),
                          (item.batch, call.get("s_k", item.s_k) // size))  # fmt: skip
    taken = iter(order[UNUSED_PAGES:])
    found: dict[str, NDArray[Any]] = {
        name: poison((pages, size, *array.shape[2:])) for name, array in _keys(inputs).items()
    }
    for entry in range(item.batch):
        first, end = _seen(inputs, entry)
        for place in range(first // size, -(-end // size)):
            table[entry, place] = page = next(taken)
            for name, array in _keys(inputs).items():
                rows = array[entry, place * size : (place + 1) * size]
                found[name][page, : len(rows)] = rows
    found["block_table"] = table
    if _has_lengths(item, inputs):
        found["kv_lens"] = key_lengths(inputs)
    return found


def _keys(inputs: Inputs) -> Mapping[str, NDArray[np.uint16]]:
    return {"k": inputs.k} if inputs.v is None else {"k": inputs.k, "v": inputs.v}


def _seen(inputs: Inputs, entry: int) -> tuple[int, int]:
    """The first key that a query of a batch entry sees, and the end of all; an empty range where there is none."""
    ranges = [dense_range(inputs, entry, query) for query in range(query_lengths(inputs)[entry])]
    seen = [each for each in ranges if each.stop > each.start]
    return (min(each.start for each in seen), max(each.stop for each in seen)) if seen else (0, 0)


def _ends(lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
