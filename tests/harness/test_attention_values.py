"""What lengths and tables of fmha.attention say: checked on a CPU, and on a GPU where somebody asks for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import BATCH, HEAD_DIM, HEADS, T, arguments, bf16, int32, loaded, packed_apart

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def paged(kv_lens: Any, table: Any, **more: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    pages = {name: bf16(generator, 4, 32, 2, HEAD_DIM) for name in ("k", "v")}
    q = bf16(generator, BATCH, T, HEADS, HEAD_DIM)
    return {"q": q, "block_table": int32(*table), "kv_lens": int32(*kv_lens)} | pages | more


@pytest.mark.nvcc
def test_a_plan_looks_at_the_values_of_each_call() -> None:
    call = arguments() | {"kv_lens": int32(96, 50)}
    planned = plan(**call)
    planned(**call)
    for wrong in (97, -1):
        with pytest.raises(ValueError, match=f"^kv_lens: expected values from 0 to 96, got {wrong}$"):
            planned(**call | {"kv_lens": int32(96, wrong)})
    call, _ = packed_apart()
    longest = {name: call.pop(name) for name in ("max_seqlen_q", "max_seqlen_k")}
    planned = plan(**call, **longest)
    with pytest.raises(
        ValueError, match=r"^cu_seqlens_k: expected values that grow from 0 to the 120 rows, got \[0, 4"
    ):
        planned(**call | {"cu_seqlens_k": int32(0, 40, 30, 110, 120)})
    with pytest.raises(ValueError, match=r"^max_seqlen_k: expected at least 51, the longest, got 50"):
        planned(**call | {"cu_seqlens_k": int32(0, 51, 60, 110, 120)})
    call = paged([64, 20], [[0, 1], [3, 2]])
    planned = plan(**call)
    with pytest.raises(ValueError, match=r"^block_table: expected pages from 0 to 3, got 4"):
        planned(**call | {"block_table": int32([0, 4], [3, 9])})


@pytest.mark.nvcc
def test_pages_that_no_query_sees_may_be_none() -> None:
    """Behind kv_len, and of an entry without queries."""
    call = paged([40, 64], [[0, 1], [99, -7]])
    q = bf16(torch.Generator().manual_seed(5), T, HEADS, HEAD_DIM)
    call |= {"q": q, "cu_seqlens_q": int32(0, T, T), "max_seqlen_q": T}
    assert attention(**call).o.isfinite().all()
    with pytest.raises(ValueError, match=r"^block_table: expected pages from 0 to 3, got 99"):
        exact.attention(**call | {"cu_seqlens_q": int32(0, 2, T)})


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.nvcc
def test_a_launch_on_a_gpu_looks_where_asked_to(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's own way to the kernels, with memory of the CPU."""
    from fmha.harness.attention import values

    call = arguments() | {"kv_lens": int32(96, 50)}
    planned = plan(**call, splits=1)
    launched: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 3, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(planned, "_prepared", lambda *words: launched.append(words))
    monkeypatch.setattr(planned, "_draws", False)
    monkeypatch.setattr(values, "ON_GPUS", asked)
    planned(**call)
    wrong = call | {"kv_lens": int32(96, 97)}
    if asked:
        with pytest.raises(ValueError, match=r"^kv_lens: expected values from 0 to 96, got 97"):
            planned(**wrong)
    else:
        planned(**wrong)
    assert len(launched) == (1 if asked else 2)


@pytest.mark.parametrize(("said", "asked"), [(None, False), ("0", False), ("", False), ("1", True)])
def test_the_environment_asks_for_it(said: str | None, asked: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FMHA_CHECK_VALUES"}
    if said is not None:
        environment["FMHA_CHECK_VALUES"] = said
    code = "from fmha.harness.attention import values; print(values.ON_GPUS)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(asked)


def test_each_value_is_named() -> None:
    from fmha.harness.attention.values import check_values
    from fmha.harness.kernel_side.launch import Call

    call = Call(head_dim=64, batch=2, t=3, heads=1, s_k=9, topk=4, s_sparse=5, scale=1.0)
    check_values({"kv_lens": int32(0, 9), "sparse_lens": int32([0, 4, 1], [2, 3, 4])}, call)
    with pytest.raises(ValueError, match=re.escape("sparse.lens: expected values from 0 to 4, got 5")):
        check_values({"sparse_lens": int32([0, 4, 5], [2, 3, 4])}, call)
    packed = Call(head_dim=64, batch=2, t=3, heads=1, s_k=9, scale=1.0, total_q=5)
    check_values({"cu_seqlens_q": int32(0, 3, 5)}, packed)
    for ends in ([0, 3, 4], [1, 3, 5]):
        with pytest.raises(ValueError, match=r"^cu_seqlens_q: expected values that grow from 0 to the 5 rows, got"):
            check_values({"cu_seqlens_q": int32(*ends)}, packed)
    with pytest.raises(ValueError, match=r"^max_seqlen_q: expected at least 4, the longest, got 3"):
        check_values({"cu_seqlens_q": int32(0, 4, 5)}, packed)
