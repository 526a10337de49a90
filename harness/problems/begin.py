"""What `fmha init --problem` writes: the adapter of a problem and its answer, and a matrix.yaml with small sizes.

Neither file is run for that, only read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fmha.harness.errors import UserError
from fmha.harness.judge.case import Field, Value, case_of
from fmha.harness.problems.constants import fields

_MOST: Final = 1 << 18  # of all sizes together, multiplied
_CAPS: Final = (4096, 1024, 512, 256, 128, 64, 32, 16, 8, 4)
_VARIABLE: Final = (3, 16)  # of an axis that a definition leaves open
_MATRIX: Final = """# What is run and what it must reach; fmha's docs/use/problems.md says how to choose sizes.

kernels:
  {name}: fmha_kernels.py:{label}

default_suite: small
seed: 0

# The problem's own sizes are {own}.
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


Sizes = tuple[tuple[Field, ...], list[dict[str, Value]]]


def _of_module(text: str) -> Sizes:
    if "def get_inputs" not in text:
        raise ValueError("it has no get_inputs")
    known = fields(text)
    own = {field.name: field.default for field in known if isinstance(field.default, int)}
    # Sizes that are equal stay equal: one may have to be the other.
    cap = next((cap for cap in _CAPS if math.prod(max(1, min(value, cap)) for value in own.values()) <= _MOST), 2)
    odd = max(2, cap // 2 + cap // 4)
    return known, [{name: min(value, most) for name, value in own.items()} for most in (odd, cap)]


def _of_definition(text: str) -> Sizes:
    axes: Mapping[str, Mapping[str, int]] = json.loads(text)["axes"]
    known = tuple(Field(name.lower(), default=axis.get("value"), least=0) for name, axis in axes.items())
    free = [field.name for field in known if field.default is None]
    return known, [dict.fromkeys(free, size) for size in _VARIABLE]
