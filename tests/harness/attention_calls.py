"""What the tests of fmha.attention share: tensors, and the names that need torch, which are loaded late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from fmha.harness.attention import AttentionResult, Sparse

NAMES = ("AttentionResult", "Sparse", "attention", "merge", "plan")
RESULTS = ("o", "row_max", "row_sum", "lse")
BATCH, T, HEADS, S_K, HEAD_DIM = 2, 5, 4, 96, 64
Call = dict[str, Any]
Later = Callable[[], Call]  # a parameter of a test that has tensors


@contextmanager
def loaded(build_cache: Path, module: dict[str, Any]) -> Iterator[None]:
    """Names of torch and of what needs it, in `module` and here: loading it takes seconds, and every worker of a run
    collects these tests. Kernels come from where all tests have them, and not from the checkout's own cache."""
    import torch

    from fmha.harness import attention, exact
    from fmha.harness.attention import decision

    for names in (globals(), module):
        names.update(torch=torch, exact=exact, **{name: getattr(attention, name) for name in NAMES})
    build = decision.build_variants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            decision, "build_variants", lambda root, variants, _, *how: build(root, variants, build_cache, *how)
        )
        yield


def int32(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def bf16(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator).bfloat16()


def arguments(seed: int = 0, t: int = T, s_k: int = S_K, head_dim: int = HEAD_DIM) -> Call:
    generator = torch.Generator().manual_seed(seed)
    keys = (BATCH, s_k, head_dim)
    return {"q": bf16(generator, BATCH, t, HEADS, head_dim), "k": bf16(generator, *keys), "v": bf16(generator, *keys)}


def heads_apart() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slices of a fused projection: 6 query heads and 3 K/V heads of 96 tokens."""
    generator = torch.Generator().manual_seed(2)
    both = bf16(generator, BATCH, S_K, 12, HEAD_DIM)
    return both[:, :T, :6], both[:, :, 6:9], both[:, :, 9:]


def packed_apart() -> tuple[Call, list[Call]]:
    """Four sequences, packed and one by one; the second has no query, and NaN for keys."""
    generator = torch.Generator().manual_seed(4)
    q, k, v = bf16(generator, 10, HEADS, HEAD_DIM), *(bf16(generator, 120, 2, HEAD_DIM) for _ in range(2))
    cu_q, cu_k = int32(0, 3, 3, 4, 10), int32(0, 40, 60, 110, 120)
    k[40:60] = v[40:60] = torch.nan
    ends = zip(cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False)
    alone = [{"q": q[None, a:b], "k": k[None, c:d], "v": v[None, c:d]} for a, b, c, d in ends if a < b]
    longest = {"max_seqlen_q": 6, "max_seqlen_k": 50}
    return {"q": q, "k": k, "v": v, "cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k} | longest, alone


def sparse_branch(seed: int = 1, topk: int = 20, rows: int = 50) -> Sparse:
    generator = torch.Generator().manual_seed(seed)
    k, v = (bf16(generator, BATCH, rows, HEAD_DIM) for _ in range(2))
    indices = torch.randint(-10, rows + 10, (BATCH, T, topk), generator=generator, dtype=torch.int32)
    lens = torch.randint(0, topk + 1, (BATCH, T), generator=generator, dtype=torch.int32)
    return Sparse(k, indices, v, lens)


def near(got: AttentionResult, wanted: AttentionResult, o_error: float = 5e-3, row_error: float = 1e-5) -> None:
    assert ((got.o.double() - wanted.o).norm() / wanted.o.norm()).item() <= o_error
    for name in ("row_max", "row_sum", "lse"):
        torch.testing.assert_close(
            getattr(got, name).double(), getattr(wanted, name), rtol=row_error, atol=row_error, msg=name
        )
