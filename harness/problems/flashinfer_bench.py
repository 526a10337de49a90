"""flashinfer-bench's definitions and solutions, which are JSON: axes, tensors, a reference in Python; and sources."""

from __future__ import annotations

import functools
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from fmha.harness.judge.case import Case, Field
from fmha.harness.problems.events import TorchAnswerError
from fmha.harness.problems.question import Given, Question
from fmha.harness.problems.recorded import Recorded

if TYPE_CHECKING:
    import torch

_LANGUAGES = ("triton", "python", "cuda", "cpp")


class FlashInferBench(Recorded):
    """`definition` is the definition's file and `source` the solution's, from the root of the repository. The axes are
    the fields of its cases, by their names in lower case; constant ones have their values as defaults.

    Inputs are drawn as flashinfer-bench draws `random` ones: normal for floating point, small whole numbers else. A
    class that derives from this one may draw others by `draw`.
    """

    definition: ClassVar[str]

    @functools.cached_property
    def _defined(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.home / self.definition).read_text(encoding="utf-8"))
        return made

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override] # it is of this instance's file
        """The axes of the definition that have no fixed value."""
        axes = self._defined["axes"]
        return tuple(Field(name.lower(), default=axis.get("value"), least=0) for name, axis in axes.items())

    def draw(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, case: Case) -> torch.Tensor:
        """An input that is a tensor."""
        import torch

        if dtype.is_floating_point:
            return torch.randn(shape).to(dtype)
        return torch.randint(0, 2 if dtype == torch.bool else 128, shape).to(dtype)

    def number(self, name: str, dtype: str, case: Case) -> float | int:
        """An input that is passed by value, the same in each process: a softmax's scale from the width of a head, an
        epsilon, or drawn from its name and the case. It is never 1, which an answer might leave out."""
        if not dtype.startswith(("float", "bfloat")):
            return random.Random(f"{name}/{case.id}").randint(2, 3)
        widths = [getattr(case, axis.lower()) for axis in self._defined["axes"] if "head_dim" in axis.lower()]
        if "scale" in name and widths:
            return float(max(1, *widths, 2) ** -0.5)
        if name.startswith("eps"):
            return 1e-5
        return random.Random(f"{name}/{case.id}").uniform(0.3, 0.9)

    def question(self, case: Case) -> Question:
        sizes = {name: getattr(case, name.lower()) for name in self._defined["axes"]}
        given: dict[str, Any] = {}
        for name, spec in self._defined["inputs"].items():
            if spec["shape"] is None:
                given[name] = self.number(name, spec["dtype"], case)
            else:
                shape = tuple(sizes[axis] for axis in spec["shape"])
                given[name] = self.draw(name, shape, _dtype(spec["dtype"]), case)
        module = ModuleType("reference")
        exec(compile(self._defined["reference"], str(self.home / self.definition), "exec"), module.__dict__)
        names = list(self._defined["outputs"])

        def answer(arguments: Given, learned: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            found = module.run(*arguments.values())
            made = _by_name(found, names)
            # A reference may compute in float32, whatever it is given; its shapes and types are the definition's.
            specs = self._defined["outputs"]
            if any(item.is_meta for item in made.values()):
                return {name: item.to(_dtype(specs[name]["dtype"])) for name, item in made.items()}
            return made

        return Question(given, {}, answer)

    def host_code(self, case: Case) -> Callable[[Question], tuple[Callable[[], Any], Mapping[str, torch.Tensor]]]:
        solution = json.loads((self.root / self.source).read_text(encoding="utf-8"))
        if solution["definition"] != self._defined["name"]:
            raise TorchAnswerError(f"{self.source} solves {solution['definition']}, not {self._defined['name']}")
        spec = solution["spec"]
        if spec["language"] not in _LANGUAGES:
            raise TorchAnswerError(f"{self.source} is in {spec['language']}; judged are {', '.join(_LANGUAGES)}")
        function = self._function(solution, spec)
        passed = spec.get("destination_passing_style", True)
        import torch

        from fmha.harness.problems.carried_out import shapes

        outputs = shapes(self, case)[1]

        def made(question: Question) -> tuple[Callable[[], Any], Mapping[str, torch.Tensor]]:
            def call() -> Any:
                if not passed:
                    return _by_name(function(*question.given.values()), list(outputs)).values()
                room = [torch.empty(item.shape, dtype=item.dtype) for item in outputs.values()]
                function(*question.given.values(), *room)
                return tuple(room)

            return lambda: tuple(call()), {}

        return made

    def _function(self, solution: Mapping[str, Any], spec: Mapping[str, Any]) -> Callable[..., Any]:
        """The entry point, of files that are written where this process may write."""
        file, _, name = spec["entry_point"].partition("::")
        folder = Path(tempfile.mkdtemp(prefix="fmha-solution-"))
        for item in solution["sources"]:
            path = folder / item["path"]
            if not path.resolve().is_relative_to(folder.resolve()):
                raise TorchAnswerError(f"{item['path']} is outside the solution")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item["content"], encoding="utf-8")
        if spec["language"] in ("cuda", "cpp"):
            if spec.get("binding", "tvm-ffi") != "torch":
                raise TorchAnswerError("a solution in C++ is bound by torch here; this one is by tvm-ffi")
            from torch.utils import cpp_extension  # what stands for it here

            texts = [f'#line 1 "{item["path"]}"\n{item["content"]}' for item in solution["sources"]]
            bound = () if any("PYBIND11_MODULE" in text for text in texts) else (name,)
            loaded = cpp_extension.load_inline(
                cuda_sources=[text for text in texts if not text.split('"')[1].endswith((".h", ".cuh"))],
                functions=bound,
                extra_include_paths=[folder],
            )
            found: Callable[..., Any] = getattr(loaded, name)
            return found
        from fmha.harness.worker.subjects.repository_modules import module_of

        module = module_of(folder, file)
        sys.modules[Path(file).stem] = module
        return getattr(module, name)  # type: ignore[no-any-return]


def _by_name(found: Any, names: list[str]) -> dict[str, torch.Tensor]:
    if isinstance(found, Mapping):
        return {name: found[name] for name in names}
    items = list(found) if isinstance(found, tuple | list) else [found]
    if len(items) != len(names):
        raise TorchAnswerError(f"{len(items)} things are returned; the outputs are {', '.join(names)}")
    return dict(zip(names, items, strict=True))


def _dtype(name: str) -> torch.dtype:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name} is no type of torch's")
    return found
