"""pyproject.toml, constraints.txt and the Makefile agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETS = ["build", "run", "test", "lint", "nvcc"]


def declared(repository: Path, name: str) -> list[Requirement]:
    script = [sys.executable, repository / "scripts/requirements.py", name]
    lines = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Requirement(line) for line in lines]


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
def test_every_direct_requirement_is_pinned_within_its_range(repository, pins, name):
    requirements = declared(repository, name)
    assert requirements
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not admit {version}"


def test_torch_is_the_build_without_cuda_libraries(pins):
    assert pins["torch"].endswith("+cpu")
