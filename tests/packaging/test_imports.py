"""What is imported is declared: something that is merely installed here is missing in a fresh clone."""

import ast
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.requirements import requirements

# Extras that are installed where there is a GPU only, by what they are imported as.
OPTIONAL = {"cuda": "cuda-bindings", "triton": "triton"}
OWN = {"harness", "emulator", "scripts", "tests"}
# Run by hand to make what is checked in beside them, with packages that their first lines name; no test imports them.
MAKERS = {
    "make_layouts.py",
    "make_triton.py",
    "make_cutedsl.py",
    "triton_kernels.py",
    "cutedsl_kernels.py",
    "run_gpu.py",
}


def imported(directory: Path) -> dict[str, Path]:
    """Top-level modules that files below `directory` import absolutely, each with one file that does."""
    modules = {}
    for path in directory.rglob("*.py"):
        if path.name in MAKERS:
            continue
        for node in ast.walk(ast.parse(path.read_text(), path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            modules.update({name.split(".")[0]: path for name in names})
    return modules


@pytest.mark.parametrize(
    ("directory", "sets"), [("harness", ["run", "cuda", "bench"]), ("emulator", ["run"]), ("tests", ["run", "test"])]
)
def test_imports_are_declared(repository, directory, sets):
    declared = {canonicalize_name(Requirement(line).name) for line in requirements(sets)}
    distributions = packages_distributions()
    for module, path in imported(repository / directory).items():
        if module in sys.stdlib_module_names or module in OWN:
            continue
        origins = {canonicalize_name(name) for name in distributions.get(module, [OPTIONAL.get(module, "")])}
        assert origins & declared, f"{path.relative_to(repository)} imports {module}: not declared in pyproject.toml"
