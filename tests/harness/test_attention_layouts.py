"""fmha.attention of K and V as they lie: strides and K/V heads, pages, packed sequences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.attention_calls import (
    BATCH,
    HEAD_DIM,
    HEADS,
    RESULTS,
    Call,
    Later,
    T,
    bf16,
    heads_apart,
    int32,
    loaded,
    near,
    packed_apart,
    sparse_branch,
)

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


@pytest.mark.nvcc
def test_kv_heads_lie_as_they_do() -> None:
    """Slices, transposed views and copies give the bits of heads folded into the batch."""
    q, k, v = heads_apart()
    lengths = torch.tensor([96, 50], dtype=torch.int32)
    options: Call = {"causal": True, "kv_lens": lengths, "splits": 2}
    sink = torch.tensor([0.5, 1.0, torch.inf, -torch.inf, 2.0, 0.0])
    got = attention(q, k, v, sink=sink, **options)
    near(got, exact.attention(q, k, v, sink=sink, **options))
    assert got.findings == ()
    views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    for other in (
        attention(q.contiguous(), *views, sink=sink, **options),
        plan(q, k, v, **options)(q, k, v, kv_lens=lengths),
    ):
        assert torch.equal(other.lse, got.lse)
    folded = [x.unflatten(2, (3, -1)).transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    repeated = options | {"kv_lens": lengths.repeat_interleave(3)}
    one = attention(folded[0], *(x.squeeze(2) for x in folded[1:]), **repeated)
    plain = attention(q, k, v, **options)
    for name in RESULTS:
        whole = getattr(one, name).unflatten(0, (BATCH, 3)).transpose(1, 2).flatten(2, 3)
        assert torch.equal(whole, getattr(plain, name)), name


@pytest.mark.nvcc
def test_a_plan_is_for_its_strides() -> None:
    q, k, v = heads_apart()
    with pytest.raises(ValueError, match=r"k: planned for .* in strides .*, got .* on cpu; make a plan"):
        plan(q, k, v)(q, k.contiguous(), v)


def pages_apart(size: int = 32) -> tuple[Call, Call]:
    """The same keys in pages and in order: 2 K/V heads, entries of 96 and 64 keys that share their first page, and NaN
    wherever nobody may look."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = bf16(generator, BATCH, T, HEADS, HEAD_DIM), *(bf16(generator, 9, size, 2, HEAD_DIM) for _ in range(2))
    table, lengths = int32([3, 1, 8, -7], [3, 4, 9, 2**31 - 1]), int32(96, 64)
    used = table[:, :3].clamp(0, 8)
    ordered = {"q": q, "kv_lens": lengths} | {name: x[used].flatten(1, 2) for name, x in (("k", k), ("v", v))}
    for pages in (k, v):
        pages[[0, 2, 5, 6, 7]] = torch.nan
    return {"q": q, "k": k, "v": v, "block_table": table, "kv_lens": lengths}, ordered


@pytest.mark.nvcc
def test_keys_in_pages_are_keys_in_order() -> None:
    """The bits are the same where tiles are: lengths are multiples of a box. Views of pages are read where they lie."""
    paged, ordered = pages_apart()
    options: Call = {"sink": torch.zeros(HEADS), "splits": 2}
    got, wanted = attention(**paged, **options), attention(**ordered, **options)
    assert got.findings == ()
    views = {name: paged[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("k", "v")}
    for other in (got, attention(**paged | views, **options), plan(**paged, **options)(**paged, sink=options["sink"])):
        assert all(torch.equal(getattr(other, name), getattr(wanted, name)) for name in RESULTS)
    near(attention(**paged, causal=True), exact.attention(**ordered, causal=True))


@pytest.mark.nvcc
def test_pages_that_no_query_sees_are_not_looked_up() -> None:
    paged, ordered = pages_apart()
    gone = paged["block_table"].clone()
    gone[0, 0], gone[1, 0] = 10**6, 5
    got = attention(**paged | {"block_table": gone}, window=20)
    near(got, exact.attention(**ordered, window=20))
    near(got, exact.attention(**paged | {"block_table": gone}, window=20))


@pytest.mark.nvcc
def test_the_tail_of_a_page_is_not_multiplied() -> None:
    paged, ordered = pages_apart()
    lengths = int32(75, 33)
    for name in ("k", "v"):
        paged[name][8, 11:] = paged[name][4, 1:] = torch.nan
        ordered[name][0, 75:] = ordered[name][1, 33:] = torch.nan
    near(attention(**paged | {"kv_lens": lengths}), exact.attention(**ordered | {"kv_lens": lengths}))


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "made", [lambda: {"causal": True}, lambda: {"window": 9, "splits": 2, "sink": torch.ones(HEADS)}]
)
def test_packed_sequences_are_sequences_by_themselves(made: Later) -> None:
    """Bit by bit: none writes into the next one's rows, and none sees what its neighbours hold."""
    packed, alone = packed_apart()
    options = made()
    got = attention(**packed, **options)
    assert got.findings == ()
    assert (got.o.shape, got.lse.shape) == ((10, HEADS, HEAD_DIM), (10, HEADS))
    parts = [attention(**each, **options) for each in alone]
    for name in RESULTS:
        assert torch.equal(getattr(got, name), torch.cat([getattr(part, name)[0] for part in parts])), name
    near(got, exact.attention(**packed, **options))


@pytest.mark.nvcc
def test_packed_queries_go_with_pages_and_with_a_batch() -> None:
    paged, ordered = pages_apart()
    queries: Call = {"q": paged["q"].flatten(0, 1)[:7], "cu_seqlens_q": int32(0, 5, 7), "max_seqlen_q": 5}
    wanted = attention(**ordered | queries, causal=True)
    got = attention(**paged | queries, causal=True)
    assert all(torch.equal(getattr(got, name), getattr(wanted, name)) for name in RESULTS)
    near(got, exact.attention(**paged | queries, causal=True))


@pytest.mark.nvcc
def test_pages_and_packed_sequences_go_through_the_operator() -> None:
    for call in (pages_apart()[0], packed_apart()[0]):
        wanted = attention(**call, causal=True)

        def scattered(q: torch.Tensor, call: Call = call) -> torch.Tensor:
            return attention(**call | {"q": q}, causal=True).o

        assert torch.equal(torch.compile(scattered, fullgraph=True, backend="aot_eager")(call["q"]), wanted.o)
        places = ("kv_lens", *[""] * 6, "block_table", "cu_seqlens_q", "cu_seqlens_k")
        tensors = (call["q"], call["k"], call["v"], *(call.get(place) for place in places))
        longest = call.get("max_seqlen_q"), call.get("max_seqlen_k")
        given = (*tensors, 0.5, None, 0, *longest, True, torch.bfloat16, None, "auto")
        operator = torch.ops.fmha.attention.default
        told = torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))
        assert set(told.values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            lambda: {"block_table": torch.zeros(BATCH, 3)},
            TypeError,
            "block_table: expected torch.int32, got torch.float32",
        ),
        (lambda: {"block_table": [1]}, TypeError, "block_table: expected a tensor of torch.int32, got list"),
        (
            lambda: {"block_table": int32([1], [1], [1])},
            ValueError,
            "block_table: expected shape [2, pages an entry], got [3, 1]",
        ),
        (lambda: {"block_table": int32([3, 1], [3, 4])}, ValueError, "kv_lens: expected values from 0 to 64, got 96"),
        (
            lambda: {"block_table": int32([3, 1, 9], [3, 4, 0])},
            ValueError,
            "block_table: expected pages from 0 to 8, got 9",
        ),
        (lambda: {"block_table": int32([], [])}, ValueError, "block_table: expected at least 1 page an entry, got 0"),
        (
            lambda: {name: torch.zeros(9, 48, 2, HEAD_DIM).bfloat16() for name in ("k", "v")},
            ValueError,
            "k: expected pages of 16, 32, 64, 128, 256 rows, got 48",
        ),
        (
            lambda: (
                {name: torch.zeros(9, 32, HEAD_DIM).bfloat16() for name in ("k", "v")} | {"sparse": sparse_branch()}
            ),
            ValueError,
            "sparse: is not for K and V in pages, nor for packed queries or keys",
        ),
        (
            lambda: {"cu_seqlens_k": int32(0, 1, 2)},
            ValueError,
            "block_table: is not for packed keys, with cu_seqlens_k",
        ),
        (lambda: {"max_seqlen_k": 5}, ValueError, "max_seqlen_k: is for packed keys, with cu_seqlens_k"),
        (lambda: {"max_seqlen_q": 5}, ValueError, "max_seqlen_q: is for packed queries, with cu_seqlens_q"),
    ],
)
def test_wrong_pages_are_named(changes: Later, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        attention(**pages_apart()[0] | changes())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (lambda: {"max_seqlen_q": None}, TypeError, "max_seqlen_q: expected an int with cu_seqlens_q, got None"),
        (lambda: {"max_seqlen_k": 49}, ValueError, "max_seqlen_k: expected at least 50, the longest, got 49"),
        (lambda: {"max_seqlen_q": 0}, ValueError, "max_seqlen_q: expected at least 1, got 0"),
        (lambda: {"cu_seqlens_q": int32(0)}, ValueError, "cu_seqlens_q: expected at least 2 values, got 1"),
        (
            lambda: {"cu_seqlens_q": int32(0, 3, 2, 4, 10)},
            ValueError,
            "cu_seqlens_q: expected values that grow from 0 to the 10",
        ),
        (
            lambda: {"cu_seqlens_k": int32(0, 40, 60, 110, 119)},
            ValueError,
            "cu_seqlens_k: expected values that grow from 0 to the",
        ),
        (lambda: {"cu_seqlens_k": int32(0, 70, 120)}, ValueError, "cu_seqlens_k: expected shape [5], got [3]"),
        (lambda: {"cu_seqlens_k": torch.arange(5)}, TypeError, "cu_seqlens_k: expected torch.int32, got torch.int64"),
        (lambda: {"kv_lens": int32(1, 1, 1, 1)}, ValueError, "kv_lens: is not for packed keys"),
        (
            lambda: {"q": torch.zeros(2, 5, HEADS, HEAD_DIM).bfloat16()},
            ValueError,
            "q: expected shape [total_q, heads, head_dim]",
        ),
    ],
)
def test_wrong_packed_sequences_are_named(changes: Later, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        attention(**packed_apart()[0] | changes())


@pytest.mark.nvcc
def test_a_bound_above_the_longest_sequence_changes_nothing() -> None:
    packed, _ = packed_apart()
    most = {"max_seqlen_q": 2**31 - 1, "max_seqlen_k": 2**31 - 1}
    planned = plan(**packed | most)
    assert (planned.call.t, planned.call.s_k) == (10, 120)  # no sequence has more than all of them
    tight, loose = (attention(**packed | bounds, causal=True) for bounds in ({}, most))
    for name in RESULTS:
        assert torch.equal(getattr(tight, name), getattr(loose, name)), name


def test_more_row_tiles_than_kernels_count_are_refused() -> None:
    """Of one long sequence among many that are empty: q takes 256 MiB, of which nothing is written."""
    entries = 65535
    for tokens, fits in ((1 << 20, True), ((1 << 20) + 64, False)):
        q, k = (torch.empty(tokens, heads, HEAD_DIM, dtype=torch.bfloat16) for heads in (2, 1))
        ends = torch.full((entries + 1,), tokens, dtype=torch.int32)
        ends[0] = 0
        call: Call = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": tokens, "max_seqlen_k": tokens}
        if fits:
            assert plan(q, k, **call).call.t == tokens
        else:
            said = f"cu_seqlens_q: {entries} entries of up to {tokens} queries are {2 * tokens // 64 * entries} row til"
            with pytest.raises(ValueError, match=said):
                plan(q, k, **call)


def test_a_block_table_with_room_for_more_keys_than_kernels_count_is_refused() -> None:
    q, k = (torch.empty(1, rows, 1, HEAD_DIM, dtype=torch.bfloat16) for rows in (1, 256))
    table = torch.zeros(1, 1 << 23, dtype=torch.int32)
    said = f"block_table: expected room for at most {2**31 - 256} keys, got {2**31}"
    with pytest.raises(ValueError, match=said):
        plan(q, k, window=5, block_table=table)
    assert plan(q, k, window=5, block_table=table[:, :-1]).call.s_k == 2**31 - 256


@pytest.mark.parametrize(
    ("total_q", "longest", "chosen"),
    [
        (32 * 3418, 3418, "sm90_hd128_rows192_dense_paged"),
        (10013, 3100, "sm90_hd128_rows192_dense_paged_lengths"),
        (10021, 3418, "sm90_hd128_dense_paged_lengths"),  # of 192 rows the longest has 143 row tiles, more than CTAs
        (882, 200, "sm90_hd128_rows64_dense_paged_lengths"),  # 220 rows an entry in the mean
    ],
)
def test_which_kernel_packed_queries_take(
    total_q: int, longest: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmha.harness.attention.decision.EMULATED", "sm_90a")
    offsets = torch.arange(33, dtype=torch.int32) * ((total_q - longest) // 31)
    offsets[-1] = total_q
    q = torch.empty(total_q, 8, 128, dtype=torch.bfloat16)
    k = torch.empty(total_q, 1, 128, dtype=torch.bfloat16)
    sizes: Call = {"max_seqlen_q": longest, "max_seqlen_k": longest}
    planned = plan(q, k, k.clone(), cu_seqlens_q=offsets, cu_seqlens_k=offsets, splits=1, **sizes)
    assert planned.variant.name == chosen
