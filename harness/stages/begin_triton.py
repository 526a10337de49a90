"""What `fmha init --kernel FILE.py` writes: the adapter of a Triton kernel that is there, as far as its code says it.

The file is read and not imported, so that it takes neither Triton nor what the file imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fmha.harness.errors import UserError

_LOADS: Final = ("load",)
_STORES: Final = ("store",)
_FLAGS: Final = ("HAS_", "IS_", "USE_", "NEED_", "WITH_")  # how names of conditions begin


@dataclass(frozen=True, slots=True)
class JitKernel:
    """A function of `@triton.jit`. `constants` are its `tl.constexpr` parameters that no decorator chooses, with what
    they begin with; `chosen` those that one does; `tuned`: by an autotuner."""

    name: str
    read: tuple[str, ...]
    written: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: Mapping[str, str]
    chosen: tuple[str, ...]
    tuned: bool


def jit_kernels(text: str, source: str) -> list[JitKernel]:
    """Those of a file that store something, in order. UserError for what is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"it is no Python: {error}", where=source) from error
    functions = (item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef))
    found = [_kernel(item) for item in functions if any(_called(part) == "jit" for part in item.decorator_list)]
    return [kernel for kernel in found if kernel.written]


def jit_adapter(source: str, kernel: JitKernel, label: str) -> str:
    """The text of its adapter."""
    given = "".join(f'            "{name}": "{name}",\n' for name in _buffers(kernel))
    given += "".join(f'            "{name}": case.size,\n' for name in kernel.numbers)
    constants = ", ".join(f'"{name}": {value}' for name, value in kernel.constants.items())
    pointers = ", ".join(f'"{name}": "*fp32"' for name in _buffers(kernel))
    inputs = "\n".join(f'            "{name}": random.standard_normal(case.size, np.float32),' for name in kernel.read)
    outputs = ", ".join(f'"{name}": Output((case.size,){_first(kernel, name)})' for name in kernel.written)
    fields = 'Field("size"), Field("choice", least=0, default=0)' if kernel.tuned else 'Field("size"),'
    tuned = (
        "    # `choice` is the number of the autotuner's configuration: docs/use/triton.md.\n" if kernel.tuned else ""
    )
    block = next((name for name in (*kernel.constants, *kernel.chosen) if "BLOCK" in name.upper()), None)
    grid = f'-(-case.size // self.meta(case)["{block}"])' if block else "case.size"
    left = f"  # {', '.join(kernel.chosen)}: a decorator chooses" if kernel.chosen else ""
    return f'''"""What fmha has to know of {kernel.name} in {source}. matrix.yaml names this class.

Written by `fmha init --kernel` from the code alone: look at each size and type, at what is an output, and at the grid.
"""

from collections.abc import Mapping

import numpy as np

from fmha import Case, Field, Output, TritonKernel


class {label}(TritonKernel):
    source = "{source}"
    name = "{kernel.name}"
{tuned}    fields = ({fields})
    signature = {{{pointers}}}

    def constants(self, case: Case) -> dict[str, object]:
        return {{{constants}}}{left}

    def arguments(self, case: Case) -> dict[str, object]:
        return {{
{given}        }}

    def grid(self, case: Case) -> tuple[int, int, int]:
        return {grid}, 1, 1

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {{
{inputs}
        }}

    def outputs(self, case: Case) -> dict[str, Output]:
        # What the kernel changes in place has first="input", and is an input of the same name; sums have first="zeros".
        return {{{outputs}}}

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise NotImplementedError("what {", ".join(kernel.written)} should be, in float64, from inputs")
'''


def _buffers(kernel: JitKernel) -> list[str]:
    return list(dict.fromkeys((*kernel.read, *kernel.written)))


def _first(kernel: JitKernel, name: str) -> str:
    return ', first="input"' if name in kernel.read else ""


def _kernel(function: ast.FunctionDef) -> JitKernel:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = [item.arg for item in every]
    compiled = {item.arg for item in every if item.annotation and ast.unparse(item.annotation).endswith("constexpr")}
    read, written = _accessed(function, [name for name in names if name not in compiled])
    chosen, tuned = _chosen(function)
    defaults = dict(_defaults(function))
    constants = {name: defaults.get(name) or _value(name) for name in names if name in compiled - chosen}
    numbers = [name for name in names if name not in compiled and name not in {*read, *written}]
    return JitKernel(
        function.name,
        tuple(name for name in names if name in read),
        tuple(name for name in names if name in written),
        tuple(numbers),
        constants,
        tuple(name for name in names if name in chosen),
        tuned,
    )


def _called(node: ast.AST) -> str:
    """The last name of what is called: `jit` of `triton.jit`, with arguments or without."""
    if isinstance(node, ast.Call):
        return _called(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _accessed(function: ast.FunctionDef, parameters: list[str]) -> tuple[set[str], set[str]]:
    """The parameters that are loaded through before anything is stored through them, and all that are stored
    through."""
    assigned: dict[str, ast.expr] = {}
    read: set[str] = set()
    written: set[str] = set()
    for node in _in_order(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, node.value)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = _called(node)
        base = _base(node.args[0], assigned, parameters, 0)
        if base and (name in _LOADS or name.startswith("atomic_")):
            read |= {base} - written if name in _LOADS else set()
        if base and (name in _STORES or name.startswith("atomic_")):
            written.add(base)
    return read, written


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """As they are carried out, but for loops and conditions: what is stored is loaded first."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    yield node


def _base(node: ast.expr, assigned: Mapping[str, ast.expr], parameters: list[str], depth: int) -> str | None:
    """The parameter that a sum begins with: of `x + row * stride + at` it is `x`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left = _base(node.left, assigned, parameters, depth)
        return left or _base(node.right, assigned, parameters, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
        return _base(node.func.value, assigned, parameters, depth)
    if isinstance(node, ast.Name):
        if node.id in assigned and depth < len(assigned):
            return _base(assigned[node.id], assigned, parameters, depth + 1)
        return node.id if node.id in parameters else None
    return None


def _chosen(function: ast.FunctionDef) -> tuple[set[str], bool]:
    """The parameters that `@triton.heuristics` and `@triton.autotune` choose, where these say it here."""
    names: set[str] = set()
    tuned = False
    for decorator in function.decorator_list:
        kind = _called(decorator)
        tuned |= kind == "autotune"
        if kind not in ("autotune", "heuristics"):
            continue
        for node in ast.walk(decorator):
            if isinstance(node, ast.Dict):
                names |= {key.value for key in node.keys if isinstance(key, ast.Constant) and type(key.value) is str}
    return names & {item.arg for item in [*function.args.args, *function.args.kwonlyargs]}, tuned


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    plain = [*function.args.posonlyargs, *function.args.args]
    for item, default in zip(plain[len(plain) - len(function.args.defaults) :], function.args.defaults, strict=True):
        yield item.arg, ast.unparse(default)
    for item, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if given is not None:
            yield item.arg, ast.unparse(given)


def _value(name: str) -> str:
    return "False" if name.startswith(_FLAGS) else "128"
