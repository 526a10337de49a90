"""Libraries that `fmha bench --peer` times beside ours, called as their documentation says.

A peer may have several ways to compute a row, of which the fastest that is right counts. What can be prepared once for
sizes alone, as a plan, is prepared before anything is timed. Modules are imported when a row is asked of them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fmha.harness.bench.peers.peer_rows import PeerInputs, PeerRow

Call = Callable[[], Any]  # o, of the shape of `Inputs.q`
Maker = Callable[[PeerRow, PeerInputs], Call]
POSITIONS: Final = 64  # columns of K beside V's that multi-head latent attention keeps for positions
WORKSPACE_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class LibraryWay:
    """`columns` of Q and K are multiplied, where those are more than head_dim."""

    make: Maker
    columns: int = 0


Ways = Mapping[str, LibraryWay]  # by what a record says of them; raises NotImplementedError where a row has none


def _fa3(row: PeerRow) -> Ways:
    """All its ways: the heads of a K/V head in one row tile or not, and splits that it chooses or none."""
    if row.head_dim > 256:
        raise NotImplementedError(f"has no head_dim {row.head_dim}")
    fa3 = importlib.import_module("fa3_fwd_interface")

    def make(pack: bool | None, splits: int, row: PeerRow, x: PeerInputs) -> Call:
        q, k, v = tokens_of(x)
        given: dict[str, Any] = {"causal": row.causal, "num_splits": splits, "pack_gqa": pack}
        if row.lengths:
            ends, longest = ends_of(row, x.q.device), (row.t, row.s_k)
            run = partial(fa3.flash_attn_varlen_func, *packed_of(x), ends, ends, *longest, **given)
        elif row.decodes:
            run = partial(fa3.flash_attn_with_kvcache, q, k, v, **given)
            if row.kv_lengths:
                run = partial(run, cache_seqlens=kv_lens_of(row, x.q.device))
        else:
            run = partial(fa3.flash_attn_func, q, k, v, **given)
        return lambda: by_head(row, run())

    chosen = 0 if row.decodes else 1
    ways = {"": LibraryWay(partial(make, None, chosen))}
    if row.heads > row.kv_heads:
        ways["packed heads"] = LibraryWay(partial(make, True, chosen))
        if row.decodes:
            ways["heads apart"] = LibraryWay(partial(make, False, chosen))
    if not row.decodes and not row.lengths:
        ways["splits"] = LibraryWay(partial(make, None, 0))
    return ways


def by_token(tensor: torch.Tensor) -> torch.Tensor:
    """[batch, kv_heads, tokens, group, head_dim] as [batch, tokens, kv_heads * group, head_dim]."""
    return tensor.transpose(1, 2).flatten(2, 3).contiguous()


def tokens_of(x: PeerInputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v, each by token."""
    return by_token(x.q), by_token(x.k[:, :, :, None]), by_token(x.v[:, :, :, None])


def packed_of(x: PeerInputs) -> tuple[torch.Tensor, ...]:
    """The same, of all batch entries one behind the other."""
    return tuple(tensor.flatten(0, 1) for tensor in tokens_of(x))


def ends_of(row: PeerRow, device: torch.device) -> torch.Tensor:
    """Where each sequence begins, and where the last ends: int32 [batch + 1]."""
    return torch.tensor([0, *accumulate(row.lengths or (row.t,) * row.batch)], dtype=torch.int32, device=device)


def kv_lens_of(row: PeerRow, device: torch.device) -> torch.Tensor:
    """Keys of each entry: int32 [batch]."""
    return torch.tensor(row.kv_lengths, dtype=torch.int32, device=device)


def by_head(row: PeerRow, o: torch.Tensor) -> torch.Tensor:
    """What `by_token` makes of Q, back."""
    return o.view(*row.queries, row.kv_heads, row.heads // row.kv_heads, row.head_dim).transpose(1, 2)


def _sdpa(backend: str | None, row: PeerRow) -> Ways:
    """Heads of one K/V head are rows, which none of its masks knows."""
    if row.lengths or row.kv_lengths:
        raise NotImplementedError("knows no sequences of several lengths")
    if row.causal and (row.kv_heads == 1 or row.t != row.s_k):
        raise NotImplementedError("aligns the first query with the first key")

    def make(row: PeerRow, x: PeerInputs) -> Call:
        run = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=row.causal)
        if row.by_token:
            tensors = [tensor.transpose(1, 2) for tensor in tokens_of(x)]
            gqa = partial(run, enable_gqa=True)

            def o() -> torch.Tensor:
                return gqa(*tensors).unflatten(1, (row.kv_heads, -1)).transpose(2, 3)
        else:
            q = x.q.flatten(2, 3)

            def o() -> torch.Tensor:
                return run(q, x.k, x.v).view_as(x.q)

        if backend is None:
            return o
        chosen = getattr(SDPBackend, backend)

        def call() -> torch.Tensor:
            with sdpa_kernel(chosen):
                return o()

        return call

    return {"": LibraryWay(make)}


def _triton(row: PeerRow) -> Ways:
    """The split-KV kernel of split_kv.py, which decodes."""
    if row.kv_heads != 1 or row.t != 1:
        raise NotImplementedError("decodes one query alone, whose heads share K and V")
    choices = importlib.import_module("fmha.harness.bench.peers.torch_calls").triton_choices

    def make(attention: Callable[..., torch.Tensor], row: PeerRow, x: PeerInputs) -> Call:
        q = x.q.flatten(2, 3)
        return lambda: attention(q, x.k, x.v).view_as(x.q)

    return {
        name: LibraryWay(partial(make, attention))
        for name, block, attention in choices(row.head_dim, row.batch, row.s_k)
        if row.heads % block == 0
    }


def _flashmla(row: PeerRow) -> Ways:
    """Its kernel for Hopper multiplies the columns for positions too; zeros in Q's keep them out of the result."""
    if not row.shared_kv or row.head_dim != 512 or row.s_k % 64:
        raise NotImplementedError("decodes K = V of 512 columns alone, in pages of 64 keys")
    flash_mla = importlib.import_module("flash_mla")
    decode = flash_mla.flash_mla_with_kvcache
    # In sgl-flash-mla the kernels for Hopper are those that FlashMLA itself has dropped since.
    for_hopper = {"use_legacy": True} if "use_legacy" in inspect.signature(decode).parameters else {}

    def make(row: PeerRow, x: PeerInputs) -> Call:
        q, cache = with_positions(x, POSITIONS, 64)
        table = _steps(cache.shape[0] - 1, 1, q.device).view(row.batch, -1)
        lengths = _each(row, row.s_k, q.device)
        planned = flash_mla.get_mla_metadata(lengths, row.t * row.heads, 1)
        scale = row.head_dim**-0.5
        run = partial(decode, q, cache[:, :, None], table, lengths, row.head_dim, *planned)
        return lambda: run(softmax_scale=scale, causal=row.causal, **for_hopper)[0][:, None]

    return {"": LibraryWay(make, row.head_dim + POSITIONS)}


def with_positions(x: PeerInputs, columns: int, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Q [batch, t, heads, head_dim + columns], and K in pages [pages, page, head_dim + columns].

    The columns are zeros in Q and drawn in K.
    """
    q, k = x.q[:, 0], x.k[:, 0]
    if columns:
        drawn = torch.randn(*k.shape[:-1], columns, device=k.device, dtype=k.dtype)
        q, k = torch.nn.functional.pad(q, (0, columns)), torch.cat((k, drawn), -1)
    return q, k.reshape(-1, page, k.shape[-1])


def _flashinfer(row: PeerRow) -> Ways:
    """FA3's form for prefill and for K = V, FA2's with tensor cores for decode, as it chooses itself on Hopper.

    A plan is made for sizes that change from replay to replay of a graph, or for those at hand.
    """
    if row.shared_kv:
        if row.head_dim != 512 or row.causal:
            raise NotImplementedError("decodes K = V of 512 columns alone")
        return {
            "fa3, MLA without positions": LibraryWay(partial(_flashinfer_mla, 0)),
            "fa3, MLA": LibraryWay(partial(_flashinfer_mla, POSITIONS), row.head_dim + POSITIONS),
        }
    if row.kv_lengths:
        raise NotImplementedError("is called with one length for all entries")
    if row.decodes:
        return {
            "fa2, paged": LibraryWay(partial(_flashinfer_paged, False)),
            "fa2, paged, for graphs": LibraryWay(partial(_flashinfer_paged, True)),
        }
    return {"fa3, ragged": LibraryWay(_flashinfer_ragged)}


def page_of(s_k: int) -> int:
    """The largest page of 64, 32 or 16 keys that the keys fill; NotImplementedError where none does."""
    for page in (64, 32, 16):
        if s_k % page == 0:
            return page
    raise NotImplementedError(f"{s_k} keys do not fill pages of 16")


def _steps(count: int, step: int, device: torch.device) -> torch.Tensor:
    """0, step, ..., count * step."""
    return torch.arange(count + 1, dtype=torch.int32, device=device) * step


def _each(row: PeerRow, value: int, device: torch.device) -> torch.Tensor:
    """`value` for each batch entry."""
    return torch.full((row.batch,), value, dtype=torch.int32, device=device)


def _page_table(row: PeerRow, device: torch.device) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Keys of a page, at which page each batch entry begins (int32 [batch + 1]), and all pages in order (int32)."""
    page = page_of(row.s_k)
    pages = row.s_k // page
    return page, _steps(row.batch, pages, device), _steps(row.batch * pages - 1, 1, device)


def _workspace(device: torch.device) -> torch.Tensor:
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


@lru_cache(maxsize=1)
def _planned_paged(row: PeerRow, graph: bool, device: torch.device) -> Any:
    """One plan and one workspace for all inputs of a row, as for the layers of a model."""
    flashinfer = importlib.import_module("flashinfer")
    page, first, indices = _page_table(row, device)
    last = _each(row, page, device)
    dtypes = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
    sizes = (row.heads, row.kv_heads, row.head_dim, page)
    given: dict[str, Any] = {"use_cuda_graph": graph, "backend": "fa2"}
    names = ("paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
    buffers = {name: torch.empty_like(like) for name, like in zip(names, (first, indices, last), strict=True)}
    if row.t == 1:
        if graph:
            given |= {f"{name}fer": buffer for name, buffer in buffers.items()}
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(device), "NHD", use_tensor_cores=True, **given
        )
        wrapper.plan(first, indices, last, *sizes, **dtypes)
        return wrapper
    queries = _steps(row.batch, row.t, device)
    if graph:
        given |= {"qo_indptr_buf": torch.empty_like(queries), **buffers}
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_workspace(device), "NHD", **given)
    wrapper.plan(queries, first, indices, last, *sizes, causal=row.causal, **dtypes)
    return wrapper


def _flashinfer_paged(graph: bool, row: PeerRow, x: PeerInputs) -> Call:
    planned = _planned_paged(row, graph, x.q.device)
    q = by_token(x.q).flatten(0, 1)
    pages = (-1, page_of(row.s_k), row.kv_heads, row.head_dim)
    cache = tuple(keys.transpose(1, 2).reshape(pages) for keys in (x.k, x.v))
    return lambda: by_head(row, planned.run(q, cache, out=torch.empty_like(q)))


@lru_cache(maxsize=1)
def _planned_ragged(row: PeerRow, device: torch.device) -> Any:
    flashinfer = importlib.import_module("flashinfer")
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(_workspace(device), "NHD", backend="fa3")
    queries = ends_of(row, device)
    keys = queries if row.lengths else _steps(row.batch, row.s_k, device)
    wrapper.plan(
        queries, keys, row.heads, row.kv_heads, row.head_dim, causal=row.causal, q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
    )  # fmt: skip
    return wrapper


def _flashinfer_ragged(row: PeerRow, x: PeerInputs) -> Call:
    planned = _planned_ragged(row, x.q.device)
    q, k, v = packed_of(x)
    return lambda: by_head(row, planned.run(q, k, v, out=torch.empty_like(q)))


@lru_cache(maxsize=1)
def _planned_mla(row: PeerRow, positions: int, device: torch.device) -> Any:
    mla = importlib.import_module("flashinfer.mla")
    page, first, indices = _page_table(row, device)
    metadata = mla.MLAPlanMetadata.csr(_steps(row.batch, row.t, device), first, indices, _each(row, row.s_k, device))
    wrapper = mla.BatchMLAPagedAttentionWrapper(_workspace(device), backend="fa3")
    wrapper.plan(
        metadata=metadata, num_heads=row.heads, head_dim_ckv=row.head_dim, head_dim_kpe=positions, page_size=page,
        causal=row.causal, sm_scale=row.head_dim**-0.5, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
    )  # fmt: skip
    return wrapper


def _flashinfer_mla(positions: int, row: PeerRow, x: PeerInputs) -> Call:
    planned = _planned_mla(row, positions, x.q.device)
    q, cache = with_positions(x, positions, page_of(row.s_k))
    q = q.flatten(0, 1)
    return lambda: by_head(row, planned.run(query=q, kv_cache=cache))


PEERS: Final[Mapping[str, Callable[[PeerRow], Ways]]] = {
    "fa3": _fa3,
    "flashmla": _flashmla,
    "flashinfer": _flashinfer,
    "cudnn": partial(_sdpa, "CUDNN_ATTENTION"),
    "flash2": partial(_sdpa, "FLASH_ATTENTION"),
    "sdpa": partial(_sdpa, None),
    "triton": _triton,
}
