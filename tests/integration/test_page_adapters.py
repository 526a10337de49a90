"""The adapters that kernels.md and triton.md show whole are run as they stand, with the matrix.yaml beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from tests.integration.test_own_kernels import fmha, git

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]


def blocks(repository: Path, page: str, language: str) -> list[str]:
    text = (repository / "docs/use" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def passed(root: Path, *arguments: str) -> None:
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "as the page has it")
    ran = fmha(root, "run-matrix", "--quiet", *arguments)
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr


def test_the_adapter_of_kernels_md(repository: Path, tmp_path: Path) -> None:
    (adapter,) = (block for block in blocks(repository, "kernels.md", "python") if "class RmsNorm" in block)
    (matrix,) = (block for block in blocks(repository, "kernels.md", "yaml") if block.startswith("kernels:"))
    shutil.copy(repository / "harness/examples/rmsnorm/rmsnorm.cu", tmp_path)
    (tmp_path / "fmha_kernels.py").write_text(adapter)
    (tmp_path / "matrix.yaml").write_text(matrix)
    passed(tmp_path, "--filter", "threads=128")


@pytest.mark.triton
def test_the_adapter_of_triton_md(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    written = blocks(repository, "triton.md", "python") + blocks(repository, "triton.md", "yaml")
    files = {found[1]: block for block in written if (found := re.match(r"# ([\w/]+\.\w+)\n", block))}
    assert set(files) == {"ops/softmax.py", "fmha_kernels.py", "matrix.yaml"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    passed(tmp_path)
