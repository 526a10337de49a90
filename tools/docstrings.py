"""Says which public classes and functions have no docstring: `python -m tools.docstrings`. `make lint` runs it.

Not asked for one: what a base class or a protocol has one for; what has a name with an underscore, or is within a
function; `main`, of which the module's says it; a command of the CLI, whose help does; pytest's hooks; the examples,
whose pages say it.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("emulator", "fmha", "harness", "tools")
EXAMPLES = "harness/examples/"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def lacking(root: Path) -> Iterator[str]:
    """`FILE:LINE NAME` of each, in the files below `root` that git has or that are new."""
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py") if not path.is_symlink())
    trees = {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    trees = {name: tree for name, tree in trees.items() if not name.startswith((EXAMPLES, "fmha/harness", "fmha/emu"))}
    classes: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
    for name, tree in trees.items():
        for node, of in _public(tree.body, None):
            if not ast.get_docstring(node) and not _is_told_elsewhere(node, of, classes):
                yield f"{name}:{node.lineno} {f'{of.name}.' if of else ''}{node.name}"


def _public(
    body: Sequence[ast.stmt], of: ast.ClassDef | None
) -> Iterator[tuple[ast.ClassDef | _Function, ast.ClassDef | None]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public(node.body, of)
        elif isinstance(node, ast.ClassDef | _Function) and not node.name.startswith("_"):
            yield node, of
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, node)


def _is_told_elsewhere(
    node: ast.ClassDef | _Function, of: ast.ClassDef | None, classes: dict[str, list[ast.ClassDef]]
) -> bool:
    if isinstance(node, ast.ClassDef):
        return False
    decorators = [ast.unparse(item) for item in node.decorator_list]
    if any(item.endswith((".setter", "overload")) for item in decorators) or (
        node.name == "main" or node.name.startswith("pytest_")
    ):
        return True
    first = node.args.args[0] if node.args.args else None
    if first is not None and first.annotation is not None and ast.unparse(first.annotation) == "typer.Context":
        return True
    if of is None:
        return False
    return _is_told_by_base(of, node.name, classes) or _is_of_protocol(of, node.name, classes)


def _is_told_by_base(of: ast.ClassDef, name: str, classes: dict[str, list[ast.ClassDef]]) -> bool:
    for base in _bases(of):
        for each in classes.get(base, ()):
            if each is not of and (_tells(each, name) or _is_told_by_base(each, name, classes)):
                return True
    return False


def _is_of_protocol(of: ast.ClassDef, name: str, classes: dict[str, list[ast.ClassDef]]) -> bool:
    """Whether a protocol, all of whose methods the class has, says what this one does."""
    mine = _methods(of).keys()
    protocols = (each for found in classes.values() for each in found if "Protocol" in _bases(each))
    return any(_tells(each, name) and _methods(each).keys() <= mine for each in protocols)


def _tells(of: ast.ClassDef, name: str) -> bool:
    method = _methods(of).get(name)
    return method is not None and bool(ast.get_docstring(method))


def _methods(of: ast.ClassDef) -> dict[str, _Function]:
    return {node.name: node for node in of.body if isinstance(node, _Function)}


def _bases(of: ast.ClassDef) -> list[str]:
    named = (base.value if isinstance(base, ast.Subscript) else base for base in of.bases)
    return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in named]


def main() -> int:
    """Prints them. 1 where there is one."""
    found = list(lacking(ROOT))
    for each in found:
        print(f"{each}: has no docstring; say what it promises, or give its name an underscore", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
