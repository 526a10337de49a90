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

    for names in (globals(), module):
        names.update(torch=torch, exact=exact, **{name: getattr(attention, name) for name in NAMES})
    build = attention.build_variants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            attention, "build_variants", lambda root, variants, _, *how: build(root, variants, build_cache, *how)
        )
        yield


def int32(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def bf16(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator).bfloat16()


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
