"""What fmha.attention is given beside tensors, and what kernels do not do: each is refused in a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.harness.attention_calls import BATCH, HEADS, Call, Later, T, arguments, loaded, packed_apart

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def faked(**call: Any) -> Any:
    """A call with tensors that have no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return attention(**{n: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for n, x in call.items()})


def compiled(**call: Any) -> Any:
    q = call.pop("q")
    torch._dynamo.reset()  # which compiles no function again that has raised an error
    return torch.compile(lambda x: attention(x, **call).o, backend="aot_eager")(q)


WAYS: dict[str, Callable[..., Any]] = {
    "attention": lambda **call: attention(**call),
    "plan": lambda **call: plan(**call),
    "exact": lambda **call: exact.attention(**call),
    "without memory": faked,
}
PAIR = "window: expected a number of keys, or how many before and after a query's own, each an int or None, got "
WRONG: list[tuple[Call, type[Exception], str]] = [
    ({"causal": "no"}, TypeError, "causal: expected True or False, got 'no'"),
    ({"causal": 1}, TypeError, "causal: expected True or False, got 1"),
    ({"causal": None}, TypeError, "causal: expected True or False, got None"),
    ({"normalise": "yes"}, TypeError, "normalise: expected True or False, got 'yes'"),
    ({"window": (5,)}, TypeError, PAIR + "(5,)"),
    ({"window": (1, 2, 3)}, TypeError, PAIR + "(1, 2, 3)"),
    ({"window": 5.0}, TypeError, PAIR + "5.0"),
    ({"window": True}, TypeError, PAIR + "True"),
    ({"window": (True, 0)}, TypeError, PAIR + "(True, 0)"),
    ({"window": (3.5, 0)}, TypeError, PAIR + "(3.5, 0)"),
    ({"window": "9"}, TypeError, PAIR + "'9'"),
    ({"window": 0}, ValueError, "window: expected at least 1 key"),
    ({"splits": 1.5}, TypeError, "splits: expected an int or None, got 1.5"),
    ({"splits": True}, TypeError, "splits: expected an int or None, got True"),
    ({"splits": "2"}, TypeError, "splits: expected an int or None, got '2'"),
    ({"splits": 65536}, ValueError, "splits: expected 1 to 65535, got 65536"),
    ({"scale": True}, TypeError, "scale: expected a number, got True"),
    ({"scale": "0.5"}, TypeError, "scale: expected a number, got '0.5'"),
    ({"scale": float("nan")}, ValueError, "scale: expected a positive finite number, got nan"),
    ({"scale": -1}, ValueError, "scale: expected a positive finite number, got -1"),
    ({"p_path": "register"}, ValueError, "p_path: expected 'auto', 'tmem', 'smem', got 'register'"),
    ({"p_path": None}, ValueError, "p_path: expected 'auto', 'tmem', 'smem', got None"),
    ({"sparse": 3}, TypeError, "sparse: expected fmha.Sparse, got int"),
    ({"max_seqlen_q": 2.0}, TypeError, "max_seqlen_q: expected an int, got 2.0"),
    ({"max_seqlen_k": True}, TypeError, "max_seqlen_k: expected an int, got True"),
    ({"softcap": 30.0}, NotImplementedError, "softcap: no kernel caps logits yet, got 30.0; leave it out."),
]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("changes", "error", "said"), WRONG, ids=[said[:40] + repr(c) for c, _, said in WRONG])
def test_an_option_that_cannot_be_is_named_by_everyone(
    way: Callable[..., Any], changes: Call, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match="^" + re.escape(said)):
        way(**arguments() | changes)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")  # what it runs without, for the error
@pytest.mark.parametrize("name", ["causal", "window", "splits", "scale", "sparse", "softcap"])
def test_a_compiled_call_refuses_as_others_do(name: str) -> None:
    changes, error, said = next(case for case in WRONG if name in case[0])
    with pytest.raises(error, match="^" + re.escape(said)):
        compiled(**arguments() | changes)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"output_dtype": "float32"}, TypeError, "output_dtype: expected torch.float32 or torch.bfloat16, got float32"),
        ({"device": "gpu"}, ValueError, "device: expected 'emulator', where the tensors run, got 'gpu'"),
        ({"device": "cuda"}, ValueError, "device: expected 'emulator', where the tensors run, got 'cuda'"),
    ],
)
def test_options_that_the_definition_does_not_look_at(changes: Call, error: type[Exception], said: str) -> None:
    for name in ("attention", "plan", "without memory"):
        with pytest.raises(error, match="^" + re.escape(said)):
            WAYS[name](**arguments() | changes)


@pytest.mark.parametrize("scale", [2, np.float32(0.5), np.int64(1), 2.0**-149, 3.4028235e38])
def test_numbers_that_are_a_scale(scale: Any) -> None:
    from fmha.harness.attention import options

    assert options.scale_of(scale, 64) == float(np.float32(scale))
    assert exact.attention(**arguments(), scale=scale).o.shape == (BATCH, T, HEADS, 64)


@pytest.mark.parametrize("scale", [2.0**-150, 3.4028236e38, 10**400, float("inf")])
def test_scales_that_round_to_nothing_or_to_infinity_are_refused(scale: Any) -> None:
    with pytest.raises(ValueError, match="scale: expected a positive finite number"):
        attention(**arguments(), scale=scale)


def test_longest_lengths_are_ints() -> None:
    call = packed_apart()[0]
    for name in ("max_seqlen_q", "max_seqlen_k"):
        with pytest.raises(TypeError, match=f"^{name}: expected an int, got 3.5"):
            attention(**call | {name: 3.5})
        with pytest.raises(TypeError, match=f"^{name}: expected an int with cu_seqlens_{name[-1]}, got None"):
            attention(**call | {name: None})


FP8: dict[str, Later] = {
    "k": lambda: {"k": arguments()["k"].to(torch.float8_e4m3fn)},
    "v": lambda: {"v": arguments()["v"].to(torch.float8_e5m2)},
    "q": lambda: {"q": arguments()["q"].to(torch.float8_e4m3fn)},
}


@pytest.mark.parametrize("name", FP8)
def test_fp8_is_refused_with_what_to_do(name: str) -> None:
    changes = FP8[name]()
    said = f"{name}: no kernel reads {changes[name].dtype} yet; pass {name}.to(torch.bfloat16)"
    for way in ("attention", "plan", "exact"):
        with pytest.raises(NotImplementedError, match="^" + re.escape(said)):
            WAYS[way](**arguments() | changes)


def test_other_tensors_than_dense_ones_on_a_gpu_or_a_cpu_are_refused() -> None:
    call = arguments()
    with pytest.raises(TypeError, match=re.escape("k: expected a dense tensor, got torch.sparse_coo")):
        attention(**call | {"k": call["k"].to_sparse()})
    with pytest.raises(ValueError, match=re.escape("k: is on meta, q on cpu")):
        exact.attention(**call | {"k": call["k"].to("meta")})
    with pytest.raises(ValueError, match=re.escape("q: expected a tensor on a GPU or on the CPU, got one on meta")):
        exact.attention(**{name: x.to("meta") for name, x in call.items()})


def test_the_page_on_the_call_says_what_the_refusals_point_to(repository: Path) -> None:
    from fmha.harness.attention import options

    text = (repository / options.PAGE).read_text()
    for word in ("softcap", "FP8", "192/128", "576/512", "FMHA_CHECK_VALUES"):
        assert word in text


def test_what_is_no_sparse_branch_is_refused_whatever_was_called_before() -> None:
    """A call whose options are known is planned without them being looked at."""
    from fmha.harness.attention.entry import listed

    q = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"^sparse: expected fmha\.Sparse, got tuple"):
        listed(q, q, sparse=(q, q))  # type: ignore[arg-type]
