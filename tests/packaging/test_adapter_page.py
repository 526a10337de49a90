"""What the pages say of an adapter is what the code takes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import fmha
from fmha.harness.judge.status import Status
from fmha.harness.stages.init import EXAMPLES
from fmha.harness.worker.subjects.dtypes import DTYPES
from fmha.harness.worker.subjects.kernel import FIRST, Kernel

SHOWN = (
    *("Build", "Output", "Launch", "Field", "TensorMap", "Struct", "At"),
    *("to_bf16", "from_bf16", "to_dtype", "from_dtype"),
)


def signature(made: Any) -> str:
    """Without types; a mapping that is made anew is `{}`."""
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in _parameters(made)]
    text = str(inspect.Signature(plain)).replace("<factory>", "{}")
    return f"{made.__name__}{text}"


def _parameters(made: Any) -> list[inspect.Parameter]:
    return [parameter for name, parameter in inspect.signature(made).parameters.items() if name != "self"]


def page(repository: Path, name: str) -> str:
    return (repository / "docs" / "use" / name).read_text(encoding="utf-8")


def test_the_signatures_are_the_codes(repository: Path) -> None:
    (block,) = re.findall(r"## Signatures\n\n```python\n(.*?)```", page(repository, "adapter.md"), re.DOTALL)
    called = {"round_to_bf16": "to_bf16"}
    codes = [signature(getattr(fmha, name)) for name in SHOWN]
    for name, public in called.items():
        codes = [text.replace(f"{name}(", f"{public}(") for text in codes]
    assert block.splitlines() == codes


def test_the_table_has_every_method(repository: Path) -> None:
    """With its arguments, and every attribute that an adapter may set."""
    text = page(repository, "kernels.md")
    methods = {name: item for name, item in vars(Kernel).items() if inspect.isfunction(item) and name[0] != "_"}
    for name, item in methods.items():
        arguments = ", ".join(parameter.name for parameter in _parameters(item))
        assert f"`{name}({arguments})`" in text, name
    internal = {"root", "home", "arch"}  # whoever loads the adapter sets them
    for name in Kernel.__annotations__.keys() - internal:
        assert f"| `{name}` |" in text, name


@pytest.mark.parametrize("name", [*DTYPES, *FIRST])
def test_every_type_and_first_value_is_named(repository: Path, name: str) -> None:
    text = page(repository, "buffers.md")
    assert f"`{name}`" in text or f'"{name}"' in text or name == "poison"


def test_every_status_of_ones_own_kernel_has_a_way_on(repository: Path) -> None:
    text = page(repository, "adapter.md").partition("## When something fails")[2]
    for status in set(Status) - {Status.PASS, Status.NOT_RUN, Status.TIMEOUT}:
        assert f"`{status}`" in text, status


def test_every_example_is_told(repository: Path) -> None:
    text = page(repository, "kernels.md")
    for name in EXAMPLES:
        assert f"`{name}`" in text or f"--example {name}" in text or f"`{name}.cu`" in text, name
