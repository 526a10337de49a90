"""KernelBench's problems: a file with `Model`, `get_inputs` and `get_init_inputs`, and an answer with `ModelNew`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fmha.harness.judge.case import Case, Field
from fmha.harness.problems.constants import fields, module_with
from fmha.harness.problems.events import TorchAnswerError
from fmha.harness.problems.question import Given, Question
from fmha.harness.problems.recorded import Recorded
from fmha.harness.worker.subjects.repository_modules import module_of

if TYPE_CHECKING:
    import torch


class KernelBench(Recorded):
    """`problem` is the problem's file and `source` the answer's, from the root of the repository. The whole numbers at
    the top of the problem are the fields of its cases."""

    problem: ClassVar[str]

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override] # it is of this instance's file
        """The sizes that the problem's file declares."""
        return fields(self._text)

    @functools.cached_property
    def _text(self) -> str:
        return (self.home / self.problem).read_text(encoding="utf-8")

    def question(self, case: Case) -> Question:
        values = {name: value for name, value in case.values if isinstance(value, int)}
        module = module_with(self._text, str(self.home / self.problem), values)
        model = module.Model(*module.get_init_inputs())
        names = [name for name in inspect.signature(module.Model.forward).parameters if name != "self"]
        given = dict(zip(names, module.get_inputs(), strict=False))
        state = {name: item.detach() for name, item in model.state_dict().items() if item.dim()}

        def answer(arguments: Given, learned: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            exact = model if any(item.is_meta for item in learned.values()) else model.double()
            exact.load_state_dict(dict(learned), strict=False, assign=True)
            found = exact(*arguments.values())
            if isinstance(found, tuple | list):
                return {f"out{at}": item for at, item in enumerate(found)}
            return {"out": found}

        return Question(given, state, answer)

    def host_code(self, case: Case) -> Callable[[Question], tuple[Callable[[], Any], Mapping[str, torch.Tensor]]]:
        values = {name: value for name, value in case.values if isinstance(value, int)}
        module = module_of(self.root, self.source)
        if not hasattr(module, "ModelNew"):
            raise TorchAnswerError(f"{self.source} has no ModelNew")

        def made(question: Question) -> tuple[Callable[[], Any], Mapping[str, torch.Tensor]]:
            problem = module_with(self._text, str(self.home / self.problem), values)
            model = module.ModelNew(*problem.get_init_inputs())
            parameters = {name: item.detach() for name, item in model.state_dict().items()}
            return lambda: model(*question.given.values()), parameters

        return made
