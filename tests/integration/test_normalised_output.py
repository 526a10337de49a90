"""O normalised in the epilogue against un-normalised O divided afterwards: the same but for float32's rounding.

An earlier kernel lost 3% an element there, in a round trip of O through tensor memory. Run as a program, this prints
what is lost now: python -m tests.integration.test_normalised_output
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.attention_calls import loaded

if TYPE_CHECKING:
    import torch

    from fmha.harness.attention import attention

pytestmark = pytest.mark.torch
PATHS = [(head_dim, path) for head_dim in (64, 128, 256, 512) for path in ("tmem", "smem")]
ROUNDINGS = 3  # the reciprocal, which ptxas may approximate to 1 ulp, and the product
EPSILON = 2.0**-23
BF16_EPSILON = 2.0**-8


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def errors(head_dim: int, p_path: str) -> tuple[float, float]:
    """Largest relative difference of an element, of fp32 and of bf16 output, to un-normalised O over its row sum."""
    generator = torch.Generator().manual_seed(head_dim)
    q = torch.randn(1, 5, 16, head_dim, generator=generator).bfloat16()
    k, v = (torch.randn(1, 333, head_dim, generator=generator).bfloat16() for _ in range(2))
    sink = torch.randn(16, generator=generator)
    call = {"q": q, "k": k, "v": v, "sink": sink, "p_path": p_path, "splits": 1}  # parts of splits may be f16
    plain = attention(**call, normalise=False)
    row_sum = plain.row_sum.double()
    wanted = plain.o.double() / (row_sum + (sink.double() - plain.row_max.double()).exp())[..., None]
    differences = []
    for dtype in (torch.float32, torch.bfloat16):
        got = attention(**call, output_dtype=dtype).o.double()
        differences.append(((got - wanted).abs() / wanted.abs()).max().item())
    return differences[0], differences[1]


@pytest.mark.nvcc
@pytest.mark.parametrize(("head_dim", "p_path"), PATHS)
def test_the_epilogue_loses_roundings_only(head_dim: int, p_path: str) -> None:
    fp32, bf16 = errors(head_dim, p_path)
    assert fp32 <= ROUNDINGS * EPSILON
    assert bf16 <= BF16_EPSILON


if __name__ == "__main__":
    import torch

    from fmha.harness.attention import attention

    print("head_dim  P     fp32     bf16")
    for case in PATHS:
        print(f"{case[0]:8}  {case[1]}  {errors(*case)[0]:.1e}  {errors(*case)[1]:.1e}")
