"""What `fmha init` writes, as files; tests/integration/test_own_kernels.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fmha.harness.stages.init import EXAMPLES, InitChoice, initialise
from scripts.requirements import requirements


def test_every_example_is_one_of_init(repository: Path) -> None:
    folders = {path.parent.name for path in (repository / "harness/examples").glob("*/matrix.yaml")}
    assert folders == set(EXAMPLES)


@pytest.mark.parametrize(
    ("example", "module"), [("rmsnorm", ""), ("gemm", ""), ("triton", "triton"), ("cute", "cutlass")]
)
def test_the_workflow_installs_what_the_example_imports(tmp_path: Path, example: str, module: str) -> None:
    initialise(tmp_path, InitChoice(example))
    text = (tmp_path / ".github/workflows/fmha.yml").read_text()
    (install,) = [
        step["run"] for step in yaml.safe_load(text)["jobs"]["matrix"]["steps"] if step.get("name") == "Install"
    ]
    assert install.startswith("pip install --require-hashes --only-binary :all: -r fmha-lock.txt\n")
    (extras,) = re.findall(r"fmha lock --extras ([a-z,]+)", text)
    installed = " ".join(requirements(extras.split(",")))
    assert "nvidia-cuda-nvcc" in installed
    assert ("triton" in installed) == (module == "triton")
    assert ("cutlass" in installed) == (module == "cutlass")
    imported = "".join(path.read_text() for path in tmp_path.glob("*.py"))
    assert {name for name in ("triton", "cutlass") if re.search(rf"import {name}\b", imported)} == {module} - {""}
