"""fmha.attention: the arguments it refuses, the exact merge, and the kernels behind it on the emulator."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.attention_calls import (
    BATCH,
    HEAD_DIM,
    HEADS,
    RESULTS,
    S_K,
    Call,
    Later,
    T,
    arguments,
    loaded,
    near,
    sparse_branch,
)

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import AttentionResult, attention, merge, plan

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def tall(lowest: float) -> tuple[AttentionResult, AttentionResult]:
    """128 heads whose largest logits are `lowest` times 1 to 2, two keys each; what the kernel makes of them, and what
    they are."""
    q, k = torch.zeros(1, 1, 128, HEAD_DIM), torch.zeros(1, 16, HEAD_DIM)
    q[0, 0, :, 0] = 1.0 + torch.arange(128) / 128
    k[0, 3, 0] = k[0, 9, 0] = lowest
    call = {"q": q.bfloat16(), "k": k.bfloat16(), "scale": 1.0}
    return attention(**call), exact.attention(**call)


def test_logits_up_to_the_documented_limit_are_finite_and_beyond_may_not_be() -> None:
    largest = 2.0**31 / math.log2(math.e)
    got, wanted = tall(2.0**30)
    below = wanted.row_max < largest
    assert 20 < below.sum() < 128
    for name in ("o", "row_max", "row_sum", "lse"):
        assert getattr(got, name)[below].isfinite().all(), name
    assert tall(2.0**31)[0].row_sum.isnan().any()
    small = tall(8192.0)
    torch.testing.assert_close(small[0].row_sum.double(), small[1].row_sum, rtol=16384 * 2.0**-24, atol=0)


@pytest.mark.nvcc
def test_the_kernel_agrees_with_the_definition() -> None:
    call = arguments() | {"normalise": False}
    got, wanted = attention(**call), exact.attention(**call)
    near(got, wanted)
    assert got.o.dtype == got.lse.dtype == torch.float32
    assert (got.o.shape, got.lse.shape) == ((BATCH, T, HEADS, HEAD_DIM), (BATCH, T, HEADS))
    assert got.findings == ()
    assert not got.normalised


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "changes",
    [
        lambda: {"causal": True, "output_dtype": torch.bfloat16},
        lambda: {"window": 9, "scale": 0.3, "splits": 3},
        lambda: {"window": (20, None), "query_offsets": torch.tensor([-3, 60], dtype=torch.int32), "p_path": "smem"},
        lambda: {
            "kv_lens": torch.tensor([0, 50], dtype=torch.int32),
            "sink": torch.tensor([0.5, torch.inf, -torch.inf, 9.0]),
        },
        lambda: {
            "sparse": sparse_branch(),
            "sink": torch.zeros(HEADS),
            "kv_lens": torch.tensor([96, 3], dtype=torch.int32),
        },
        lambda: {"v": None, "sparse": replace(sparse_branch(), v=None, lens=None), "normalise": False},
    ],
    ids=[
        "causal-output_dtype",
        "window-scale-splits",
        "window-query_offsets-p_path",
        "kv_lens-sink",
        "sparse-sink-kv_lens",
        "v-sparse-normalise",
    ],
)
def test_every_argument_reaches_the_kernel(changes: Later) -> None:
    call = arguments() | changes()
    got = attention(**call)
    wanted = exact.attention(**{**call, "output_dtype": None})
    near(got, wanted)
    assert got.o.dtype == call.get("output_dtype", torch.float32)
    assert got.findings == ()
    assert (exact.attention(**arguments()).o - wanted.o).norm() / wanted.o.norm() > 0.02, "the change is no change"


@pytest.mark.nvcc
def test_two_passes_on_the_kernel_are_one_pass() -> None:
    """D5a and D5b with the kernel's own rounding: P in bf16 in both, relative to another maximum in each."""
    sink = torch.tensor([0.0, 1.0, torch.inf, -torch.inf])
    call = arguments() | {"window": 30, "sparse": sparse_branch(), "kv_lens": torch.tensor([96, 0], dtype=torch.int32)}
    one = attention(**call, sink=sink)
    a, b = (attention(**part, normalise=False) for part in (only_dense(call), only_sparse(call)))
    two = merge(a, b, sink)
    torch.testing.assert_close(two.lse, one.lse, rtol=0, atol=2e-6)
    assert torch.nn.functional.cosine_similarity(two.o.flatten(), one.o.flatten(), dim=0) > 0.99999
    near(two, exact.attention(**call, sink=sink))


@pytest.mark.nvcc
@pytest.mark.slow
def test_the_examples_of_the_documentation_run_and_agree(repository: Path) -> None:
    text = (repository / "docs/use/attention.md").read_text()
    first, fewer, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: Call = {}
    torch.manual_seed(0)
    exec(first, names)
    one = names["result"]
    exec(fewer, names)
    exec(second, names)
    two = names["result"]
    assert ((one.o - two.o).norm() / one.o.norm()).item() < 5e-3
    torch.testing.assert_close(one.lse, two.lse, rtol=0, atol=1e-5)
    short, bare, near = (names[name] for name in ("short", "bare", "near"))
    assert torch.equal(short.lse, near.lse)
    assert torch.equal(short.o, bare.o)
    assert short.statistics.shape == (1, *near.lse.shape)
    assert bare.statistics is None
    assert not hasattr(short, "row_max")
    assert not hasattr(bare, "lse")


@pytest.mark.nvcc
def test_what_no_kernel_does_is_not_implemented() -> None:
    with pytest.raises(
        NotImplementedError, match="no kernel for head_dim 100 on sm_100a yet, expected a multiple of 8 up to 512"
    ):
        attention(**arguments(head_dim=100))


@pytest.mark.nvcc
def test_a_plan_and_given_outputs_give_the_same_bits() -> None:
    call = arguments() | {"causal": True}
    wanted = attention(**call)
    planned = plan(**call)
    assert (planned.call.splits, planned.call.window_right) == (1, 0)
    out = AttentionResult(torch.full_like(wanted.o, 7.0), torch.full_like(wanted.statistics, 7.0), True)
    for got in (planned(call["q"], call["k"], call["v"]), planned(call["q"], call["k"], call["v"], out=out)):
        assert all(torch.equal(getattr(got, name), getattr(wanted, name)) for name in RESULTS)
    assert got.o is out.o
    with pytest.raises(ValueError, match=re.escape("v: planned for torch.bfloat16 [2, 96, 64] on cpu, got none;")):
        planned(call["q"], call["k"])


@pytest.mark.nvcc
def test_a_compiled_and_an_exported_call_are_one_operator() -> None:
    call = arguments() | {"sparse": sparse_branch(), "sink": torch.zeros(HEADS)}

    def doubled(q: torch.Tensor) -> torch.Tensor:
        return attention(**call | {"q": q * 1}).o * 2

    class Doubled(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return doubled(q)

    wanted = attention(**call).o * 2
    assert torch.equal(torch.compile(doubled, fullgraph=True, backend="aot_eager")(call["q"]), wanted)
    exported = torch.export.export(Doubled(), (call["q"],))
    assert torch.ops.fmha.attention.default in [node.target for node in exported.graph.nodes]
    assert torch.equal(exported.module()(call["q"]), wanted)


@pytest.mark.nvcc
def test_the_operator_does_what_it_says_of_itself() -> None:
    call = arguments()
    given = (
        call["q"],
        call["k"],
        call["v"],
        *[None] * 10,
        0.5,
        None,
        0,
        None,
        None,
        True,
        torch.bfloat16,
        None,
        "auto",
    )
    told = torch.library.opcheck(torch.ops.fmha.attention.default, given, test_utils=("test_schema", "test_faketensor"))
    assert set(told.values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda out: out.o, TypeError, "out: expected an AttentionResult, got Tensor"),
        (lambda out: replace(out, normalised=False), ValueError, "out: expected a result with normalised=True"),
        (
            lambda out: replace(out, o=out.o.bfloat16()),
            ValueError,
            "out.o: expected torch.float32 [2, 5, 4, 64] on cpu",
        ),
        (
            lambda out: replace(out, statistics=out.statistics[:2]),
            ValueError,
            "out.statistics: expected torch.float32 [3, 2, 5, 4] on cpu",
        ),
        (
            lambda out: replace(out, statistics=out.statistics.mT.contiguous().mT),
            ValueError,
            "got torch.float32 [3, 2, 5, 4] on cpu in strides [40, 20, 1, 5]",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_named(change: Any, error: type[Exception], message: str) -> None:
    out = AttentionResult(torch.zeros(BATCH, T, HEADS, HEAD_DIM), torch.zeros(3, BATCH, T, HEADS), True)
    with pytest.raises(error, match=re.escape(message)):
        attention(**arguments(), out=change(out))


WRONG: list[tuple[Later, type[Exception], str]] = [
    (lambda: {"q": [1.0]}, TypeError, "q: expected a tensor of torch.bfloat16, got list"),
    (lambda: {"k": None}, TypeError, "k: expected a tensor of torch.bfloat16, got NoneType"),
    (lambda: {"q": torch.zeros(BATCH, T, HEADS, HEAD_DIM)}, TypeError, "q: expected torch.bfloat16, got torch.float32"),
    (
        lambda: {"q": torch.zeros(BATCH, T, HEAD_DIM).bfloat16()},
        ValueError,
        "q: expected shape [batch, t, heads, head_dim], got [2, 5, 64]",
    ),
    (
        lambda: {"q": torch.zeros(BATCH, 0, HEADS, HEAD_DIM).bfloat16()},
        ValueError,
        "q: t must be at least 1, shape is [2, 0, 4, 64]",
    ),
    (
        lambda: {"k": torch.zeros(BATCH, S_K, 32).bfloat16()},
        ValueError,
        "k: expected shape [2, s_k, 64], got [2, 96, 32]",
    ),
    (
        lambda: {"v": torch.zeros(BATCH, 95, HEAD_DIM).bfloat16()},
        ValueError,
        "v: expected shape [2, 96, 64], got [2, 95, 64]",
    ),
    (
        lambda: {"k": torch.zeros(BATCH, HEAD_DIM, S_K).bfloat16().transpose(1, 2)},
        ValueError,
        "k: expected the elements of a row side by side, got strides (6144, 1, 96); call .contiguous()",
    ),
    (
        lambda: {"v": torch.zeros(BATCH, S_K, HEAD_DIM + 4).bfloat16()[..., :HEAD_DIM]},
        ValueError,
        "v: expected strides of multiples of 8 elements, got (6528, 68, 1); call .contiguous()",
    ),
    (
        lambda: {"k": torch.zeros(BATCH, S_K, 3, HEAD_DIM).bfloat16()},
        ValueError,
        "k: expected K/V heads that divide the 4 heads of q, got 3",
    ),
    (
        lambda: {"k": torch.zeros(BATCH, S_K, 2, HEAD_DIM).bfloat16()},
        ValueError,
        "v: expected shape [2, 96, 2, 64], got [2, 96, 64]",
    ),
    (
        lambda: {"k": torch.zeros(BATCH, S_K, 2, HEAD_DIM).bfloat16(), "v": None, "sparse": sparse_branch()},
        ValueError,
        "sparse: is for one K/V head, k has 2; fold them into the batch",
    ),
    (
        lambda: {"q": torch.zeros(BATCH, T, 2 * HEADS, HEAD_DIM).bfloat16()[:, :, :HEADS], "sparse": sparse_branch()},
        ValueError,
        "q: expected a contiguous tensor beside a sparse branch, got strides (2560, 512, 64, 1)",
    ),
    (lambda: {"kv_lens": torch.zeros(BATCH)}, TypeError, "kv_lens: expected torch.int32, got torch.float32"),
    (
        lambda: {"kv_lens": torch.tensor([4, 97], dtype=torch.int32)},
        ValueError,
        "kv_lens: expected values from 0 to 96, got 97",
    ),
    (
        lambda: {"query_offsets": torch.zeros(3, dtype=torch.int32)},
        ValueError,
        "query_offsets: expected shape [2], got [3]",
    ),
    (lambda: {"sink": torch.zeros(3)}, ValueError, "sink: expected shape [4], got [3]"),
    (lambda: {"scale": 0.0}, ValueError, "scale: expected a positive finite number, got 0.0"),
    (lambda: {"scale": 1e60}, ValueError, "scale: expected a positive finite number, got 1e+60"),
    (lambda: {"window": 0}, ValueError, "window: expected at least 1 key, the query's own, got 0"),
    (lambda: {"window": (3, -1)}, ValueError, "window: expected counts of keys up to 2147483647 or None, got (3, -1)"),
    (
        lambda: {"window": (3, 1), "causal": True},
        ValueError,
        "window: causal attention sees no key after the query's own",
    ),
    (
        lambda: {"window": 2**33},
        ValueError,
        "window: expected at most 2147483647 keys, got 8589934592; None is no limit",
    ),
    (lambda: {"window": (2**31, None)}, ValueError, "window: expected counts of keys up to 2147483647 or None, got"),
    (lambda: {"window": (None, 2**31)}, ValueError, "window: expected counts of keys up to 2147483647 or None, got"),
    (lambda: {"splits": 2**33}, ValueError, "splits: expected 1 to 65535, got 8589934592"),
    (lambda: {"output_dtype": torch.float16}, TypeError, "output_dtype: expected torch.float32 or torch.bfloat16, got"),
    (
        lambda: {"output_dtype": torch.bfloat16, "normalise": False},
        ValueError,
        "output_dtype: un-normalised output is torch.float32 only",
    ),
    (lambda: {"splits": 0}, ValueError, "splits: expected 1 to 65535, got 0"),
    (lambda: {"device": "cuda"}, ValueError, "device: expected 'emulator', where the tensors run, got 'cuda'"),
    (lambda: {"sparse": 3}, TypeError, "sparse: expected fmha.Sparse, got int"),
    (lambda: {"sparse": replace(sparse_branch(), v=None)}, ValueError, "sparse.v: is absent while v is given"),
    (
        lambda: {"sparse": replace(sparse_branch(), indices=torch.zeros(BATCH, T, 8, dtype=torch.int64))},
        TypeError,
        "sparse.indices: expected torch.int32, got torch.int64",
    ),
    (
        lambda: {"sparse": replace(sparse_branch(), lens=torch.full((BATCH, T), 21, dtype=torch.int32))},
        ValueError,
        "sparse.lens: expected values from 0 to 20, got 21",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG, ids=[message for _, _, message in WRONG])
def test_wrong_arguments_are_named(changes: Later, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        attention(**arguments() | changes())


def test_a_misaligned_tensor_is_refused() -> None:
    call = arguments()
    shifted = torch.empty(call["k"].numel() + 1, dtype=torch.bfloat16)[1:].view(call["k"].shape)
    with pytest.raises(ValueError, match="k: expected memory aligned to 16 bytes"):
        attention(**call | {"k": shifted})


def test_reference_and_kernel_take_the_same_arguments() -> None:
    import inspect

    ours, theirs = (inspect.signature(function).parameters for function in (attention, exact.attention))
    assert [name for name in ours if name != "out"] == list(theirs)
    for name, parameter in theirs.items():
        assert parameter.kind == ours[name].kind
        if name != "output_dtype":
            assert parameter.default == ours[name].default


def only_dense(call: Call) -> Call:
    return {name: value for name, value in call.items() if name not in ("sparse", "sink")}


def only_sparse(call: Call) -> Call:
    none = torch.empty(BATCH, 0, HEAD_DIM, dtype=torch.bfloat16)
    return only_dense(call) | {"k": none, "v": none, "kv_lens": None, "sparse": call["sparse"]}


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(0, S_K), min_size=BATCH, max_size=BATCH),
    st.sampled_from([None, 1, 7, (3, 2), (None, 0)]),
    st.integers(0, 20),
)
def test_merging_two_passes_is_one_pass(seed: int, lens: list[int], window: Any, topk_len: int) -> None:
    """D5a and D5b, with empty sides: exact but for float64's rounding."""
    generator = torch.Generator().manual_seed(seed)
    sink = torch.randn(HEADS, generator=generator) * 3
    sink[seed % HEADS] = (float("inf"), float("-inf"))[seed % 2]
    sparse = replace(sparse_branch(seed), lens=torch.full((BATCH, T), topk_len, dtype=torch.int32))
    call = arguments(seed) | {"kv_lens": torch.tensor(lens, dtype=torch.int32), "window": window, "sparse": sparse}
    whole = exact.attention(**call, sink=sink)
    a, b = (exact.attention(**part, normalise=False) for part in (only_dense(call), only_sparse(call)))
    for merged in (merge(a, b, sink), merge(b, a, sink)):
        for name in ("o", "row_max", "row_sum", "lse"):
            got, wanted = getattr(merged, name), getattr(whole, name)
            assert not got.isnan().any(), name
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12, msg=name)


def test_a_merge_can_stay_un_normalised_and_go_on() -> None:
    call = arguments() | {"sparse": sparse_branch()}
    a, b = (exact.attention(**part, normalise=False) for part in (only_dense(call), only_sparse(call)))
    whole = exact.attention(**call, normalise=False)
    torch.testing.assert_close(merge(a, b, normalise=False).o, whole.o, rtol=1e-12, atol=1e-12)


def test_merge_refuses_what_it_cannot_merge() -> None:
    a = exact.attention(**arguments(), normalise=False)
    with pytest.raises(ValueError, match="b: expected an un-normalised result"):
        merge(a, exact.attention(**arguments()))
    with pytest.raises(ValueError, match=r"b: expected shape \[2, 5, 4, 64\], that of a, got \[2, 3, 4, 64\]"):
        merge(a, exact.attention(**arguments(t=3), normalise=False))
    with pytest.raises(ValueError, match=r"sink: expected shape \[4\], got \[1\]"):
        merge(a, a, torch.zeros(1))
