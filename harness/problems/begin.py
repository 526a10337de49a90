"""What `fmha init --problem` writes: the adapter of a problem and its answer, and a matrix.yaml with small sizes.

Neither file is run for that, only read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fmha.harness.errors import UserError
from fmha.harness.judge.case import Field, Value, case_of
from fmha.harness.problems.constants import fields
from fmha.harness.problems.small import follows, small

# Of axes that a definition leaves open, each another one, so that no two can be exchanged unseen.
_VARIABLE: Final[tuple[Callable[[int], range], ...]] = (
    lambda count: range(16, 16 + 8 * count, 8),
    lambda count: range(3, 3 + 2 * count, 2),
)
# What makes one number of a problem divide another.
_DIVIDES: Final = re.compile(r"(?<!/)//(?!/)|%|head|group")
_MATRIX: Final = """# What is run and what it must reach; fmha's docs/use/problems.md says how to choose sizes.

kernels:
  {name}: fmha_kernels.py:{label}

default_suite: small
seed: 0

# The problem's own sizes are {own}.
# The first case has sizes that tiles divide. In the second no two are equal and none is even. Where the problem does
# not let them be so, its model says it, and the case is yours to change.
suites:
  small:
    cases: [{cases}]

gates:
  default: {{cosine: 0.9999, relative_l2: 1e-4, max_error: 1e-4}}

# Runs before all others; where it fails, nothing else is run.
guard: {{case: {guard}}}

limits: {{build_seconds: 600, configuration_silence_seconds: 300, configuration_total_seconds: 900}}

hosts:
  emulator: {{kind: emulator, arch: sm_90a, schedule: realistic}}
"""


def files(root: Path, problem: str, answer: str) -> dict[str, str]:
    """By name. UserError for a problem that is none of the two kinds, or a file that is not below the root."""
    for name in (problem, answer):
        path = (root / name).resolve()
        if not path.is_file() or not path.is_relative_to(root.resolve()):
            raise UserError(f"there is no file {name} in the repository", where=str(root), next_step="copy it there")
    text = (root / problem).read_text(encoding="utf-8")
    is_definition = problem.endswith(".json")
    try:
        sizes = _of_definition(text) if is_definition else _of_module(text)
    except (ValueError, KeyError, SyntaxError) as error:
        step = "a KernelBench problem is a .py with get_inputs, a flashinfer-bench definition a .json with axes"
        raise UserError(f"it is no problem that fmha knows: {error}", where=problem, next_step=step) from error
    stem = re.sub(r"^\d+_", "", Path(problem).stem)
    name = re.sub(r"[^a-z0-9]+", "", stem.lower()) or "problem"
    name = name if name[0].isalpha() else f"p{name}"
    base, member = ("FlashInferBench", "definition") if is_definition else ("KernelBench", "problem")
    label = "".join(word.title() for word in re.split(r"[^A-Za-z0-9]+", stem) if word) or "Problem"
    label = label if label[0].isalpha() else f"P{label}"
    known, small = sizes
    ids = list(dict.fromkeys(case_of(name, known, values).id for values in small))
    own = ", ".join(f"{field.name} {field.default}" for field in known if field.default is not None) or "left open"
    adapter = (
        f'from fmha import {base}\n\n\nclass {label}({base}):\n    {member} = "{problem}"\n    source = "{answer}"\n'
    )
    matrix = _MATRIX.format(name=name, label=label, cases=", ".join(ids), guard=ids[0], own=own)
    return {"fmha_kernels.py": adapter, "matrix.yaml": matrix}


def _divides(text: str) -> bool:
    return any(_DIVIDES.search(line.partition("#")[0]) for line in text.splitlines() if "def " not in line)


Sizes = tuple[tuple[Field, ...], Sequence[Mapping[str, Value]]]


def _of_module(text: str) -> Sizes:
    if "def get_inputs" not in text:
        raise ValueError("it has no get_inputs")
    known = fields(text)
    own = {field.name: field.default for field in known if isinstance(field.default, int)}
    return known, small(own, divides=_divides(text))


def _of_definition(text: str) -> Sizes:
    told: Mapping[str, Any] = json.loads(text)
    axes: Mapping[str, Mapping[str, int]] = told["axes"]
    known = tuple(Field(name.lower(), default=axis.get("value"), least=0) for name, axis in axes.items())
    free = [field.name for field in known if field.default is None]
    cases = []
    for variable in _VARIABLE:
        sizes = {field.name: field.default for field in known if isinstance(field.default, int)}
        sizes |= dict(zip(free, variable(len(free)), strict=True))
        for name, value in follows(told.get("constraints") or (), sizes).items():
            sizes[name] = value if name in free else sizes[name]
        cases.append({name: sizes[name] for name in free})
    return known, cases
