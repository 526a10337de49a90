"""What lengths, offsets and tables of fmha.attention say, checked. On a GPU that waits for it, so that it is believed
there unless FMHA_CHECK_VALUES of the environment is 1."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from fmha.harness.kernel_side.launch import Call

ON_GPUS = os.environ.get("FMHA_CHECK_VALUES", "") not in ("", "0")


def check_values(tensors: Mapping[str, torch.Tensor], call: Call) -> None:
    """ValueError for a value that no kernel can go by; the message names the tensor, the value and the range. Tensors
    by FmhaParams' names, of a call whose shapes have been checked."""
    _lengths("kv_lens", tensors.get("kv_lens"), call.s_k)
    _lengths("sparse.lens", tensors.get("sparse_lens"), call.topk)
    for name, total, longest in (("q", call.total_q, call.t), ("k", call.total_k, call.s_k)):
        if total is not None:
            _ends(name, tensors[f"cu_seqlens_{name}"], total, longest)
    if "block_table" in tensors and call.window_left is None and "query_offsets" not in tensors:
        _pages(tensors, call)  # else there are keys that nobody sees


def _lengths(name: str, lengths: torch.Tensor | None, longest: int) -> None:
    if lengths is None:
        return
    outside = lengths[(lengths < 0) | (lengths > longest)]
    if outside.numel():
        raise ValueError(f"{name}: expected values from 0 to {longest}, got {int(outside[0])}")


def _ends(name: str, cu_seqlens: torch.Tensor, total: int, longest: int) -> None:
    ends = cu_seqlens.cpu()
    lengths = ends.diff()
    if int(ends[0]) or int(ends[-1]) != total or bool((lengths < 0).any()):
        raise ValueError(
            f"cu_seqlens_{name}: expected values that grow from 0 to the {total} rows, got {ends.tolist()}"
        )
    if int(lengths.max()) > longest:
        raise ValueError(f"max_seqlen_{name}: expected at least {int(lengths.max())}, the longest, got {longest}")


def _pages(tensors: Mapping[str, torch.Tensor], call: Call) -> None:
    """Of pages those that keys below kv_len are in, where there is a query to see them."""
    table = tensors["block_table"]
    needed = tensors.get("kv_lens")
    if needed is None:
        needed = torch.full((call.batch,), call.s_k, device=table.device)
    if "cu_seqlens_q" in tensors:
        needed = needed * (tensors["cu_seqlens_q"].diff() > 0)
    held = torch.arange(table.shape[1], device=table.device) * call.page_size < needed[:, None]
    wrong = table[held & ((table < 0) | (table >= call.pages))]
    if wrong.numel():
        raise ValueError(f"block_table: expected pages from 0 to {call.pages - 1}, got {int(wrong[0])}")
