"""What fmha.attention allocates beside its results on a GPU: shared by the calls of a stream of a device, and bounded.

Tensors of the device meta stand for memory: they have an index, and no GPU is needed.
"""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import arguments, loaded, packed_apart

if TYPE_CHECKING:
    import torch

    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch

GIB = 2**30


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As at a process's start, with a driver that has memory from 0x1000 on at GPU 0 and from 0x1001000 on at GPU 1."""
    from fmha.harness.attention import workspace as module

    for name in ("_scratches", "_spare_counts", "_stream_counts"):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False, raising=False)
    monkeypatch.setattr(module.cuda, "zeros", lambda nbytes, index: 0x1000 + index * 0x1000000)
    return module


def test_calls_of_a_stream_of_a_device_share_memory(memory: Any) -> None:
    first, second = (torch.device("meta", index) for index in range(2))
    kept = memory.scratch(0, 512, first, True)
    assert memory.scratch(0, 256, first, True) is kept
    assert memory.scratch(7, 256, first, True) is not kept
    assert memory.scratch(0, 512, second, True) is not kept  # the default stream of each device is number 0
    larger = memory.scratch(0, 1024, first, True)
    assert larger.nbytes == 1024
    assert memory.scratch(0, 512, first, True) is larger


def test_counts_are_of_a_stream_of_a_device(memory: Any) -> None:
    first, second = (torch.device("meta", index) for index in range(2))
    counts = {memory.count(stream, where) for where in (first, second) for stream in (0, 7, 0)}
    assert len(counts) == 4
    assert sum(count >= 0x1001000 for count in counts) == 2


@pytest.mark.parametrize("capturing", [False, True])
def test_what_is_not_kept_is_nobodys_else(memory: Any, capturing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    where = torch.device("meta", 0)
    kept = memory.scratch(0, 512, where, True)
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: capturing)
    own = memory.scratch(0, 512, where, capturing)
    assert own is not kept
    assert memory._scratches == {(0, 0): kept}


@pytest.mark.nvcc
def test_the_operator_leaves_nothing_behind_in_a_pool(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile's graphs run once in a pool of theirs, and must know all that stays there: the outputs and no more.
    A GPU's own way to the kernels, with memory of the CPU."""
    from fmha.harness.attention import operator, plans

    call = arguments() | {"splits": 2}
    planned = plan(**call)
    held: list[Any] = []
    made = memory._made

    def watched(nbytes: int, where: Any) -> Any:
        block = made(nbytes, where)
        held.append(weakref.ref(block))
        return block

    def launched(stream: int, addresses: bytes, o: int, stored: int, scratch: int, drawn: int) -> None:
        gc.collect()
        block = held[-1]()
        assert block is not None  # until it is made
        assert block.data_ptr() == scratch

    monkeypatch.setattr(memory, "_made", watched)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 3, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(planned, "_prepared", launched)
    monkeypatch.setattr(operator, "kept_plan", lambda *given: (planned, None))
    assert isinstance(planned, plans.AttentionPlan)
    torch.ops.fmha.attention(
        *(call[name] for name in "qkv"), *[None] * 10, None, None, None, None, None, True, torch.float32, 2, "auto"
    )
    gc.collect()
    assert len(held) == 1
    assert held[0]() is None
    assert memory._scratches == {}
    planned(*(call[name] for name in "qkv"))  # while an eager call keeps its own
    assert memory._scratches[None, 3] is held[1]()


def test_more_partial_results_than_there_is_memory_are_refused() -> None:
    """208 GiB once: 40 sequences, the longest 1064 queries, 64 heads of 512, in 40 splits."""
    from fmha.harness.attention import workspace as module
    from fmha.harness.kernel_side.launch import Call

    call = Call(
        head_dim=512, batch=40, t=1064, heads=64, s_k=1064, scale=1.0, splits=40, total_q=5000, total_k=5000, kv_heads=1
    )
    nbytes = 4 * sum(call.partial_elements.values())
    assert round(nbytes / GIB) == 209
    said = re.escape(
        "splits: 40 splits of 40 entries of up to 1064 queries with 64 heads have 208.6 GiB of partial results, more "
        "than the"
    )
    with pytest.raises(ValueError, match=r"^" + said):
        module.refuse_too_much(call, nbytes, torch.device("cpu"))


@pytest.mark.nvcc
def test_a_call_with_too_many_splits_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmha.harness.attention import workspace as module

    monkeypatch.setattr(module, "_bytes_of", lambda where: 100_000)
    call = packed_apart()[0]
    attention(**call, splits=2)
    with pytest.raises(
        ValueError, match=r"^splits: 9 splits of 4 entries of up to 6 queries .*; pass fewer splits, or"
    ):
        attention(**call, splits=9)
    with pytest.raises(ValueError, match=r"or pass fewer sequences, of more equal lengths, at once$"):
        attention(**call, splits=9)
    with pytest.raises(ValueError, match=r"or none for a number that fits$"):
        attention(**arguments(), splits=40)


def test_memory_that_is_not_free_is_said_to_be_of_splits(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*size: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        memory.scratch(0, 3 * GIB, torch.device("meta", 0), True)
    assert caught.value.__notes__ == ["3.0 GiB were for partial results of attention's splits; pass fewer"]


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_gpu_is_decides_for_it(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine with two that differ."""
    from fmha.harness.attention import arguments as checks
    from fmha.harness.attention import decision
    from fmha.harness.attention.given import AttentionArguments
    from fmha.harness.kernel_side.choice import splits_of

    decision._multiprocessors.cache_clear()
    monkeypatch.setattr(decision.cuda, "architecture", lambda index: ("sm_90a", "sm_100a")[index])
    monkeypatch.setattr(decision.cuda, "multiprocessors", lambda index: (132, 20)[index])
    shapes = {"q": (1, 1, 4, 64), "k": (1, 65536, 64), "v": (1, 65536, 64)}
    given = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    arguments = checks.check(AttentionArguments(**given))
    variant, call = decision.decide(arguments, None, "auto", torch.device("cuda", index))
    decision._multiprocessors.cache_clear()
    assert variant.arch == ("sm_90a", "sm_100a")[index]
    assert call.splits == splits_of(variant.arch, call) > 20  # by sizes, whatever the number of multiprocessors
