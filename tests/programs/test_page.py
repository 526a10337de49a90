"""docs/use/programs.md: its example does what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import assert_shown


@pytest.mark.nvcc
def test_the_example_of_the_page(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = repository / "docs/use/programs.md"
    source = re.search(r"```cuda\n(.*?)```", page.read_text(), re.DOTALL)
    assert source
    (tmp_path / "sum.cu").write_text(source[1])
    monkeypatch.chdir(tmp_path)
    build = "nvcc -cudart shared -lineinfo -gencode arch=compute_100a,code=compute_100a -o sum sum.cu"
    subprocess.run(build.split(), check=True)
    command = [sys.executable, "-m", "fmha", "emulate", "--", "./sum"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 1
    said = done.stdout.replace(f"{tmp_path}/", "").rstrip()
    assert_shown(page, "example", f"```console\n$ {build}\n$ fmha emulate -- ./sum\n{said}\n```")
