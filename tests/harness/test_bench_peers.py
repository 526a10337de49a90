"""`fmha bench --peer` without a GPU: who is called at which rows, in whose layouts, and what a record shows.

The libraries need a GPU. Stand-ins have their signatures and layouts, as their documentation gives them, and compute
with torch on the CPU, so that a wrong layout is a wrong result.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import asdict
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from fmha.harness.bench.peers import libraries, peer_rows
    from fmha.harness.bench.runs import beside

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    """What needs torch, which takes seconds to load, and which every worker of a run would load."""
    import torch

    from fmha.harness.bench.peers import libraries, peer_rows
    from fmha.harness.bench.runs import beside

    globals().update(torch=torch, beside=beside, libraries=libraries, peer_rows=peer_rows)
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


def fa3_call(
    q: Any, k: Any, v: Any, causal: bool, num_splits: int = 1, pack_gqa: Any = None, cache_seqlens: Any = None
) -> Any:
    """[batch, tokens, heads, head_dim], as FlashAttention-3 has them."""
    lengths = [k.shape[1]] * len(q) if cache_seqlens is None else cache_seqlens.tolist()
    scale = q.shape[-1] ** -0.5
    return torch.stack([attend(q[b], k[b, :n], v[b, :n], scale, causal) for b, n in enumerate(lengths)])


def fa3_packed(
    q: Any, k: Any, v: Any, queries: Any, keys: Any, longest_q: int, longest_k: int, causal: bool, num_splits: int = 1,
    pack_gqa: Any = None,
) -> Any:  # fmt: skip
    """[tokens, heads, head_dim] of all sequences."""
    assert (longest_q, longest_k) == (int(queries.diff().max()), int(keys.diff().max()))
    o = torch.empty_like(q)
    for b in range(len(queries) - 1):
        rows, seen = slice(queries[b], queries[b + 1]), slice(keys[b], keys[b + 1])
        o[rows] = attend(q[rows], k[seen], v[seen], q.shape[-1] ** -0.5, causal)
    return o


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins under the names of the libraries."""
    fa3, flash_mla, flashinfer, mla = (
        ModuleType(name) for name in ("fa3_fwd_interface", "flash_mla", "flashinfer", "flashinfer.mla")
    )
    vars(fa3).update(flash_attn_func=fa3_call, flash_attn_with_kvcache=fa3_call, flash_attn_varlen_func=fa3_packed)
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
    "by token": ("", 64, 2, 6, 2, 24, 24, True, False, True),
    "packed": ("", 64, 3, 6, 2, 40, 40, True, False, True, (9, 40, 23)),
    "grouped": ("", 64, 2, 6, 2, 3, 80, True, False, True),
    "mix": ("", 64, 3, 6, 2, 1, 80, False, False, True, (), (80, 7, 33)),
    "latent": ("", 512, 3, 5, 1, 1, 128, False, True),
    "latent, more queries": ("", 512, 2, 4, 1, 2, 64, False, True),
}
WAYS = [
    ("fa3", "decode", ["", "packed heads", "heads apart"]),
    ("fa3", "queries", ["", "packed heads", "heads apart"]),
    ("fa3", "grouped", ["", "packed heads", "heads apart"]),
    ("fa3", "mix", ["", "packed heads", "heads apart"]),
    ("fa3", "full", ["", "splits"]),
    ("fa3", "causal", ["", "splits"]),
    ("fa3", "by token", ["", "packed heads", "splits"]),
    ("fa3", "packed", ["", "packed heads"]),
    ("sdpa", "by token", [""]),
    ("sdpa", "decode", [""]),
    ("sdpa", "full", [""]),
    ("flashmla", "latent", [""]),
    ("flashmla", "latent, more queries", [""]),
    ("flashinfer", "decode", ["fa2, paged", "fa2, paged, for graphs"]),
    ("flashinfer", "queries", ["fa2, paged", "fa2, paged, for graphs"]),
    ("flashinfer", "grouped", ["fa2, paged", "fa2, paged, for graphs"]),
    ("flashinfer", "full", ["fa3, ragged"]),
    ("flashinfer", "causal", ["fa3, ragged"]),
    ("flashinfer", "by token", ["fa3, ragged"]),
    ("flashinfer", "packed", ["fa3, ragged"]),
    ("flashinfer", "latent", ["fa3, MLA without positions", "fa3, MLA"]),
    ("flashinfer", "latent, more queries", ["fa3, MLA without positions", "fa3, MLA"]),
]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("peer", "sizes", "names"), WAYS)
def test_each_way_of_a_peer_is_right_in_the_librarys_layout(
    monkeypatch: pytest.MonkeyPatch, peer: str, sizes: str, names: list[str]
) -> None:
    monkeypatch.setattr(libraries, "WORKSPACE_BYTES", 1)
    row = peer_rows.PeerRow(*SMALL[sizes])
    x = peer_rows.draw(row, 0, "cpu")
    ways = libraries.PEERS[peer](row)
    assert list(ways) == names
    for way in ways.values():
        o = way.make(row, x)()
        assert o.shape == x.q.shape
        assert peer_rows.error_of(row, x, o) < beside.MOST_ERROR


@pytest.mark.parametrize("sizes", ["causal", "by token", "packed", "grouped", "mix"])
def test_ours_is_right_in_each_layout_and_stores_what_fa3_does(monkeypatch: pytest.MonkeyPatch, sizes: str) -> None:
    results = []
    attention = beside.attention
    monkeypatch.setattr(
        beside, "attention", lambda *tensors, **options: results.append(attention(*tensors, **options)) or results[-1]
    )
    row = peer_rows.PeerRow(*SMALL[sizes])
    x = peer_rows.draw(row, 0, "cpu")
    o = beside._ours(row, x)()
    assert o.shape == x.q.shape
    assert peer_rows.error_of(row, x, o) < beside.MOST_ERROR
    assert [len(result.statistics) for result in results] == [1]


def test_the_host_is_timed_with_all_statistics_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Any] = []
    monkeypatch.setattr(beside, "draw", lambda row, seed: peer_rows.draw(row, seed, "cpu"))
    monkeypatch.setattr(beside, "plan", lambda *tensors, **options: lambda *given, **more: None)
    monkeypatch.setattr(beside, "host_time", lambda call: timed.append(call) or {"host_us": 1.0})
    measured = beside.host_times([])
    of_a_row = len(timed) // len(measured)
    for place, row in enumerate(measured):
        calls = dict(zip(row["results"], timed[place * of_a_row :], strict=False))
        assert list(calls)[:3] == ["ours", "ours, without statistics", "ours, given outputs"]
        every, none = calls["ours"], calls["ours, without statistics"]
        assert (none.func, none.args) == (every.func, every.args)
        assert none.keywords == every.keywords | {"statistics": "none"}
        assert "statistics" not in every.keywords


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("peer", "sizes", "why"),
    [
        ("fa3", "latent", "has no head_dim 512"),
        ("flashmla", "decode", "K = V of 512 columns"),
        ("flashinfer", "odd page", "8 keys do not fill pages of 16"),
        ("sdpa", "causal", "aligns the first query with the first key"),
        ("sdpa", "packed", "no sequences of several lengths"),
        ("sdpa", "mix", "no sequences of several lengths"),
        ("flashinfer", "mix", "one length for all entries"),
        ("triton", "queries", "one query alone"),
        ("triton", "full", "one query alone"),
    ],
)
def test_a_row_that_a_peer_does_not_take_is_refused_in_its_record(peer: str, sizes: str, why: str) -> None:
    row = peer_rows.PeerRow(*(SMALL | {"odd page": ("", 64, 1, 2, 1, 1, 8)})[sizes])
    record, ready = beside.fastest(row, [peer_rows.draw(row, 0, "cpu")], libraries.PEERS[peer])
    assert why in record["refused"]
    assert ready is None


@pytest.mark.usefixtures("installed")
def test_rows_of_shared_keys_are_flashmlas_and_no_other_row_is() -> None:
    taken = []
    for row in peer_rows.ROWS:
        try:
            libraries.PEERS["flashmla"](row)
        except NotImplementedError:
            continue
        taken.append(row)
    assert taken == [row for row in peer_rows.ROWS if row.shared_kv]
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
    row = peer_rows.PeerRow(*SMALL["decode"])
    x = peer_rows.draw(row, 0, "cpu")
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
    row = peer_rows.PeerRow(*SMALL["decode"])
    x = peer_rows.draw(row, 0, "cpu")
    record, ready = beside.fastest(row, [x], lambda _: {"": Way(0.1, _right(row, x) + 1.0)})
    assert record["relative_error"] > 1.0
    assert (ready, graphs) == (None, [])


@pytest.mark.usefixtures("installed")
def test_calls_are_kept_until_every_graph_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds none of what its calls had copied: its replays would read memory of others."""

    class Graph:
        def __init__(self, calls: Any) -> None:
            self.calls = [weakref.ref(call) for call in calls]

    def in_turn(graphs: dict[str, Graph], rounds: int) -> dict[str, list[float]]:
        assert all(call() is not None for graph in graphs.values() for call in graph.calls)
        return {name: [1.0] * rounds for name in graphs}

    sdpa = libraries.PEERS["sdpa"](peer_rows.PeerRow(*SMALL["decode"]))[""].make
    monkeypatch.setattr(libraries, "WORKSPACE_BYTES", 1)
    monkeypatch.setattr(beside, "MOST_SETS", 2)
    monkeypatch.setattr(beside, "draw", lambda row, seed: peer_rows.draw(row, seed, "cpu"))
    monkeypatch.setattr(beside, "_ours", sdpa)
    monkeypatch.setattr(beside, "captured", Graph)
    monkeypatch.setattr(beside, "in_turn", in_turn)
    measured = beside.measure(peer_rows.PeerRow(*SMALL["decode"]), ["fa3", "flashinfer"], 3)["results"]
    assert {name: found["median_us"] for name, found in measured.items()} == dict.fromkeys(measured, 0.5)
    assert list(measured) == ["ours", "fa3", "flashinfer"]


def record_of(*measured: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    """A record of a run with these rows."""
    return {
        "environment": {"gpu": "NVIDIA H200", "date": "2026-11-26T06:00:00", "torch": "2.11.0", "cudnn": 91900},
        "roofline": {"copy_tb_s": 4.0, "matmul_tflop_s": 800.0},
        "peers": ["fa3", "flashmla", "flashinfer"],
        "rows": [asdict(row) | {"bytes": row.bytes, "flop": row.flop, "results": results} for row, results in measured],
    }


def timed(us: float, **more: Any) -> dict[str, Any]:
    return {"relative_error": 2e-3, "median_us": us} | more


@pytest.fixture
def shown() -> dict[str, Any]:
    """A record: two rows of decode, one of prefill, two as callers have it, one of K = V."""
    refused = {"refused": "has no such head_dim"}
    return record_of(
        (
            peer_rows.PeerRow("decode", 128, 16, 128, 1, 1, 8192),
            {
                "ours": timed(20.0), "fa3": timed(30.0), "flashmla": refused,
                "flashinfer": timed(25.0, way="fa2, paged", not_timed={"for graphs": {"refused": "no"}}),
            },
        ),
        (
            peer_rows.PeerRow("few", 128, 1, 16, 1, 1, 8192),
            {
                "ours": timed(5.0), "fa3": timed(10.0), "flashmla": refused,
                "flashinfer": timed(20.0, way="fa2, paged"),
            },
        ),
        (
            peer_rows.PeerRow("full", 64, 4, 16, 16, 4096, 4096),
            {
                "ours": timed(550.0), "fa3": timed(495.0), "flashmla": refused,
                "flashinfer": timed(605.0, way="fa3, ragged"),
            },
        ),
        (
            peer_rows.PeerRow("by token", 64, 8, 32, 8, 1024, 1024, True, by_token=True),
            {"ours": timed(100.0), "fa3": timed(115.0), "flashmla": refused, "flashinfer": refused},
        ),
        (
            peer_rows.PeerRow("packed", 64, 3, 32, 8, 40, 40, True, by_token=True, lengths=(9, 40, 23)),
            {"ours": timed(10.0), "fa3": timed(9.5), "flashmla": refused, "flashinfer": refused},
        ),
        (
            peer_rows.PeerRow("MLA decode", 512, 16, 128, 1, 1, 8192, shared_kv=True),
            {
                "ours": timed(64.0), "fa3": refused, "flashmla": timed(68.4, columns=576),
                "flashinfer": {"relative_error": 0.5, "way": "fa3, MLA", "columns": 576},
            },
        ),
    )  # fmt: skip


def test_of_shared_keys_each_contender_shows_what_it_multiplies_and_reads_itself(shown: dict[str, Any]) -> None:
    """537 and 534 TFLOP/s are what was measured of ours in 64.0 us and of FlashMLA in 68.4, by hand."""
    assert beside.latent_table(shown).splitlines()[2:] == [
        "| b16 h128 T1 s8192 | ours | 512 | 512 | 64.0 | 537 | 2.10 |",
        "| b16 h128 T1 s8192 | flashmla | 576 | 512 | 68.4 | 534 | 2.21 |",
    ]


def test_the_table_of_decode_and_prefill_has_no_row_of_shared_keys_nor_a_peer_that_takes_none(
    shown: dict[str, Any],
) -> None:
    """The first floor by hand: 4 * 16 * 8192 * 128 bytes of K and V, 4 * 16 * 128 * 128 of Q and O, at 4 TB/s."""
    head, _, *lines = beside.table(shown).splitlines()
    assert head == "| | sizes | head_dim | floor | ours | fa3 | flashinfer | best peer / ours |"
    assert lines == [
        "| decode | b16 h128 T1 s8192 | 128 | 17.0 | 20.0 | 30.0 | 25.0 | 1.25 |",
        "| few | b1 h16 T1 s8192 | 128 | 1.1 | 5.0 | 10.0 | 20.0 | 2.00 |",
        "| full | b4 h16 T4096 s4096 | 64 | 343.6 | 550.0 | 495.0 | 605.0 | 0.90 |",
    ]
    assert beside.summary(shown).endswith(
        "is 1.25 to 2.00 in decode, 0.90 to 0.90 in prefill, 0.95 to 1.15 by token and packed."
    )


def test_prefill_as_callers_have_it_has_a_table_of_its_own(shown: dict[str, Any]) -> None:
    """By hand: 2 * 2 * 64 * 32 products for each of 8 * 1024 * 1025 / 2 pairs, at 800 TFLOP/s; and 4 * 72 * 64 * 40
    bytes of Q, K, V and O, at 4 TB/s."""
    head, _, *lines = beside.given_table(shown).splitlines()
    assert head == "| | sizes | head_dim | floor | ours | fa3 | best peer / ours |"
    assert lines == [
        "| by token | b8 h32/8 1024 | 64 | 43.0 | 100.0 | 115.0 | 1.15 |",
        "| packed | b3 h32/8, 72 tokens, longest 40 | 64 | 0.2 | 10.0 | 9.5 | 0.95 |",
    ]


def test_the_ways_that_won_are_counted_and_a_wrong_one_is_not(shown: dict[str, Any]) -> None:
    assert beside.ways_table(shown).splitlines()[2:] == [
        "| flashinfer | fa2, paged | 2 |",
        "| flashinfer | fa3, ragged | 1 |",
    ]


def test_a_run_prints_why_a_contender_has_no_time(shown: dict[str, Any]) -> None:
    assert beside._told(shown["rows"][5], shown).splitlines()[-2:] == [
        "  fa3: has no such head_dim",
        "  flashinfer: wrong, relative error 0.5",
    ]


def _right(row: Any, x: Any) -> Any:
    return libraries.PEERS["sdpa"](row)[""].make(row, x)()
