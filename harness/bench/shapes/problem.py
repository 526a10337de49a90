"""One attention problem of docs/understand/semantics.md: its inputs, its float64 answer, its kernel parameters.

Imports numpy and the worker's plain modules, so that it also runs on a machine that has only a GPU and torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.judge.oracle import reference as definition
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import Inputs, SparseArrays
from fmha.harness.kernel_side import params
from fmha.harness.kernel_side.choice import kind_of


@dataclass(frozen=True)
class Problem:
    """Shapes, masks and outputs. `kv_lens` and its like ask for drawn ones; `poison`: NaN where anything may stand."""

    head_dim: int
    heads: int = 1
    t: int = 1
    s_k: int = 128
    batch: int = 1
    window_left: int = -1
    window_right: int = -1
    topk: int = 0
    s_sparse: int = 0
    shared_kv: bool = False
    kv_lens: bool = False
    offsets: bool = False
    sparse_lens: bool = False
    sink: bool = False
    normalise: bool = True
    bf16: bool = False
    splits: int = 1
    walkers: int = 0  # CTAs that draw the row tiles of all batch entries; 0: one for each row tile
    spread: float = 1.0  # of the logits
    poison: bool = True
    seed: int = 0

    @property
    def page_size(self) -> int:
        """Keys lie in order."""
        return 0

    @property
    def scattered(self) -> bool:
        """Neither in pages nor packed."""
        return False

    @property
    def kv_heads(self) -> int:
        """All heads share K and V."""
        return 1

    @property
    def kind(self) -> str:
        """The kernel that knows enough for it, of SM90_KINDS; those before it know more."""
        windowed = (self.window_left, self.window_right) != (params.UNLIMITED, params.UNLIMITED)
        kind = kind_of(self, self.splits, windowed)
        return "plain" if kind == "dense" and not (windowed or self.walkers) else kind

    @property
    def flags(self) -> int:
        """The flags of FmhaParams."""
        f16 = self.splits > 1 and params.partial_f16(self.head_dim, self.bf16)
        return params.flags_of(
            normalise=self.normalise, output_bf16=self.bf16, shared_kv=self.shared_kv, partial_f16=f16
        )

    @property
    def scale(self) -> float:
        """1 / sqrt(head_dim), as the kernel's float32."""
        return float(np.float32(self.head_dim**-0.5))


def draw(p: Problem) -> dict[str, NDArray[Any]]:
    """The inputs of `p`, by its seed."""
    rng = np.random.default_rng(p.seed)
    tensors: dict[str, NDArray[Any]] = {}

    def normal(*shape: int) -> NDArray[np.uint16]:
        return round_to_bf16(rng.standard_normal(shape, np.float32))

    tensors["q"] = round_to_bf16(rng.standard_normal((p.batch, p.t, p.heads, p.head_dim), np.float32) * p.spread)
    for name, rows in (("k", p.s_k), ("sparse_k", p.s_sparse)):
        if rows:
            tensors[name] = normal(p.batch, rows, p.head_dim)
            if not p.shared_kv:
                tensors[name.replace("k", "v") if name == "k" else "sparse_v"] = normal(p.batch, rows, p.head_dim)
    if p.kv_lens:
        tensors["kv_lens"] = rng.integers(0, p.s_k + 1, p.batch).astype(np.int32)
    if p.offsets:
        tensors["query_offsets"] = rng.integers(-p.t, p.s_k + p.t, p.batch).astype(np.int32)
    if p.topk:
        tensors["sparse_indices"] = rng.integers(-1, p.s_sparse + 1, (p.batch, p.t, p.topk)).astype(np.int32)
    if p.sparse_lens:
        tensors["sparse_lens"] = rng.integers(0, p.topk + 1, (p.batch, p.t)).astype(np.int32)
    if p.sink:
        tensors["sink"] = (rng.standard_normal(p.heads) * 3).astype(np.float32)
    if p.poison:
        _poison(p, tensors)
    return tensors


def _poison(p: Problem, tensors: dict[str, NDArray[Any]]) -> None:
    nan = 0x7FC0
    for b in range(p.batch):
        if "kv_lens" in tensors:
            for name in {"k", "v"} & tensors.keys():
                tensors[name][b, tensors["kv_lens"][b] :] = nan
        if p.topk:
            lens = tensors["sparse_lens"][b] if p.sparse_lens else np.full(p.t, p.topk)
            named: set[int] = set()
            for i in range(p.t):
                named |= set(tensors["sparse_indices"][b, i, : lens[i]].tolist())
            unnamed = [r for r in range(p.s_sparse) if r not in named]
            for name in {"sparse_k", "sparse_v"} & tensors.keys():
                tensors[name][b, unnamed] = nan


def reference(p: Problem, x: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """o, row_max, row_sum, lse in float64."""
    none = np.zeros((p.batch, 0, p.head_dim), np.uint16)
    sparse = None
    if p.topk:
        sparse = SparseArrays(
            x.get("sparse_k", none),
            None if p.shared_kv else x.get("sparse_v", none),
            x["sparse_indices"],
            x.get("sparse_lens"),
        )
    answer = definition.reference(
        Inputs(
            x["q"],
            x.get("k", none),
            None if p.shared_kv else x.get("v", none),
            p.scale,
            None if p.window_left == params.UNLIMITED else p.window_left,
            None if p.window_right == params.UNLIMITED else p.window_right,
            x.get("kv_lens"),
            x.get("query_offsets"),
            sparse,
            x.get("sink"),
        )
    )
    o = answer.o if p.normalise else answer.o_unnormalised
    return {"o": o, "row_max": answer.row_max, "row_sum": answer.row_sum, "lse": answer.lse}


def map_shapes(p: Problem, rows: int, keys: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dimensions and box of each tensor map, innermost first, as kernel/include/fmha_params.h has them."""
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "q": ((p.head_dim, p.t * p.heads, p.batch), (64, rows, 1))
    }
    if p.s_k:
        shapes |= dict.fromkeys("kv", ((p.head_dim, p.s_k, p.batch), (64, keys, 1)))
    if p.s_sparse:
        shapes |= {f"sparse_{name}": ((p.head_dim, p.batch * p.s_sparse), (64, 1)) for name in "kv"}
    return shapes


def pack(p: Problem, maps: Mapping[str, bytes], pointers: Mapping[str, int]) -> bytes:
    """FmhaParams, of the forward and of the combine kernel."""
    given: dict[str, Any] = {**maps, **pointers}
    return params.FmhaParams(
        **given,
        batch=p.batch,
        t=p.t,
        heads=p.heads,
        s_k=p.s_k,
        s_sparse=p.s_sparse,
        topk=p.topk,
        splits=p.splits,
        window_left=p.window_left,
        window_right=p.window_right,
        scale=p.scale,
        flags=p.flags,
        head_dim=p.head_dim,
    ).pack()
