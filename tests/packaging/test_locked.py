"""What the workflows install is named by digest, at the versions that everybody else gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.requirements import requirements
from tools.locked import BUILDERS, LOCKED, SETS, merged

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"([A-Za-z0-9._-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), next(line for line, match in zip(lines, found, strict=True) if not match)
    return {plain(match[1]): match[2] for match in found if match}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_digests_are_of_the_versions_of_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    wanted = {plain(name): version for name, version in wanted.items()}
    found = pins(LOCKED)
    assert {name: wanted.get(name, version) for name, version in found.items()} == found
    required = {plain(re.split(r"[\[<>=!~; ]", item)[0]) for item in requirements(list(SETS))}
    assert required <= found.keys()
    assert "cibuildwheel" in pins(BUILDERS)


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_installs_by_digest(path: Path) -> None:
    text = path.read_text()
    if re.search(r"make |\.ci/run", text):
        assert f"LOCKED: {LOCKED}" in text
    installs = [line for line in text.splitlines() if re.search(r"\b(pip install|pipx run|uv \w+) ", line)]
    assert all("--require-hashes" in line for line in installs)


def test_one_version_for_every_python() -> None:
    made = merged([["a==1 --hash=sha256:2", "b==1 --hash=sha256:3"], ["a==1 --hash=sha256:1"]])
    assert made == ["a==1 --hash=sha256:1 --hash=sha256:2", "b==1 --hash=sha256:3"]
    with pytest.raises(ValueError, match="a is 1 for one Python and 2 for another"):
        merged([["a==1 --hash=sha256:2"], ["a==2 --hash=sha256:1"]])
