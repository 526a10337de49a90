"""What is imported is declared: something that is merely installed here is missing in a fresh clone."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.requirements import requirements
from tests.packaging.syntax import OF_ONE_PROCESS, tree

pytestmark = OF_ONE_PROCESS

# Extras that need not be installed, by what they are imported as.
OPTIONAL = {
    "cuda": "cuda-bindings",
    "cutlass": "nvidia-cutlass-dsl",
    "mcp": "mcp",
    "sphinx": "sphinx",
    "torch": "torch",
    "triton": "triton",
}
OWN = {"fmha", "scripts", "tests", "tools"}
# Run by hand to make what is checked in beside them, with packages that their first lines name; no test imports them.
MAKERS = {
    "make_layouts.py",
    "make_triton.py",
    "make_cutedsl.py",
    "triton_kernels.py",
    "cutedsl_kernels.py",
    "run_gpu.py",
}
LOADED_BY_PYTEST = {"plugin.py"}


def imported(directory: Path) -> dict[str, Path]:
    """Top-level modules that files below `directory` import absolutely, each with one file that does."""
    modules = {}
    for path in directory.rglob("*.py"):
        if path.name in MAKERS | LOADED_BY_PYTEST:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            modules.update({name.split(".")[0]: path for name in names})
    return modules


@pytest.mark.parametrize(
    ("directory", "sets"),
    [
        ("harness", ["run", "cuda", "torch", "bench", "triton", "cute", "mcp", "watch"]),
        ("emulator", ["run", "programs", "torch"]),
        ("fmha", ["run"]),
        ("tools", ["run", "site", "torch", "triton"]),
        ("tests", ["build", "run", "test", "torch", "triton"]),
    ],
)
def test_imports_are_declared(repository, directory, sets):
    declared = {canonicalize_name(Requirement(line).name) for line in requirements(sets)}
    distributions = packages_distributions()
    for module, path in imported(repository / directory).items():
        if module in sys.stdlib_module_names or module in OWN:
            continue
        origins = {canonicalize_name(name) for name in distributions.get(module, [OPTIONAL.get(module, "")])}
        assert origins & declared, f"{path.relative_to(repository)} imports {module}: not declared in pyproject.toml"


def test_every_command_but_bench_works_without_torch_and_scipy(tmp_path):
    """As where neither is installed: their names lead nowhere. The worker too, with the reference and the gates."""
    script = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("torch", "scipy", "triton", "cuda")))
import fmha
names = [module.name for module in pkgutil.walk_packages(fmha.__path__, "fmha.", onerror=print)]
clients = ("fmha.harness.mcp.server", "fmha.harness.attention", "fmha.harness.exact", "fmha.harness.bench")
clients += ("fmha.harness.examples.triton", "fmha.harness.triton_choice", "fmha.harness.triton_target")
clients += ("fmha.harness.problems",)
clients += tuple(f"fmha.harness.scripted.{name}" for name in ("graphs", "torch_device", "triton_driver"))
names = [n for n in names if not n.startswith(clients) and not n.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 100
