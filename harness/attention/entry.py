"""Functions that take the arguments of given.py, each written once: `takes`.

A call of attention costs the host some microseconds, and to gather its arguments by a dataclass or by `**` would be one
or two more. So the function is written out as text and compiled, as dataclasses write their `__init__`; type checkers
see the dataclass's own parameters.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from fmha.harness.attention.given import NAMES, SPARSE, TensorArguments, Tensors, about, parts

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def takes(arguments: Callable[P, TensorArguments]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """The decorated function with the arguments of that dataclass. It is itself given the tensors in the order of
    NAMES, the options in that of OPTIONS where there are some, the sparse branch, and what else the dataclass has by
    name."""
    return lambda function: _written(function, arguments, "")


def method_takes(
    arguments: Callable[P, TensorArguments],
) -> Callable[[Callable[Concatenate[S, ...], R]], Callable[Concatenate[S, P], R]]:
    """The same of a method."""
    return lambda function: _written(function, arguments, "self")


def _written(function: Callable[..., Any], arguments: Any, first: str) -> Any:
    of = fields(arguments)
    names = [field.name for field in of]
    parameters = [first] if first else []
    for place, field in enumerate(of):
        if field.kw_only and not of[place - 1].kw_only:
            parameters.append("*")
        parameters.append(field.name if field.default is MISSING else f"{field.name}=_of_{field.name}")
    without = ", ".join("None" if name in SPARSE else name for name in NAMES)
    branch = [name if name not in SPARSE else "*_parts(sparse)" for name in NAMES if name not in SPARSE[1:]]
    given = [*parameters[: len(first) > 0], "_tensors"]
    said = about(arguments)
    options = [name for name in said if name not in about(TensorArguments)]
    given += [f"({', '.join(options)})"] * bool(options)
    given += ["sparse", *(f"{name}={name}" for name in names if name not in said)]
    # A function within a function, so that what it needs is its closure: torch.compile finds no globals but a module's.
    text = (
        f"def _made({', '.join(['_function', '_parts', *(f'_of_{name}' for name in names)])}):\n"
        f"    def {function.__name__}({', '.join(parameters)}):\n"
        f"        _tensors = ({without}) if sparse is None else ({', '.join(branch)})\n"
        f"        return _function({', '.join(given)})\n"
        f"    return {function.__name__}\n"
    )
    file = f"{__file__}: {function.__module__}.{function.__qualname__}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), globals(), space)
    written = space["_made"](function, parts, *(field.default for field in of))
    written.__qualname__, written.__module__ = function.__qualname__, function.__module__
    written.__annotations__ = {name: get_type_hints(arguments)[name] for name in names}
    written.__annotations__["return"] = function.__annotations__["return"]
    each = [f"    {name}: {what.words}." for name, what in said.items()]
    written.__doc__ = "\n".join([function.__doc__ or "", "", "Arguments:", *each])
    return written


@takes(TensorArguments)
def listed(tensors: Tensors, sparse: object) -> Tensors:
    """The tensors in the order of NAMES."""
    return tensors
