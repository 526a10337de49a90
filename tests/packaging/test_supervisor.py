"""What is shipped to hosts runs there with Python alone."""

import ast
import sys
from pathlib import Path

import pytest

from fmha.harness.hosts.shipment import package_files


def test_only_the_standard_library_and_what_travels_is_imported():
    files = package_files()
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    for name, text in files.items():
        for node in ast.walk(ast.parse(text, name)):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, name
                imported = [node.module]
            else:
                continue
            for module in imported:
                assert module.split(".")[0] in sys.stdlib_module_names or module in modules, f"{name}: {module}"


@pytest.mark.parametrize("name", ["agent", "gpus", "housekeeping", "keeper", "run"])
def test_every_module_travels(repository: Path, name: str):
    shipped = package_files()[f"fmha/harness/supervisor/{name}.py"]
    assert shipped == (repository / "harness" / "supervisor" / f"{name}.py").read_text()
