"""pyproject.toml, constraints.txt and the Makefile agree."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.requirements import requirements

SETS = ["build", "run", "test", "lint", "nvcc", "cuda", "bench"]


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


def test_torch_is_the_build_without_cuda_libraries(pins):
    assert pins["torch"].endswith("+cpu")
