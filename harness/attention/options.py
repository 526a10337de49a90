"""The options of fmha.attention, checked: all that it is given but tensors."""

from __future__ import annotations

import math
from typing import Any, TypeGuard, get_args

import numpy as np
import torch

from fmha.harness.attention.given import AttentionArguments, Window, check_sparse
from fmha.harness.judge.configuration import STORED, PathChoice, Statistics

MOST_KEYS = 2**31 - 1  # of a window, what an int32 of the C ABI holds
MOST_SPLITS = 65535  # CUDA's largest grid.y
LEAST_SCALE, MOST_SCALE = 2.0**-150, 2.0**128 - 2.0**103  # between which numbers round to positive float32
PAGE = "docs/use/attention.md"


def check_options(of: AttentionArguments) -> None:
    """TypeError and ValueError for what none of them can be, NotImplementedError for what no kernel does; the message
    names the option, what it is and what it should be."""
    for name, flag in (("causal", of.causal), ("normalise", of.normalise)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name}: expected True or False, got {flag!r}")
    window_of(of.causal, of.window)
    if of.scale is not None:
        _check_scale(of.scale)
    if of.softcap is not None:
        raise NotImplementedError(
            f"softcap: no kernel caps logits yet, got {of.softcap!r}; leave it out. {PAGE} says what it would take"
        )
    for name, longest in (("max_seqlen_q", of.max_seqlen_q), ("max_seqlen_k", of.max_seqlen_k)):
        if longest is not None and not _is_int(longest):
            raise TypeError(f"{name}: expected an int, got {longest!r}")
    if of.output_dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"output_dtype: expected torch.float32 or torch.bfloat16, got {of.output_dtype}")
    if of.output_dtype == torch.bfloat16 and not of.normalise:
        raise ValueError("output_dtype: un-normalised output is torch.float32 only, got torch.bfloat16")
    check_statistics(of.statistics, of.normalise)
    if of.splits is not None:
        if not _is_int(of.splits):
            raise TypeError(f"splits: expected an int or None, got {of.splits!r}")
        if not 1 <= of.splits <= MOST_SPLITS:
            raise ValueError(f"splits: expected 1 to {MOST_SPLITS}, got {of.splits}")
    if not isinstance(of.p_path, str) or of.p_path not in get_args(PathChoice):
        raise ValueError(f"p_path: expected {', '.join(map(repr, get_args(PathChoice)))}, got {of.p_path!r}")
    check_sparse(of.sparse)
    place = "cuda" if isinstance(of.q, torch.Tensor) and of.q.is_cuda else "emulator"
    if of.device not in (None, place):
        raise ValueError(f"device: expected {place!r}, where the tensors run, got {of.device!r}")


def check_statistics(statistics: Statistics, normalise: bool) -> None:
    """ValueError for what is none of them, and for fewer than o needs."""
    if not isinstance(statistics, str) or statistics not in STORED:
        raise ValueError(f"statistics: expected {', '.join(map(repr, STORED))}, got {statistics!r}")
    if statistics != "all" and not normalise:
        raise ValueError(f"statistics: un-normalised output is relative to row_max; expected 'all', got {statistics!r}")


def window_of(causal: bool, window: Window | None) -> tuple[int | None, int | None]:
    """Keys seen before and after the query's own position."""
    if window is None:
        return None, 0 if causal else None
    if _is_int(window):
        if window < 1:
            raise ValueError(f"window: expected at least 1 key, the query's own, got {window}")
        if window > MOST_KEYS:
            raise ValueError(f"window: expected at most {MOST_KEYS} keys, got {window}; None is no limit")
        return window - 1, 0
    if not isinstance(window, tuple) or len(window) != 2 or not all(x is None or _is_int(x) for x in window):
        raise TypeError(
            f"window: expected a number of keys, or how many before and after a query's own, each an int or None, "
            f"got {window!r}"
        )
    left, right = window
    for side in (left, right):
        if side is not None and not 0 <= side <= MOST_KEYS:
            raise ValueError(f"window: expected counts of keys up to {MOST_KEYS} or None, got {window}")
    if causal and right is not None and right > 0:
        raise ValueError(f"window: causal attention sees no key after the query's own, got {window}")
    return left, 0 if causal else right


def scale_of(scale: float | None, head_dim: int) -> float:
    """As the float32 that a kernel is given; 1 / sqrt(head_dim) for None."""
    return float(np.float32(1.0 / math.sqrt(head_dim) if scale is None else scale))


def _check_scale(scale: Any) -> None:
    # Nothing of numpy's is called, which torch.compile would trace.
    if isinstance(scale, bool) or not isinstance(scale, int | float | torch.SymFloat | np.floating | np.integer):
        raise TypeError(f"scale: expected a number, got {scale!r}")
    exact = scale.item() if isinstance(scale, np.number) else scale
    if not LEAST_SCALE < exact < MOST_SCALE:
        raise ValueError(f"scale: expected a positive finite number, got {scale}")


def _is_int(value: Any) -> TypeGuard[int]:
    """A bool is none here: `splits=True` is a mistake. What torch.export has in place of one is."""
    return isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
