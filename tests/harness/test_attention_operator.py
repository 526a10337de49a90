"""fmha.attention where no launch can be seen, or none is due: gradients, modes, tensors without memory, graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import (
    BATCH,
    HEADS,
    Call,
    T,
    arguments,
    loaded,
    sparse_branch,
)

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch

LOST = "{}: requires a gradient, which would be lost: no kernel has a backward pass yet; call under torch.no_grad(), or"


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def operands(**call: Any) -> tuple[Any, ...]:
    """What the operator is given for q, k and v."""
    options = (None, None, None, None, None, True, torch.float32, None, "auto", "all")
    return (call["q"], call["k"], call["v"], None, None, call.get("sink"), *[None] * 7, *options)


def through_plan(**call: Any) -> Any:
    with torch.no_grad():
        planned = plan(**call)
    names = ("q", "k", "v", "sparse", "sink")
    return planned(**{name: call[name] for name in names if name in call})


WAYS: dict[str, Callable[..., Any]] = {
    "attention": lambda **call: attention(**call),
    "plan": through_plan,
    "exact": lambda **call: exact.attention(**call),
}


def needing(name: str) -> Call:
    """A call of which one tensor needs a gradient."""
    call = arguments() | {"sink": torch.zeros(HEADS), "sparse": sparse_branch()}
    if name.startswith("sparse."):
        part = name.removeprefix("sparse.")
        return call | {"sparse": replace(call["sparse"], **{part: getattr(call["sparse"], part).requires_grad_()})}
    return call | {name: call[name].requires_grad_()}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["q", "k", "v", "sink", "sparse.k", "sparse.v"])
def test_a_gradient_that_would_be_lost_is_an_error(name: str) -> None:
    for way in WAYS.values():
        with pytest.raises(NotImplementedError, match=r"^" + re.escape(LOST.format(name))):
            way(**needing(name))


@pytest.mark.nvcc
def test_whoever_says_so_goes_on_without_a_gradient() -> None:
    call = arguments()
    wanted = attention(**call)
    leaf = call | {"q": call["q"].clone().requires_grad_()}
    for guard in (torch.no_grad, torch.inference_mode):
        with guard():
            assert torch.equal(attention(**leaf).o, wanted.o)
    assert torch.equal(attention(**leaf | {"q": leaf["q"].detach()}).o, wanted.o)


@pytest.mark.nvcc
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")  # what it runs without, for the error
def test_graphs_lose_no_gradient_either() -> None:
    call = arguments()
    leaf = call["q"].clone().requires_grad_()
    said = "^" + re.escape(LOST.format("q"))

    class Called(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return attention(**call | {"q": q}).o

    def without(q: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return attention(**call | {"q": q}).o

    torch._dynamo.reset()
    with pytest.raises(NotImplementedError, match=said):
        torch.compile(Called(), backend="aot_eager")(leaf)
    with pytest.raises(NotImplementedError, match=said):
        torch.export.export(Called(), (leaf,))
    exported = torch.export.export(Called(), (call["q"],)).module()
    with pytest.raises(NotImplementedError, match=said):
        exported(leaf)
    with pytest.raises(NotImplementedError, match=said):
        torch.ops.fmha.attention(*operands(**call | {"q": leaf}))
    wanted = attention(**call).o
    assert torch.equal(torch.compile(without, fullgraph=True, backend="aot_eager")(leaf), wanted)
    with torch.no_grad():
        assert torch.equal(exported(leaf), wanted)


def test_transforms_lose_no_derivative_either() -> None:
    from torch.autograd import forward_ad

    call = arguments()

    def called(q: torch.Tensor) -> torch.Tensor:
        return attention(**call | {"q": q}).o

    with pytest.raises(NotImplementedError, match=r"^" + re.escape(LOST.format("q"))):
        torch.func.grad(lambda q: called(q).sum())(call["q"])
    said = "^q: has a tangent, which would be lost: no kernel has a derivative yet"
    with pytest.raises(NotImplementedError, match=said):
        torch.func.jvp(called, (call["q"],), (call["q"],))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=said):
        called(forward_ad.make_dual(call["q"], call["q"]))


@pytest.mark.parametrize("where", ["cpu", "cuda:1"])
@pytest.mark.parametrize("statistics", ["all", "lse", "none"])
def test_tensors_without_memory_have_results_without_memory(where: str, statistics: Any) -> None:
    """Nothing is launched: this machine need not have such a device."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(BATCH, T, HEADS, 96, dtype=torch.bfloat16, device=where)
        k = torch.empty(BATCH, 50, 96, dtype=torch.bfloat16, device=where)
        within = attention(q, k, causal=True, output_dtype=torch.bfloat16, statistics=statistics)
    after = attention(q, k, causal=True, output_dtype=torch.bfloat16, statistics=statistics)
    for got in (within, after):
        assert isinstance(got.o, FakeTensor)
        assert (got.o.shape, got.o.dtype, got.o.device) == (q.shape, torch.bfloat16, torch.device(where))
        stored = {"all": 3, "lse": 1, "none": 0}[statistics]
        assert (got.statistics.shape[0] if stored else 0) == stored
        assert stored == 0 or isinstance(got.statistics, FakeTensor)


def test_tensors_on_meta_have_results_there() -> None:
    call = {name: x.to("meta") for name, x in arguments().items()}
    got = attention(**call)
    assert (got.o.shape, got.o.is_meta, got.lse.is_meta) == (call["q"].shape, True, True)


@pytest.mark.nvcc
def test_memory_that_is_not_there_is_not_computed_with() -> None:
    """Tensors with memory under a mode whose new tensors have none."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    call = arguments()
    planned = plan(**call)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert isinstance(attention(**call).o, FakeTensor)
        fakes = {name: mode.from_tensor(x) for name, x in call.items()}
        with pytest.raises(TypeError, match=r"^a plan writes to memory, and a new tensor is a FakeTensor; call"):
            planned(**call)
        with pytest.raises(TypeError, match=r"^expected tensors with memory, got FakeTensor, FakeTensor, FakeTensor"):
            planned(**fakes)
        with pytest.raises(TypeError, match=r"^a plan needs tensors with memory; `attention` takes those without"):
            plan(**fakes)
    assert torch.equal(planned(**call).o, attention(**call).o)


@pytest.mark.nvcc
def test_a_mode_and_a_trace_see_the_operator() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **kwargs or {})

    call, seen = arguments(), []
    wanted = attention(**call)
    with Seen():
        got = attention(**call)
    assert seen == [torch.ops.fmha.attention.default]
    assert torch.equal(got.o, wanted.o)
    traced = make_fx(lambda q: attention(**call | {"q": q}).o)(call["q"])
    assert torch.ops.fmha.attention.default in [node.target for node in traced.graph.nodes]
    assert torch.equal(traced(call["q"]), wanted.o)
    assert torch.equal(torch.func.functionalize(lambda q: attention(**call | {"q": q}).o)(call["q"]), wanted.o)


@pytest.mark.nvcc
def test_a_subclass_with_memory_is_a_tensor() -> None:
    class Named(torch.Tensor):
        pass

    call = arguments()
    wanted = attention(**call).o
    assert torch.equal(attention(**call | {"q": call["q"].as_subclass(Named)}).o, wanted)
    with torch.no_grad():
        assert torch.equal(attention(**call | {"q": torch.nn.Parameter(call["q"])}).o, wanted)
