"""One list of arguments: what fmha.attention, its plan, torch's operator, the exact twin and the page are made of."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.attention_calls import arguments, loaded
from tests.pages import assert_shown

if TYPE_CHECKING:
    import torch

    from fmha.harness import exact
    from fmha.harness.attention import attention, plan

pytestmark = pytest.mark.torch

# Programs that torch.export saved name the operator with these.
SCHEMA = (
    "fmha::attention(Tensor q, Tensor k, Tensor? v, Tensor? kv_lens, Tensor? query_offsets, Tensor? sink, "
    "Tensor? sparse_k, Tensor? sparse_v, Tensor? sparse_indices, Tensor? sparse_lens, Tensor? block_table, "
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, float? scale, int? window_left, int? window_right, "
    "int? max_seqlen_q, int? max_seqlen_k, bool normalise, ScalarType output_dtype, int? splits, str p_path, "
    'str statistics="all") -> (Tensor, Tensor?)'
)


@pytest.fixture(scope="module", autouse=True)
def torch_loaded(build_cache: Path) -> Iterator[None]:
    with loaded(build_cache, globals()):
        yield


def test_all_that_take_the_arguments_take_those_of_the_list() -> None:
    from fmha.harness.attention.given import ARGUMENTS, NAMES
    from fmha.harness.attention.plans import AttentionPlan

    def names(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    listed = list(ARGUMENTS)
    assert names(attention) == [*listed, "out"]
    assert names(plan) == names(exact.attention) == listed
    tensors = [name for name in listed if name in NAMES or name == "sparse"]
    assert names(AttentionPlan.__call__) == ["self", *tensors, "out"]
    assert str(torch.ops.fmha.attention.default._schema) == SCHEMA


def test_an_argument_that_is_added_in_one_place_is_everywhere() -> None:
    """A field more, and nothing else: the entry takes it, says what it is and passes it on; the operator has it."""
    from dataclasses import field, make_dataclass
    from typing import Annotated

    from fmha.harness.attention import entry, given

    added = Annotated[float, given.About("how sharp", "float")]
    more: Any = make_dataclass(
        "More", [("sharpness", added, field(default=1.0, kw_only=True))], bases=(given.AttentionArguments,), frozen=True
    )

    @entry.takes(more)
    def called(tensors: Any, options: Any, sparse: Any) -> Any:
        """Calls."""
        return options

    call = arguments()
    assert called(**call)[-1] == 1.0
    assert called(**call, sharpness=2.0)[-1] == 2.0
    assert "    sharpness: how sharp." in (called.__doc__ or "")
    assert given.operands(more)[-1] == "float sharpness"
    with pytest.raises(TypeError, match=r"called\(\) got an unexpected keyword argument 'sharpnes'"):
        called(**call, sharpnes=2.0)


def test_the_compiled_planner_has_the_tensors_in_the_same_order(repository: Path) -> None:
    """It reads them by their places, which `Place` of parse.hpp names."""
    from fmha.harness.attention.given import NAMES

    text = (repository / "harness/worker/devices/native/parse.hpp").read_text()
    places = [word.strip() for word in text.partition("enum Place {")[2].partition("}")[0].split(",")]
    assert places == ["k" + name.title().replace("_", "") for name in NAMES] + ["kPlaces"]


def test_the_page_has_the_list(repository: Path) -> None:
    from fmha.harness.attention.given import ARGUMENTS

    rows = [f"| `{name}` | {said.words} |" for name, said in ARGUMENTS.items()]
    text = "\n".join(["| argument | |", "|---|---|", *rows])
    assert_shown(repository / "docs/use/attention.md", "arguments", text)
