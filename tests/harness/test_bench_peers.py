"""`fmha bench --peer` without a GPU: who is called at which rows, in whose layouts, and what a record shows.

The libraries need a GPU. Stand-ins have their signatures and layouts, as their documentation gives them, and compute
with torch on the CPU, so that a wrong layout is a wrong result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from fmha.harness.bench import beside, libraries, rows

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    """What needs torch, which takes seconds to load, and which every worker of a run would load."""
    import torch

    from fmha.harness.bench import beside, libraries, rows

    globals().update(torch=torch, beside=beside, libraries=libraries, rows=rows)
    yield
    libraries._planned_paged.cache_clear()  # 256 MB each
    libraries._planned_ragged.cache_clear()
    libraries._planned_mla.cache_clear()


def attend(q: Any, k: Any, v: Any, scale: float, causal: bool) -> Any:
    """q [t, heads, columns] over k and v [s_k, kv_heads, columns], the last query on the last key."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(groups, 1) for x in (k, v))
    s = torch.einsum("thd,shd->hts", q.float(), k) * scale
    if causal:
        seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).tril(k.shape[0] - q.shape[0])
        s.masked_fill_(~seen, -torch.inf)
    return torch.einsum("hts,shd->thd", torch.softmax(s, -1), v).bfloat16()


class Prefill:
    """FlashInfer's wrapper over pages: a plan of offsets, and [pages, page, kv_heads, head_dim] of K and of V."""

    buffers = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")

    def __init__(
        self, workspace: Any, layout: str, *, backend: str, use_cuda_graph: bool = False, **given: Any
    ) -> None:
        assert (workspace.dtype, layout, backend) == (torch.uint8, "NHD", "fa2")
        assert set(given) == (set(self.buffers) if use_cuda_graph else set())
        self.sizes = {name: tuple(given[name].shape) for name in given}

    def plan(self, *offsets: Any, causal: bool = False, q_data_type: Any, kv_data_type: Any) -> None:
        *tensors, self.heads, self.kv_heads, self.head_dim, self.page = offsets
        assert q_data_type is kv_data_type is torch.bfloat16
        if self.sizes:
            assert [self.sizes[name] for name in self.buffers] == [tuple(x.shape) for x in tensors]
        self.queries, self.first, self.pages, self.last = self.with_queries(tensors)
        self.causal = causal

    def with_queries(self, tensors: list[Any]) -> list[Any]:
        return tensors

    def run(self, q: Any, cache: tuple[Any, Any], out: Any) -> Any:
        for b in range(len(self.last)):
            pages = self.pages[self.first[b] : self.first[b + 1]].long()
            keys = (len(pages) - 1) * self.page + int(self.last[b])
            k, v = (x[pages].flatten(0, 1)[:keys] for x in cache)
            rows = slice(self.queries[b], self.queries[b + 1])
            out[rows] = attend(q[rows], k, v, self.head_dim**-0.5, self.causal)
        return out


class Decode(Prefill):
    """The same for one query of each batch entry."""

    buffers = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")

    def __init__(self, *given: Any, use_tensor_cores: bool, **how: Any) -> None:
        assert use_tensor_cores
        super().__init__(*given, **how)

    def with_queries(self, tensors: list[Any]) -> list[Any]:
        return [torch.arange(len(tensors[0])), *tensors]


class Ragged:
    """FlashInfer's wrapper over packed sequences, [tokens, heads, head_dim]."""

    def __init__(self, workspace: Any, layout: str, *, backend: str) -> None:
        assert (workspace.dtype, layout, backend) == (torch.uint8, "NHD", "fa3")

    def plan(self, queries: Any, keys: Any, heads: int, kv_heads: int, head_dim: int, **how: Any) -> None:
        self.queries, self.keys, self.head_dim, self.causal = queries, keys, head_dim, how["causal"]

    def run(self, q: Any, k: Any, v: Any, out: Any) -> Any:
        for b in range(len(self.queries) - 1):
            rows = slice(self.queries[b], self.queries[b + 1])
            keys = slice(self.keys[b], self.keys[b + 1])
            out[rows] = attend(q[rows], k[keys], v[keys], self.head_dim**-0.5, self.causal)
        return out


class Latent:
    """FlashInfer's wrapper of multi-head latent attention: q [tokens, heads, columns], pages [pages, page, columns]."""

    def __init__(self, workspace: Any, *, backend: str) -> None:
        assert (workspace.dtype, backend) == (torch.uint8, "fa3")

    def plan(self, *, metadata: Any, head_dim_ckv: int, head_dim_kpe: int, sm_scale: float, **how: Any) -> None:
        self.queries, self.first, self.pages, self.lengths = metadata
        self.columns, self.head_dim, self.scale, self.how = head_dim_ckv + head_dim_kpe, head_dim_ckv, sm_scale, how

    def run(self, *, query: Any, kv_cache: Any) -> Any:
        assert query.shape[-1] == kv_cache.shape[-1] == self.columns
        out = torch.empty(*query.shape[:-1], self.head_dim, dtype=query.dtype)
        for b, length in enumerate(self.lengths):
            pages = self.pages[self.first[b] : self.first[b + 1]].long()
            k = kv_cache[pages].flatten(0, 1)[:length, None]
            rows = slice(self.queries[b], self.queries[b + 1])
            out[rows] = attend(query[rows], k, k[..., : self.head_dim], self.scale, self.how["causal"])
        return out


def flash_mla_with_kvcache(
    q: Any, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int,
    tile_scheduler_metadata: Any, num_splits: Any = None, softmax_scale: Any = None, causal: bool = False,
    use_legacy: bool = False,
) -> tuple[Any, None]:  # fmt: skip
    """q [batch, t, heads, 576] over k_cache [pages, 64, 1, 576], as sgl-flash-mla has it on Hopper."""
    assert use_legacy
    assert (q.shape[-1], k_cache.shape[1:]) == (576, (64, 1, 576))
    assert tile_scheduler_metadata == "planned"
    found = []
    for b, length in enumerate(cache_seqlens):
        k = k_cache[block_table[b].long()].flatten(0, 1)[:length]
        found.append(attend(q[b], k, k[..., :head_dim_v], softmax_scale, causal))
    return torch.stack(found), None


def fa3_call(q: Any, k: Any, v: Any, causal: bool, num_splits: int = 1) -> Any:
    """[batch, tokens, heads, head_dim], as FlashAttention-3 has them."""
    return torch.stack([attend(*(x[b] for x in (q, k, v)), q.shape[-1] ** -0.5, causal) for b in range(len(q))])


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins under the names of the libraries."""
    fa3, flash_mla, flashinfer, mla = (
        ModuleType(name) for name in ("fa3_fwd_interface", "flash_mla", "flashinfer", "flashinfer.mla")
    )
    vars(fa3).update(flash_attn_func=fa3_call, flash_attn_with_kvcache=fa3_call)
    vars(flash_mla).update(
        flash_mla_with_kvcache=flash_mla_with_kvcache, get_mla_metadata=lambda *sizes: ("planned", None)
    )
    vars(flashinfer).update(
        BatchDecodeWithPagedKVCacheWrapper=Decode,
        BatchPrefillWithPagedKVCacheWrapper=Prefill,
        BatchPrefillWithRaggedKVCacheWrapper=Ragged,
    )

    class Metadata:
        csr = staticmethod(lambda *tensors: tensors)

    vars(mla).update(BatchMLAPagedAttentionWrapper=Latent, MLAPlanMetadata=Metadata)
    for module in (fa3, flash_mla, flashinfer, mla):
        monkeypatch.setitem(sys.modules, module.__name__, module)


SMALL = {
    "decode": ("", 64, 2, 4, 1, 1, 192),
    "queries": ("", 128, 3, 6, 1, 3, 80),
    "full": ("", 64, 2, 3, 3, 40, 56),
    "causal": ("", 64, 2, 2, 2, 24, 64, True),
    "latent": ("", 512, 3, 5, 1, 1, 128, False, True),
    "latent, more queries": ("", 512, 2, 4, 1, 2, 64, False, True),
}
WAYS = [
    ("fa3", "decode", [""]),
    ("fa3", "queries", [""]),
    ("fa3", "full", [""]),
    ("fa3", "causal", [""]),
    ("sdpa", "decode", [""]),
    ("sdpa", "full", [""]),
    ("flashmla", "latent", [""]),
    ("flashmla", "latent, more queries", [""]),
    ("flashinfer", "decode", ["fa2, paged", "fa2, paged, for graphs"]),
    ("flashinfer", "queries", ["fa2, paged", "fa2, paged, for graphs"]),
    ("flashinfer", "full", ["fa3, ragged"]),
    ("flashinfer", "causal", ["fa3, ragged"]),
    ("flashinfer", "latent", ["fa3, MLA without positions", "fa3, MLA"]),
    ("flashinfer", "latent, more queries", ["fa3, MLA without positions", "fa3, MLA"]),
]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("peer", "sizes", "names"), WAYS)
def test_each_way_of_a_peer_is_right_in_the_librarys_layout(
    monkeypatch: pytest.MonkeyPatch, peer: str, sizes: str, names: list[str]
) -> None:
    monkeypatch.setattr(libraries, "WORKSPACE_BYTES", 1)
    row = rows.Row(*SMALL[sizes])
    x = rows.draw(row, 0, "cpu")
    ways = libraries.PEERS[peer](row)
    assert list(ways) == names
    for way in ways.values():
        o = way.make(row, x)()
        assert o.shape == x.q.shape
        assert rows.error_of(row, x, o) < beside.MOST_ERROR


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("peer", "sizes", "why"),
    [
        ("fa3", "latent", "has no head_dim 512"),
        ("flashmla", "decode", "K = V of 512 columns"),
        ("flashinfer", "odd page", "8 keys do not fill pages of 16"),
        ("sdpa", "causal", "aligns the first query with the first key"),
        ("triton", "queries", "one query alone"),
        ("triton", "full", "one query alone"),
    ],
)
def test_a_row_that_a_peer_does_not_take_is_refused_in_its_record(peer: str, sizes: str, why: str) -> None:
    row = rows.Row(*(SMALL | {"odd page": ("", 64, 1, 2, 1, 1, 8)})[sizes])
    record, ready = beside.fastest(row, [rows.draw(row, 0, "cpu")], libraries.PEERS[peer])
    assert why in record["refused"]
    assert ready is None


@pytest.mark.usefixtures("installed")
def test_rows_of_shared_keys_are_flashmlas_and_no_other_row_is() -> None:
    taken = []
    for row in rows.ROWS:
        try:
            libraries.PEERS["flashmla"](row)
        except NotImplementedError:
            continue
        taken.append(row)
    assert taken == [row for row in rows.ROWS if row.shared_kv]
    assert len(taken) >= 4


class Way:
    """`fastest` of made-up ways, without a GPU: a graph is its calls, and takes what the way says."""

    def __init__(self, us: float, o: Any) -> None:
        self.us, self.o, self.columns = us, o, 0

    def make(self, row: Any, x: Any) -> Any:
        def call() -> Any:
            if isinstance(self.o, Exception):
                raise self.o
            return self.o

        call.us = self.us  # type: ignore[attr-defined]
        return call


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are made."""
    made: list[Any] = []
    monkeypatch.setattr(beside, "captured", lambda calls: made.append(calls) or calls)
    monkeypatch.setattr(beside, "in_turn", lambda of, rounds: {name: [x[0].us] * rounds for name, x in of.items()})
    return made


def test_the_fastest_right_way_counts_and_wrong_ones_are_told(graphs: list[Any]) -> None:
    row = rows.Row(*SMALL["decode"])
    x = rows.draw(row, 0, "cpu")
    right = _right(row, x)
    ways = {
        "slow": Way(3.0, right),
        "wrong": Way(0.1, right * 1.1),
        "fast": Way(2.0, right),
        "not a number": Way(0.1, right * torch.nan),
        "broken": Way(0.1, ValueError("no such shape\nand more")),
    }
    record, ready = beside.fastest(row, [x, x], lambda _: ways)
    assert record["way"] == "fast"
    assert [call.us for call in ready.calls] == [2.0, 2.0]
    assert len(graphs) == 2, "a wrong result is not timed"
    assert record["not_timed"]["wrong"]["relative_error"] == pytest.approx(0.1, rel=0.1)
    assert record["not_timed"]["broken"] == {"refused": "no such shape"}
    assert set(record["not_timed"]) == {"wrong", "not a number", "broken"}


def test_a_contender_with_no_right_way_is_told_and_not_timed(graphs: list[Any]) -> None:
    row = rows.Row(*SMALL["decode"])
    x = rows.draw(row, 0, "cpu")
    record, ready = beside.fastest(row, [x], lambda _: {"": Way(0.1, _right(row, x) + 1.0)})
    assert record["relative_error"] > 1.0
    assert (ready, graphs) == (None, [])


def _right(row: Any, x: Any) -> Any:
    return libraries.PEERS["sdpa"](row)[""].make(row, x)()
