"""pyproject.toml, constraints.txt and the Makefile agree."""

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.requirements import requirements

SETS = ["build", "run", "test", "lint", "nvcc", "cuda", "torch", "bench", "triton", "cute", "site"]


@pytest.fixture(scope="module")
def pins(repository: Path) -> dict[str, str]:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pinned = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==(\S+)", line).groups()  # a range here fails the test
            assert canonicalize_name(name) not in pinned, f"{name} is pinned twice"
            pinned[canonicalize_name(name)] = version
    return pinned


@pytest.mark.parametrize("name", SETS)
def test_every_direct_requirement_is_pinned_within_its_range(pins, name):
    declared = [Requirement(line) for line in requirements([name])]
    assert declared
    for requirement in declared:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not admit {version}"


def test_a_run_needs_neither_torch_nor_scipy():
    """Nor what only tests and linters use: a stranger's `make run` downloads what it needs."""
    needed = {canonicalize_name(Requirement(line).name) for line in requirements(["build", "run"])}
    assert not needed & {"torch", "scipy", "triton", "selenium", "pytest", "mypy", "ruff", "clang-format"}


def test_make_installs_what_the_target_needs_and_torch_without_cuda_libraries_only(repository):
    def commands(target: str) -> str:
        planned = ["make", "--dry-run", "--always-make", "--no-print-directory", "-C", repository, target]
        return subprocess.run(planned, check=True, capture_output=True, text=True).stdout

    run, test = commands("run"), commands("test")
    assert "requirements.py build " in run
    assert "requirements.py run " in run
    assert not re.search(r"requirements.py .*(test|lint|torch|bench)", run)
    assert "torch" not in run
    assert "requirements.py test " in test
    (asked,) = re.findall(r"build=\$\((.*?)\);", test)
    found = subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True, cwd=repository).stdout
    assert re.fullmatch(r"torch==[\d.]+\+cpu\n", found)
