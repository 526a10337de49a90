"""The sizes of a problem in Python: whole numbers that its file assigns at the top, and the file with others of them.

KernelBench's problems are a module with `batch_size = 4096`. Those numbers are the fields of its cases.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from fmha.harness.judge.case import MOST, TAKEN, Field

_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")
_ALLOWED: Final = (ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow, ast.operator)


@dataclass(frozen=True, slots=True)
class ModuleConstant:
    """`name` of the module, of whose tuple it is the element `at`; -1 where it is a number by itself."""

    name: str
    at: int
    field: str
    value: int


def constants(text: str) -> list[ModuleConstant]:
    """Those that can be fields, in order. A number that another one follows from is not one of them."""
    found: dict[str, ModuleConstant] = {}
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Name):
            continue
        items = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
        for at, item in enumerate(items):
            value = _number(item)
            number = at if isinstance(statement.value, ast.Tuple) else -1
            label = target.id.lower() + (f"_{at}" if number >= 0 else "")
            if value is None or not _WORD.fullmatch(label) or label in TAKEN or not 0 <= value <= MOST:
                continue
            found.setdefault(label, ModuleConstant(target.id, number, label, value))
    return list(found.values())


def fields(text: str) -> tuple[Field, ...]:
    """One without any gets a field that says nothing, because a kernel has to have one."""
    made = tuple(Field(item.field, default=item.value, least=0) for item in constants(text))
    return made or (Field("variant", default=0, least=0, most=0),)


def module_with(text: str, path: str, values: Mapping[str, int]) -> ModuleType:
    """The module, run with these values of its fields in place of its own."""
    tree = ast.parse(text, path)
    known = {(item.name, item.at): values.get(item.field, item.value) for item in constants(text)}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Name):
            continue
        if (target.id, -1) in known:
            statement.value = ast.copy_location(ast.Constant(known[target.id, -1]), statement.value)
        elif isinstance(statement.value, ast.Tuple):
            elements = statement.value.elts
            for at, item in enumerate(elements):
                if (target.id, at) in known:
                    elements[at] = ast.copy_location(ast.Constant(known[target.id, at]), item)
    made = ModuleType("problem")
    made.__file__ = path
    exec(compile(tree, path, "exec"), made.__dict__)
    return made


def _number(item: ast.expr) -> int | None:
    """Of an expression of whole numbers alone."""
    if not all(isinstance(node, _ALLOWED) for node in ast.walk(item)):
        return None
    if any(isinstance(node, ast.Constant) and type(node.value) is not int for node in ast.walk(item)):
        return None
    if any(isinstance(node, ast.Pow) for node in ast.walk(item)):
        return None  # 2 ** 10 ** 10 is a number, too
    value = eval(compile(ast.Expression(item), "constant", "eval"), {"__builtins__": {}})
    return value if type(value) is int else None
