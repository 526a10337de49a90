"""`statistics` of fmha.attention: what a call stores beside o, and that it neither writes nor makes anything else."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fmha.harness.kernel_side import params
from tests.harness.attention_calls import (
    BATCH,
    HEADS,
    Call,
    Later,
    T,
    arguments,
    bf16,
    heads_apart,
    loaded,
    near,
    packed_apart,
)

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import AttentionResult, attention, merge, plan

pytestmark = pytest.mark.torch

MODULE = "fmha.harness.attention"
STORED = {"all": ("row_max", "row_sum", "lse"), "lse": ("lse",), "none": ()}


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def by_token() -> Call:
    return dict(zip("qkv", heads_apart(), strict=True))


CALLS: dict[str, Later] = {
    "causal": lambda: arguments() | {"causal": True, "splits": 1, "output_dtype": torch.bfloat16},
    "window, splits": lambda: arguments() | {"window": 60, "splits": 2, "sink": torch.ones(HEADS)},
    "by token": lambda: by_token() | {"causal": True, "splits": 1},
    "by token, splits": lambda: by_token() | {"splits": 2},
    "packed": lambda: packed_apart()[0] | {"causal": True, "splits": 1},
    "packed, splits": lambda: packed_apart()[0] | {"splits": 2},
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, set[str]]]:
    """Of each launch its call, and which statistics it has addresses of; of others the kernels get null."""
    from fmha.harness.attention import plans as module

    seen: list[tuple[Any, set[str]]] = []
    launch = module.launch_attention

    def watched(device: Any, loaded: Any, variant: Any, call: Any, addresses: Any) -> Any:
        seen.append((call, {name for name in STORED["all"] if addresses.get(name)}))
        return launch(device, loaded, variant, call, addresses)

    monkeypatch.setattr(module, "launch_attention", watched)
    return seen


@pytest.mark.nvcc
@pytest.mark.parametrize("made", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
def test_a_call_stores_what_was_asked_for_and_the_bits_are_the_same(
    arch: str, made: Later, launched: list[tuple[Any, set[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.decision.EMULATED", arch)
    call = made()
    wanted = attention(**call)
    near(wanted, exact.attention(**call | {"output_dtype": None}))
    for statistics, stored in STORED.items():
        got = attention(**call, statistics=statistics)
        planned, held = launched[-1]
        assert (held, planned.combines) == (set(stored), call["splits"] > 1)
        assert got.findings == ()
        assert torch.equal(got.o, wanted.o)
        if not stored:
            assert got.statistics is None
            continue
        assert got.statistics.shape == (len(stored), *wanted.lse.shape)
        for name in stored:
            assert torch.equal(getattr(got, name), getattr(wanted, name)), name


def small(**options: Any) -> Call:
    generator = torch.Generator().manual_seed(5)
    return {name: bf16(generator, 1, 16, *rest) for name, rest in (("q", (1, 64)), ("k", (64,)))} | options


@pytest.mark.nvcc
def test_a_statistic_that_is_not_stored_says_what_to_pass() -> None:
    for whose in (attention, exact.attention):
        for statistics, stored in STORED.items():
            result = whose(**small(statistics=statistics))
            for name in STORED["all"]:
                assert hasattr(result, name) == (name in stored)
        assert whose(**small(statistics="lse")).lse.shape == (1, 16, 1)
    every, none = 'pass statistics="all"', 'pass statistics="lse" or "all"'
    for fewer, name, said in (
        ("lse", "row_max", every),
        ("lse", "row_sum", every),
        ("none", "row_max", every),
        ("none", "row_sum", every),
        ("none", "lse", none),
    ):
        result = exact.attention(**small(statistics=fewer))
        with pytest.raises(AttributeError, match=f"^{name}: is not stored; {said}$"):
            getattr(result, name)


@pytest.mark.nvcc
@pytest.mark.parametrize(("statistics", "tensors"), [("all", 2), ("lse", 2), ("none", 1)])
def test_a_call_makes_no_tensor_for_what_it_does_not_store(statistics: Any, tensors: int) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    from fmha.harness.attention.operator import _run_operator

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty.default):
                shapes.append(list(args[0] if func is torch.ops.aten.empty_strided.default else args[1]))
            return func(*args, **kwargs or {})

    call = small(statistics=statistics)
    operands = (call["q"], call["k"], *[None] * 11)
    options = (None, None, None, None, None, True, torch.float32, None, "auto", statistics)
    planned = plan(**call)
    for work in (
        lambda: planned(call["q"], call["k"]),
        lambda: _run_operator(*operands, *options),  # a mode sees the operator, and not into it
    ):
        shapes: list[list[int]] = []
        with Made():
            work()
        assert shapes.count([1, 16, 1, 64]) == 1
        assert len(shapes) == tensors


@pytest.mark.nvcc
def test_a_plan_knows_its_statistics_and_takes_outputs_of_the_same() -> None:
    call = arguments()
    wanted = attention(**call)
    results = {name: attention(**call, statistics=name) for name in STORED}
    for (name, made), (other, out) in itertools.product(results.items(), results.items()):
        planned = plan(**call, statistics=name)
        assert planned.statistics == name
        if name != other:
            said = f"^out: expected a result with statistics={name!r}, got {other!r}$"
            with pytest.raises(ValueError, match=said):
                planned(call["q"], call["k"], call["v"], out=out)
            with pytest.raises(ValueError, match=said):
                attention(**call, statistics=name, out=out)
            continue
        poisoned = replace(made, o=torch.full_like(made.o, 7.0))
        if made.statistics is not None:
            poisoned.statistics = torch.full_like(made.statistics, 7.0)
        got = planned(call["q"], call["k"], call["v"], out=poisoned)
        assert (got.o is poisoned.o, got.statistics is poisoned.statistics) == (True, True)
        for each in ("o", *STORED[name]):
            assert torch.equal(getattr(got, each), getattr(wanted, each)), each


def test_outputs_beyond_what_is_stored_are_named() -> None:
    call, none = arguments(), torch.zeros(0, BATCH, T, HEADS)
    out = AttentionResult(torch.zeros(call["q"].shape), none, True)
    with pytest.raises(ValueError, match=re.escape("out.statistics: expected none, got torch.float32 [0, 2, 5, 4]")):
        attention(**call, statistics="none", out=out)
    with pytest.raises(ValueError, match=re.escape("out.statistics: expected torch.float32 [1, 2, 5, 4] on cpu, got")):
        attention(**call, statistics="lse", out=out)


@pytest.mark.nvcc
@pytest.mark.parametrize("statistics", STORED)
def test_a_compiled_and_an_exported_call_return_what_is_stored(statistics: Any) -> None:
    call = arguments() | {"causal": True}
    wanted = attention(**call)

    def called(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        result = attention(**call | {"q": q}, statistics=statistics)
        return result.o, result.statistics

    class Called(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return called(q)

    exported = torch.export.export(Called(), (call["q"],))
    for work in (torch.compile(called, fullgraph=True, backend="aot_eager"), exported.module()):
        o, held = work(call["q"])
        assert torch.equal(o, wanted.o)
        if statistics == "none":
            assert held is None
        else:
            assert torch.equal(held, wanted.statistics[-len(STORED[statistics]) :])
    (node,) = (node for node in exported.graph.nodes if node.target is torch.ops.fmha.attention.default)
    assert [x is None for x in node.meta["val"]] == [False, statistics == "none"]
    operands = (call["q"], call["k"], call["v"], *[None] * 10)
    options = (None, None, 0, None, None, True, torch.float32, None, "auto", statistics)
    operator = torch.ops.fmha.attention.default
    told = torch.library.opcheck(operator, (*operands, *options), test_utils=("test_schema", "test_faketensor"))
    assert set(told.values()) == {"SUCCESS"}


@pytest.mark.nvcc
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")  # what it runs without, for the error
@pytest.mark.parametrize("statistics", STORED)
def test_a_compiled_call_writes_to_outputs_of_the_same_statistics(statistics: Any) -> None:
    call = arguments()
    results = {name: attention(**call, statistics=name) for name in STORED}

    def called(q: torch.Tensor, out: AttentionResult) -> torch.Tensor:
        return attention(**call | {"q": q}, statistics=statistics, out=out).o

    torch._dynamo.reset()  # which compiles no function again that has raised an error
    wanted = attention(**call)
    out = results.pop(statistics)
    for tensor in (out.o, out.statistics):
        if tensor is not None:
            tensor.fill_(7.0)
    torch.compile(called, fullgraph=True, backend="aot_eager")(call["q"], out)
    for name in ("o", *STORED[statistics]):
        assert torch.equal(getattr(out, name), getattr(wanted, name)), name
    for other, out in results.items():
        said = f"^out: expected a result with statistics={statistics!r}, got {other!r}$"
        with pytest.raises(ValueError, match=said):
            torch.compile(called, backend="aot_eager")(call["q"], out)


@pytest.mark.parametrize("statistics", STORED)
def test_a_launch_on_a_gpu_sets_the_pointers_of_what_is_stored(
    statistics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's own way to the kernels, with memory of the CPU: pointers that no launch sets are null, as prepared."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 3, raising=False)
    monkeypatch.setattr(f"{MODULE}.workspace.scratch", lambda stream, nbytes, where, keeps: torch.empty(0))
    call = arguments() | {"splits": 2}
    planned = plan(**call, statistics=statistics)
    given: list[Any] = []
    o, stored = planned._new_o(), planned._new_statistics()
    planned._launch(lambda *words: given.extend(words), bytes(8 * 13), o, stored, True)
    stream, addresses, *more = given
    at = *struct.unpack("<13Q", addresses), *more
    offsets = {offset: name for name, offset, _ in params.LAYOUT}
    maps, pointers = planned._fields()
    assert [offsets[offset] for offset, _, _ in maps] == list(params.MAPS)
    assert [offsets[offset] for offset, _, _ in pointers] == [
        name for name in params.POINTERS if name not in STORED["all"] or name in STORED[statistics]
    ]
    set_to = {offsets[offset]: at[source] and at[source] + beyond for offset, source, beyond in pointers}
    assert (stream, set_to["o"]) == (3, o.data_ptr())
    for place, name in enumerate(STORED[statistics]):
        assert set_to[name] == stored[place].data_ptr(), name


def test_a_kept_plan_is_for_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu(torch.Tensor):
        is_cuda = property(lambda self: True)

    class Planned:
        def __init__(self, statistics: str) -> None:
            made.append(statistics)
            self.statistics = statistics

        def run(self, *given: Any) -> str:
            return self.statistics

    from fmha.harness.attention.given import given

    made: list[str] = []
    monkeypatch.setattr(f"{MODULE}.plans._plans", {})
    monkeypatch.setattr(f"{MODULE}.plans.new_plan", lambda *of: Planned(given(*of).statistics))
    call = arguments()
    call["q"] = call["q"].as_subclass(OnGpu)
    for _ in range(2):
        assert [attention(**call, statistics=name) for name in STORED] == list(STORED)
        assert attention(**call) == "all"
    assert made == list(STORED)


UN_NORMALISED = "statistics: un-normalised output is relative to row_max; expected 'all', got "


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"statistics": "max"}, "statistics: expected 'all', 'lse', 'none', got 'max'"),
        ({"statistics": ["lse"]}, "statistics: expected 'all', 'lse', 'none', got ['lse']"),
        ({"statistics": None}, "statistics: expected 'all', 'lse', 'none', got None"),
        ({"statistics": "lse", "normalise": False}, UN_NORMALISED + "'lse'"),
        ({"statistics": "none", "normalise": False}, UN_NORMALISED + "'none'"),
    ],
)
def test_statistics_that_cannot_be_are_refused(changes: Call, said: str) -> None:
    call = arguments()
    compiled = torch.compile(lambda q: attention(**call | {"q": q} | changes).o, backend="aot_eager")
    for work in (lambda: attention(**call, **changes), lambda: exact.attention(**call, **changes)):
        with pytest.raises(ValueError, match=re.escape(said)):
            work()
    with pytest.raises(ValueError, match=re.escape(said)):
        compiled(call["q"])


def test_merge_needs_all_statistics() -> None:
    a = exact.attention(**arguments(), normalise=False)
    for name, statistics in (("lse", a.statistics[2:]), ("none", None)):
        fewer = replace(a, statistics=statistics)
        for which, pair in (("a", (fewer, a)), ("b", (a, fewer))):
            said = f"{which}: expected a result with row_max and row_sum, statistics='all', got {name!r}"
            with pytest.raises(ValueError, match=re.escape(said)):
                merge(*pair)
