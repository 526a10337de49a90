"""Python files of a repository as modules, as they are imported where the repository is used."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType


def on_path(folder: Path) -> None:
    """What lies in the folder can be imported, as from where a script lies."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def module_at(path: Path) -> ModuleType:
    """The Python file as a module of a name of its own. Nothing is left beside it: on a host the tree is proved."""
    label = f"_fmha_kernel_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(label, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    with _no_bytecode():
        spec.loader.exec_module(module)
    return module


def module_of(root: Path, source: str, bare: Sequence[str] = ()) -> ModuleType:
    """The file `source` below the root: a module of its package, where there is an `__init__.py` beside it.

    The root and the folder that the package is in are on the path. Of the packages `bare` the `__init__.py` is not run.
    """
    path = root / source
    on_path(root)
    folder, parts = path.parent, [path.stem] if path.stem != "__init__" else []
    while folder != root and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    on_path(folder)
    for name in bare:
        place = folder.joinpath(*name.split("."))
        if not place.is_dir():
            raise ValueError(f"bare has {name}, and there is no folder {place.relative_to(root)}")
        if name not in sys.modules:
            package = ModuleType(name)
            package.__path__ = [str(place)]
            sys.modules[name] = package
    if len(parts) < 2:
        return module_at(path)
    with _no_bytecode(), _all_or_nothing(root):
        module = importlib.import_module(".".join(parts))
    if module.__file__ is None or Path(module.__file__).resolve() != path.resolve():
        raise ValueError(f"{module.__name__} is {module.__file__}, and not {source}: it was imported before")
    return module


@contextlib.contextmanager
def _all_or_nothing(root: Path) -> Iterator[None]:
    """Of an import that fails no module of the repository stays: Python drops the one that raised, and the next import
    would go on with the others, where the first case of a kernel failed."""
    before = set(sys.modules)
    try:
        yield
    except BaseException:
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(root):
                del sys.modules[name]
        raise


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
