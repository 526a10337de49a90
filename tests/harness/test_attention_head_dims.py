"""fmha.attention at head_dims that no kernel is compiled for: tensor maps as wide as rows are, and zeros behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import BATCH, HEADS, S_K, Call, Later, T, arguments, bf16, int32, loaded, near

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import AttentionResult, Sparse, attention, plan

pytestmark = pytest.mark.torch

MODULE = "fmha.harness.attention"


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


@pytest.fixture(params=["sm_100a", "sm_90a"])
def arch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(f"{MODULE}.decision.EMULATED", request.param)
    return str(request.param)


def sparse_of(head_dim: int) -> Sparse:
    generator = torch.Generator().manual_seed(1)
    k, v = (bf16(generator, BATCH, 50, head_dim) for _ in range(2))
    return Sparse(k, torch.randint(-9, 59, (BATCH, T, 20), generator=generator, dtype=torch.int32), v)


def fused(head_dim: int) -> Call:
    """Slices of a projection, whose rows have others behind them: NaN, where a row of a kernel would still read."""
    both = bf16(torch.Generator().manual_seed(2), BATCH, S_K, 8, head_dim + 8)
    both[..., head_dim:] = torch.nan
    both = both[..., :head_dim]
    return {"q": both[:, :T, :4], "k": both[:, :, 4:6], "v": both[:, :, 6:]}


def paged(head_dim: int) -> Call:
    generator = torch.Generator().manual_seed(3)
    pages = {name: bf16(generator, 7, 32, 2, head_dim) for name in ("k", "v")}
    table = int32([3, 1, 6], [3, 4, 99])
    q = bf16(generator, BATCH, T, HEADS, head_dim)
    return {"q": q, "block_table": table, "kv_lens": int32(96, 50)} | pages


def packed(head_dim: int) -> Call:
    generator = torch.Generator().manual_seed(4)
    q, k, v = bf16(generator, 10, HEADS, head_dim), *(bf16(generator, 120, 2, head_dim) for _ in range(2))
    ends = {"cu_seqlens_q": int32(0, 3, 3, 4, 10), "cu_seqlens_k": int32(0, 40, 60, 110, 120)}
    return {"q": q, "k": k, "v": v, "max_seqlen_q": 6, "max_seqlen_k": 50} | ends


CALLS: dict[str, Any] = {
    "plain": lambda n: arguments(head_dim=n),
    "splits, bf16": lambda n: arguments(head_dim=n) | {"splits": 3, "output_dtype": torch.bfloat16},
    "causal, K = V, sink": lambda n: arguments(head_dim=n) | {"v": None, "causal": True, "sink": torch.ones(HEADS)},
    "window, sparse": lambda n: arguments(head_dim=n) | {"window": 20, "sparse": sparse_of(n)},
    "K = V, sparse": lambda n: arguments(head_dim=n) | {"v": None, "sparse": replace(sparse_of(n), v=None)},
    "fused, un-normalised": lambda n: fused(n) | {"normalise": False},
    "pages": paged,
    "packed, causal": lambda n: packed(n) | {"causal": True},
    "packed, splits": lambda n: packed(n) | {"splits": 2},
}


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("made", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("head_dim", "kernels"),
    [(96, 128), *(pytest.param(*sizes, marks=pytest.mark.nightly) for sizes in ((32, 64), (80, 128), (192, 256)))],
)
def test_every_branch_of_a_head_dim_between(head_dim: int, kernels: int, made: Any, arch: str) -> None:
    call = made(head_dim)
    got = attention(**call)
    planned = plan(**call)
    assert (planned.variant.arch, planned.variant.head_dim, planned.call.width) == (arch, kernels, head_dim)
    wanted = exact.attention(**{key: value for key, value in call.items() if key != "output_dtype"})
    assert got.o.shape == wanted.o.shape
    assert got.o.is_contiguous()
    assert got.findings == ()
    near(got, wanted)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("head_dim", [8, 40, 264, 504])
def test_any_multiple_of_eight_will_do(head_dim: int, arch: str) -> None:
    call = arguments(head_dim=head_dim, t=1)
    near(attention(**call), exact.attention(**call))


@pytest.mark.nvcc
def test_a_call_writes_to_outputs_of_its_own_rows() -> None:
    call = arguments(head_dim=96) | {"causal": True}
    wanted = attention(**call)
    out = AttentionResult(torch.full_like(wanted.o, 7.0), torch.full_like(wanted.statistics, 7.0), True)
    got = attention(**call, out=out)
    assert got.o is out.o
    assert torch.equal(got.o, wanted.o)
    assert torch.equal(got.statistics, wanted.statistics)
    compiled = torch.compile(lambda q: attention(**call | {"q": q}).o, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(call["q"]), wanted.o)
    wide = replace(out, o=torch.zeros(BATCH, T, HEADS, 128))
    with pytest.raises(ValueError, match=re.escape("out.o: expected torch.float32 [2, 5, 4, 96] on cpu, got")):
        attention(**call, out=wide)


@pytest.mark.nvcc
def test_a_head_dim_of_a_kernel_is_not_widened() -> None:
    for head_dim in (64, 128, 256, 512):
        assert plan(**arguments(head_dim=head_dim)).call.width is None


@pytest.mark.parametrize("head_dim", [20, 100, 516, 520, 576])
def test_other_head_dims_are_refused_alike_everywhere(head_dim: int, arch: str) -> None:
    said = f"no kernel for head_dim {head_dim} on {arch} yet, expected a multiple of 8 up to 512"
    made: list[Later] = [lambda: arguments(head_dim=head_dim), lambda: packed(head_dim), lambda: paged(head_dim)]
    for each in made:
        for options in ({}, {"splits": 2}):
            with pytest.raises(NotImplementedError, match="^" + re.escape(said)):
                attention(**each() | options)


def test_a_gpu_that_no_kernel_is_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.decision.EMULATED", "sm_80a")
    with pytest.raises(NotImplementedError, match=r"^no kernel for sm_80a yet, a GPU of compute capability"):
        attention(**arguments())
