"""Memory of launches on a GPU beside tensors: for partial results, and counts from which CTAs draw row tiles."""

from __future__ import annotations

import os

import torch

from fmha.harness.kernel_side.launch import Call
from fmha.harness.worker.devices import cuda

COUNTS = 16384  # that are cleared at once

_spare_counts: dict[int, list[int]] = {}  # by device
_stream_counts: dict[tuple[int, int], int] = {}  # by device and stream
_scratches: dict[tuple[int, int], torch.Tensor] = {}  # likewise: streams of all devices may have one number


def scratch(stream: int, nbytes: int, where: torch.device, keeps: bool) -> torch.Tensor:
    """Memory for partial results on the current stream, whose number is `stream`. Calls of one stream share what is
    kept: each waits for the one before. A captured graph has its own, which outlives this process's interest in other
    sizes. So has, without `keeps`, a call that may be within somebody's pool: torch.compile's graphs know of all
    that stays in theirs."""
    if not keeps or torch._C._cuda_isCurrentStreamCapturing():
        return _made(nbytes, where)
    held = _scratches.get((where.index, stream))
    if held is None or held.nbytes < nbytes:
        held = _scratches[where.index, stream] = _made(nbytes, where)
    return held


def count(stream: int, where: torch.device) -> int:
    """The address of a count that is 0 and that no other launch uses meanwhile: launches of one stream share one, each
    of a captured graph has its own."""
    spare = _spare_counts.setdefault(where.index, [])
    if torch._C._cuda_isCurrentStreamCapturing():
        if spare:
            return spare.pop()
        # The graph's, which clears it each time. Nothing is allocated before the launch: nothing else gets its place.
        return int(torch.zeros(1, dtype=torch.int32, device=where).data_ptr())
    if not spare:
        first = cuda.zeros(4 * COUNTS, where.index)  # of no pool, for whoever calls first
        spare.extend(range(first, first + 4 * COUNTS, 4))
    key = where.index, stream
    if key not in _stream_counts:
        _stream_counts[key] = spare.pop()
    return _stream_counts[key]


def refuse_too_much(call: Call, nbytes: int, where: torch.device) -> None:
    """ValueError for more partial results than the device has memory. Of packed queries each entry has room for as many
    as the longest."""
    if not nbytes or nbytes <= (has := _bytes_of(where)):
        return
    of = f"{call.splits} splits of {call.batch} entries of up to {call.t} queries with {call.heads} heads"
    packed = ", or pass fewer sequences, of more equal lengths, at once" if call.total_q is not None else ""
    raise ValueError(
        f"splits: {of} have {_gib(nbytes)} of partial results, more than the {_gib(has)} of {where}; "
        f"pass fewer splits, or none for a number that fits{packed}"
    )


def _bytes_of(where: torch.device) -> int:
    if where.type == "cuda":
        return int(torch.cuda.get_device_properties(where).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _made(nbytes: int, where: torch.device) -> torch.Tensor:
    try:
        return torch.empty(nbytes, dtype=torch.uint8, device=where)
    except torch.OutOfMemoryError as error:
        error.add_note(f"{_gib(nbytes)} were for partial results of attention's splits; pass fewer")
        raise


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
